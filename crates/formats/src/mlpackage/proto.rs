//! The messages of a Core ML model that an ML Program uses, by field number.
//!
//! Field numbers and types come from the descriptors serialized in `coremltools` 9.0. Maps are
//! B-trees, so that a message has one encoding. Fields of other kinds of model are not here;
//! decoding skips them.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub struct Model {
    #[prost(int32, tag = "1")]
    pub specification_version: i32,
    #[prost(message, optional, tag = "2")]
    pub description: Option<ModelDescription>,
    #[prost(bool, tag = "10")]
    pub is_updatable: bool,
    #[prost(message, optional, tag = "502")]
    pub ml_program: Option<Program>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ModelDescription {
    #[prost(message, repeated, tag = "1")]
    pub input: Vec<FeatureDescription>,
    #[prost(message, repeated, tag = "10")]
    pub output: Vec<FeatureDescription>,
    #[prost(string, tag = "11")]
    pub predicted_feature_name: String,
    #[prost(string, tag = "12")]
    pub predicted_probabilities_name: String,
    #[prost(message, repeated, tag = "13")]
    pub state: Vec<FeatureDescription>,
    #[prost(message, repeated, tag = "20")]
    pub functions: Vec<FunctionDescription>,
    #[prost(string, tag = "21")]
    pub default_function_name: String,
    #[prost(message, optional, tag = "100")]
    pub metadata: Option<Metadata>,
}

#[derive(Clone, PartialEq, Message)]
pub struct FunctionDescription {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, repeated, tag = "2")]
    pub input: Vec<FeatureDescription>,
    #[prost(message, repeated, tag = "3")]
    pub output: Vec<FeatureDescription>,
    #[prost(string, tag = "4")]
    pub predicted_feature_name: String,
    #[prost(string, tag = "5")]
    pub predicted_probabilities_name: String,
    #[prost(message, repeated, tag = "6")]
    pub state: Vec<FeatureDescription>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Metadata {
    #[prost(string, tag = "1")]
    pub short_description: String,
    #[prost(string, tag = "2")]
    pub version_string: String,
    #[prost(string, tag = "3")]
    pub author: String,
    #[prost(string, tag = "4")]
    pub license: String,
    #[prost(btree_map = "string, string", tag = "100")]
    pub user_defined: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct FeatureDescription {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub short_description: String,
    #[prost(message, optional, tag = "3")]
    pub r#type: Option<FeatureType>,
}

#[derive(Clone, PartialEq, Message)]
pub struct FeatureType {
    #[prost(oneof = "FeatureKind", tags = "1, 2, 3, 4, 5, 6, 7, 8")]
    pub kind: Option<FeatureKind>,
    #[prost(bool, tag = "1000")]
    pub is_optional: bool,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum FeatureKind {
    #[prost(message, tag = "1")]
    Int64(Empty),
    #[prost(message, tag = "2")]
    Double(Empty),
    #[prost(message, tag = "3")]
    String(Empty),
    #[prost(message, tag = "4")]
    Image(ImageFeatureType),
    #[prost(message, tag = "5")]
    MultiArray(ArrayFeatureType),
    #[prost(message, tag = "6")]
    Dictionary(DictionaryFeatureType),
    #[prost(message, tag = "7")]
    Sequence(SequenceFeatureType),
    #[prost(message, tag = "8")]
    State(StateFeatureType),
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub struct StateFeatureType {
    #[prost(message, optional, tag = "1")]
    pub array_type: Option<ArrayFeatureType>,
}

#[derive(Clone, PartialEq, Message)]
pub struct DictionaryFeatureType {
    #[prost(message, optional, tag = "1")]
    pub int64_key: Option<Empty>,
    #[prost(message, optional, tag = "2")]
    pub string_key: Option<Empty>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SequenceFeatureType {
    #[prost(message, optional, tag = "1")]
    pub int64: Option<Empty>,
    #[prost(message, optional, tag = "3")]
    pub string: Option<Empty>,
    #[prost(message, optional, tag = "101")]
    pub size_range: Option<SizeRange>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ImageFeatureType {
    #[prost(int64, tag = "1")]
    pub width: i64,
    #[prost(int64, tag = "2")]
    pub height: i64,
    #[prost(int32, tag = "3")]
    pub color_space: i32,
    #[prost(message, optional, tag = "21")]
    pub enumerated_sizes: Option<EnumeratedImageSizes>,
    #[prost(message, optional, tag = "31")]
    pub image_size_range: Option<ImageSizeRange>,
}

#[derive(Clone, PartialEq, Message)]
pub struct EnumeratedImageSizes {
    #[prost(message, repeated, tag = "1")]
    pub sizes: Vec<ImageSize>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct ImageSize {
    #[prost(uint64, tag = "1")]
    pub width: u64,
    #[prost(uint64, tag = "2")]
    pub height: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct ImageSizeRange {
    #[prost(message, optional, tag = "1")]
    pub width: Option<SizeRange>,
    #[prost(message, optional, tag = "2")]
    pub height: Option<SizeRange>,
}

/// Inclusive; an upper end of -1 is none.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct SizeRange {
    #[prost(uint64, tag = "1")]
    pub lower: u64,
    #[prost(int64, tag = "2")]
    pub upper: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct ArrayFeatureType {
    #[prost(int64, repeated, tag = "1")]
    pub shape: Vec<i64>,
    #[prost(int32, tag = "2")]
    pub data_type: i32,
    #[prost(oneof = "Flexibility", tags = "21, 31")]
    pub flexibility: Option<Flexibility>,
    #[prost(oneof = "DefaultValue", tags = "41, 51, 61")]
    pub default_value: Option<DefaultValue>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Flexibility {
    #[prost(message, tag = "21")]
    Enumerated(EnumeratedShapes),
    #[prost(message, tag = "31")]
    Range(ShapeRange),
}

#[derive(Clone, PartialEq, Oneof)]
pub enum DefaultValue {
    #[prost(int32, tag = "41")]
    Int(i32),
    #[prost(float, tag = "51")]
    Float(f32),
    #[prost(double, tag = "61")]
    Double(f64),
}

#[derive(Clone, PartialEq, Message)]
pub struct EnumeratedShapes {
    #[prost(message, repeated, tag = "1")]
    pub shapes: Vec<ArrayShape>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ArrayShape {
    #[prost(int64, repeated, tag = "1")]
    pub shape: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ShapeRange {
    #[prost(message, repeated, tag = "1")]
    pub size_ranges: Vec<SizeRange>,
}

// MIL.

#[derive(Clone, PartialEq, Message)]
pub struct Program {
    #[prost(int64, tag = "1")]
    pub version: i64,
    #[prost(btree_map = "string, message", tag = "2")]
    pub functions: BTreeMap<String, Function>,
    #[prost(string, tag = "3")]
    pub doc_string: String,
    #[prost(btree_map = "string, message", tag = "4")]
    pub attributes: BTreeMap<String, Value>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Function {
    #[prost(message, repeated, tag = "1")]
    pub inputs: Vec<NamedValueType>,
    #[prost(string, tag = "2")]
    pub opset: String,
    #[prost(btree_map = "string, message", tag = "3")]
    pub block_specializations: BTreeMap<String, Block>,
    #[prost(btree_map = "string, message", tag = "4")]
    pub attributes: BTreeMap<String, Value>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Block {
    #[prost(message, repeated, tag = "1")]
    pub inputs: Vec<NamedValueType>,
    #[prost(string, repeated, tag = "2")]
    pub outputs: Vec<String>,
    #[prost(message, repeated, tag = "3")]
    pub operations: Vec<Operation>,
    #[prost(btree_map = "string, message", tag = "4")]
    pub attributes: BTreeMap<String, Value>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Operation {
    #[prost(string, tag = "1")]
    pub r#type: String,
    #[prost(btree_map = "string, message", tag = "2")]
    pub inputs: BTreeMap<String, Argument>,
    #[prost(message, repeated, tag = "3")]
    pub outputs: Vec<NamedValueType>,
    #[prost(message, repeated, tag = "4")]
    pub blocks: Vec<Block>,
    #[prost(btree_map = "string, message", tag = "5")]
    pub attributes: BTreeMap<String, Value>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Argument {
    #[prost(message, repeated, tag = "1")]
    pub arguments: Vec<Binding>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Binding {
    #[prost(oneof = "Bound", tags = "1, 2")]
    pub bound: Option<Bound>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Bound {
    #[prost(string, tag = "1")]
    Name(String),
    #[prost(message, tag = "2")]
    Value(Value),
}

#[derive(Clone, PartialEq, Message)]
pub struct NamedValueType {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<ValueType>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ValueType {
    #[prost(oneof = "ValueKind", tags = "1, 2, 3, 4, 5")]
    pub kind: Option<ValueKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum ValueKind {
    #[prost(message, tag = "1")]
    Tensor(TensorType),
    #[prost(message, tag = "2")]
    List(Box<ListType>),
    #[prost(message, tag = "3")]
    Tuple(TupleType),
    #[prost(message, tag = "4")]
    Dictionary(Box<DictionaryType>),
    #[prost(message, tag = "5")]
    State(Box<StateType>),
}

#[derive(Clone, PartialEq, Message)]
pub struct TensorType {
    #[prost(int32, tag = "1")]
    pub data_type: i32,
    #[prost(int64, tag = "2")]
    pub rank: i64,
    #[prost(message, repeated, tag = "3")]
    pub dimensions: Vec<Dimension>,
    #[prost(btree_map = "string, message", tag = "4")]
    pub attributes: BTreeMap<String, Value>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TupleType {
    #[prost(message, repeated, tag = "1")]
    pub types: Vec<ValueType>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ListType {
    #[prost(message, optional, boxed, tag = "1")]
    pub r#type: Option<Box<ValueType>>,
    #[prost(message, optional, tag = "2")]
    pub length: Option<Dimension>,
}

#[derive(Clone, PartialEq, Message)]
pub struct DictionaryType {
    #[prost(message, optional, boxed, tag = "1")]
    pub key_type: Option<Box<ValueType>>,
    #[prost(message, optional, boxed, tag = "2")]
    pub value_type: Option<Box<ValueType>>,
}

#[derive(Clone, PartialEq, Message)]
pub struct StateType {
    #[prost(message, optional, boxed, tag = "1")]
    pub wrapped_type: Option<Box<ValueType>>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Dimension {
    #[prost(oneof = "DimensionKind", tags = "1, 2")]
    pub kind: Option<DimensionKind>,
}

#[derive(Clone, Copy, PartialEq, Oneof)]
pub enum DimensionKind {
    #[prost(message, tag = "1")]
    Constant(ConstantDimension),
    #[prost(message, tag = "2")]
    Unknown(UnknownDimension),
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct ConstantDimension {
    #[prost(uint64, tag = "1")]
    pub size: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct UnknownDimension {
    #[prost(bool, tag = "1")]
    pub variadic: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Value {
    #[prost(string, tag = "1")]
    pub doc_string: String,
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<ValueType>,
    #[prost(oneof = "Contents", tags = "3, 5")]
    pub contents: Option<Contents>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Contents {
    #[prost(message, tag = "3")]
    Immediate(ImmediateValue),
    #[prost(message, tag = "5")]
    BlobFile(BlobFileValue),
}

#[derive(Clone, PartialEq, Message)]
pub struct BlobFileValue {
    #[prost(string, tag = "1")]
    pub file_name: String,
    /// Of the record, not of its data.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct ImmediateValue {
    #[prost(oneof = "Immediate", tags = "1, 2, 3, 4")]
    pub kind: Option<Immediate>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Immediate {
    #[prost(message, tag = "1")]
    Tensor(TensorValue),
    #[prost(message, tag = "2")]
    Tuple(ListValue),
    #[prost(message, tag = "3")]
    List(ListValue),
    #[prost(message, tag = "4")]
    Dictionary(DictionaryValue),
}

#[derive(Clone, PartialEq, Message)]
pub struct ListValue {
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<Value>,
}

#[derive(Clone, PartialEq, Message)]
pub struct DictionaryValue {
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<KeyValuePair>,
}

#[derive(Clone, PartialEq, Message)]
pub struct KeyValuePair {
    #[prost(message, optional, tag = "1")]
    pub key: Option<Value>,
    #[prost(message, optional, tag = "2")]
    pub value: Option<Value>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TensorValue {
    #[prost(oneof = "Elements", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub elements: Option<Elements>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Elements {
    #[prost(message, tag = "1")]
    Floats(Floats),
    #[prost(message, tag = "2")]
    Ints(Ints),
    #[prost(message, tag = "3")]
    Bools(Bools),
    #[prost(message, tag = "4")]
    Strings(Strings),
    #[prost(message, tag = "5")]
    LongInts(LongInts),
    #[prost(message, tag = "6")]
    Doubles(Doubles),
    #[prost(message, tag = "7")]
    Bytes(PackedBytes),
}

#[derive(Clone, PartialEq, Message)]
pub struct Floats {
    #[prost(float, repeated, tag = "1")]
    pub values: Vec<f32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Doubles {
    #[prost(double, repeated, tag = "1")]
    pub values: Vec<f64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Ints {
    #[prost(int32, repeated, tag = "1")]
    pub values: Vec<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct LongInts {
    #[prost(int64, repeated, tag = "1")]
    pub values: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Bools {
    #[prost(bool, repeated, tag = "1")]
    pub values: Vec<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Strings {
    #[prost(string, repeated, tag = "1")]
    pub values: Vec<String>,
}

/// Little-endian elements; those of less than a byte packed, least significant bit first.
#[derive(Clone, PartialEq, Message)]
pub struct PackedBytes {
    #[prost(bytes = "bytes", tag = "1")]
    pub values: Bytes,
}
