//! The messages of a Core ML model that an ML Program uses, by field number.
//!
//! Field numbers and types come from the descriptors serialized in `coremltools` 9.0. Fields that
//! are not declared here (those of other kinds of model, and whatever a newer Core ML adds) are
//! kept whole in each message's `unknown`, and maps keep their order, so that a model that is read
//! and written again loses nothing.

mod map;
pub(crate) mod message;
mod unknown;

use bytes::Bytes;
use prost::Oneof;

pub use map::Map;
use message::message;
pub use unknown::Unknown;

message! {
    Model {
        1 => specification_version: is(i32);
        2 => description: is(Option<ModelDescription>);
        10 => is_updatable: is(bool);
        200 => pipeline_classifier: is(Option<WrappedPipeline>);
        201 => pipeline_regressor: is(Option<WrappedPipeline>);
        202 => pipeline: is(Option<Pipeline>);
        502 => ml_program: is(Option<Program>);
    }

    /// Models one after another: outputs of one are inputs of a later one, by name.
    Pipeline {
        1 => models: is(Vec<Model>);
        2 => names: is(Vec<String>);
    }

    /// A pipeline that classifies or predicts a number.
    WrappedPipeline {
        1 => pipeline: is(Option<Pipeline>);
    }

    ModelDescription {
        1 => input: is(Vec<FeatureDescription>);
        10 => output: is(Vec<FeatureDescription>);
        11 => predicted_feature_name: is(String);
        12 => predicted_probabilities_name: is(String);
        13 => state: is(Vec<FeatureDescription>);
        20 => functions: is(Vec<FunctionDescription>);
        21 => default_function_name: is(String);
        100 => metadata: is(Option<Metadata>);
    }

    FunctionDescription {
        1 => name: is(String);
        2 => input: is(Vec<FeatureDescription>);
        3 => output: is(Vec<FeatureDescription>);
        4 => predicted_feature_name: is(String);
        5 => predicted_probabilities_name: is(String);
        6 => state: is(Vec<FeatureDescription>);
    }

    Metadata {
        1 => short_description: is(String);
        2 => version_string: is(String);
        3 => author: is(String);
        4 => license: is(String);
        100 => user_defined: is(Map<String>);
    }

    FeatureDescription {
        1 => name: is(String);
        2 => short_description: is(String);
        3 => r#type: is(Option<FeatureType>);
    }

    FeatureType {
        1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 => kind: oneof(FeatureKind);
        1000 => is_optional: is(bool);
    }
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

message! {
    Empty {}

    StateFeatureType {
        1 => array_type: is(Option<ArrayFeatureType>);
    }

    DictionaryFeatureType {
        1 => int64_key: is(Option<Empty>);
        2 => string_key: is(Option<Empty>);
    }

    SequenceFeatureType {
        1 => int64: is(Option<Empty>);
        3 => string: is(Option<Empty>);
        101 => size_range: is(Option<SizeRange>);
    }

    ImageFeatureType {
        1 => width: is(i64);
        2 => height: is(i64);
        3 => color_space: is(i32);
        21 => enumerated_sizes: is(Option<EnumeratedImageSizes>);
        31 => image_size_range: is(Option<ImageSizeRange>);
    }

    EnumeratedImageSizes {
        1 => sizes: is(Vec<ImageSize>);
    }

    ImageSize {
        1 => width: is(u64);
        2 => height: is(u64);
    }

    ImageSizeRange {
        1 => width: is(Option<SizeRange>);
        2 => height: is(Option<SizeRange>);
    }

    /// Inclusive; an upper end of -1 is none.
    SizeRange {
        1 => lower: is(u64);
        2 => upper: is(i64);
    }

    ArrayFeatureType {
        1 => shape: is(Vec<i64>);
        2 => data_type: is(i32);
        21 | 31 => flexibility: oneof(Flexibility);
        41 | 51 | 61 => default_value: oneof(DefaultValue);
    }
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

message! {
    EnumeratedShapes {
        1 => shapes: is(Vec<ArrayShape>);
    }

    ArrayShape {
        1 => shape: is(Vec<i64>);
    }

    ShapeRange {
        1 => size_ranges: is(Vec<SizeRange>);
    }
}

// MIL.

message! {
    Program {
        1 => version: is(i64);
        2 => functions: is(Map<Function>);
        3 => doc_string: is(String);
        4 => attributes: is(Map<Value>);
    }

    Function {
        1 => inputs: is(Vec<NamedValueType>);
        2 => opset: is(String);
        3 => block_specializations: is(Map<Block>);
        4 => attributes: is(Map<Value>);
    }

    Block {
        1 => inputs: is(Vec<NamedValueType>);
        2 => outputs: is(Vec<String>);
        3 => operations: is(Vec<Operation>);
        4 => attributes: is(Map<Value>);
    }

    Operation {
        1 => r#type: is(String);
        2 => inputs: is(Map<Argument>);
        3 => outputs: is(Vec<NamedValueType>);
        4 => blocks: is(Vec<Block>);
        5 => attributes: is(Map<Value>);
    }

    Argument {
        1 => arguments: is(Vec<Binding>);
    }

    Binding {
        1 | 2 => bound: oneof(Bound);
    }
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Bound {
    #[prost(string, tag = "1")]
    Name(String),
    #[prost(message, tag = "2")]
    Value(Box<Value>),
}

message! {
    NamedValueType {
        1 => name: is(String);
        2 => r#type: is(Option<ValueType>);
    }

    ValueType {
        1 | 2 | 3 | 4 | 5 => kind: oneof(ValueKind);
    }
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

message! {
    TensorType {
        1 => data_type: is(i32);
        2 => rank: is(i64);
        3 => dimensions: is(Vec<Dimension>);
        4 => attributes: is(Map<Value>);
    }

    TupleType {
        1 => types: is(Vec<ValueType>);
    }

    ListType {
        1 => r#type: is(Option<Box<ValueType>>);
        2 => length: is(Option<Dimension>);
    }

    DictionaryType {
        1 => key_type: is(Option<Box<ValueType>>);
        2 => value_type: is(Option<Box<ValueType>>);
    }

    StateType {
        1 => wrapped_type: is(Option<Box<ValueType>>);
    }

    Dimension {
        1 | 2 => kind: oneof(DimensionKind);
    }
}

#[derive(Clone, PartialEq, Oneof)]
pub enum DimensionKind {
    #[prost(message, tag = "1")]
    Constant(ConstantDimension),
    #[prost(message, tag = "2")]
    Unknown(UnknownDimension),
}

message! {
    ConstantDimension {
        1 => size: is(u64);
    }

    UnknownDimension {
        1 => variadic: is(bool);
    }

    Value {
        1 => doc_string: is(String);
        2 => r#type: is(Option<ValueType>);
        3 | 5 => contents: oneof(Contents);
    }
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Contents {
    #[prost(message, tag = "3")]
    Immediate(ImmediateValue),
    #[prost(message, tag = "5")]
    BlobFile(BlobFileValue),
}

message! {
    BlobFileValue {
        1 => file_name: is(String);
        /// Of the record, not of its data.
        2 => offset: is(u64);
    }

    ImmediateValue {
        1 | 2 | 3 | 4 => kind: oneof(Immediate);
    }
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

message! {
    ListValue {
        1 => values: is(Vec<Value>);
    }

    DictionaryValue {
        1 => values: is(Vec<KeyValuePair>);
    }

    KeyValuePair {
        1 => key: is(Option<Value>);
        2 => value: is(Option<Value>);
    }

    TensorValue {
        1 | 2 | 3 | 4 | 5 | 6 | 7 => elements: oneof(Elements);
    }
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

message! {
    Floats {
        1 => values: is(Vec<f32>);
    }

    Doubles {
        1 => values: is(Vec<f64>);
    }

    Ints {
        1 => values: is(Vec<i32>);
    }

    LongInts {
        1 => values: is(Vec<i64>);
    }

    Bools {
        1 => values: is(Vec<bool>);
    }

    Strings {
        1 => values: is(Vec<String>);
    }

    /// Little-endian elements; those of less than a byte packed, least significant bit first.
    PackedBytes {
        1 => values: is(Bytes);
    }
}

// The format before ML Programs, as far as it is described here.

message! {
    /// Of a neural network, a classifier or a regressor.
    NeuralNetwork {
        1 => layers: is(Vec<NeuralNetworkLayer>);
        100 => string_labels: is(Option<StringVector>);
        101 => int64_labels: is(Option<Int64Vector>);
    }

    /// Its kind is the field that is left in `unknown`.
    NeuralNetworkLayer {
        1 => name: is(String);
        2 => input: is(Vec<String>);
        3 => output: is(Vec<String>);
    }

    StringVector {
        1 => vector: is(Vec<String>);
    }

    Int64Vector {
        1 => vector: is(Vec<i64>);
    }

    /// A message nothing is known of.
    Anything {}
}
