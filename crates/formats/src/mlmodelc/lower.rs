//! What Apple's compiler makes of a program: nearly nothing.
//!
//! Compared with fifteen pairs of a model and what was made of it, the text differs in three
//! places: inputs are in the order of their names, `buildInfo` also names the compiler, and
//! inputs of several shapes are listed in `FlexibleShapeInformation`. No op is added or changed.

use std::collections::BTreeMap;

use russet_ir::{DType, Tensor, TensorType, Type};
use sha2::{Digest, Sha256};

use crate::mlpackage::proto::{
    self, Contents, Dimension, DimensionKind, FeatureKind, Flexibility, Immediate, ValueKind,
};
use crate::mlpackage::value;

const BUILD_INFO: &str = "buildInfo";
const FLEXIBLE: &str = "FlexibleShapeInformation";

/// The program of a compiled model.
pub fn lower(program: &proto::Program, description: &proto::ModelDescription) -> proto::Program {
    let mut lowered = program.clone();
    let build_info = build_info(program.attributes.get(BUILD_INFO));
    lowered.attributes.insert(BUILD_INFO.into(), build_info);
    let names: Vec<String> = lowered.functions.keys().cloned().collect();
    for name in names {
        let Some(function) = lowered.functions.get_mut(&name) else { continue };
        function.inputs.sort_by(|a, b| a.name.cmp(&b.name));
        let described = description.functions.iter().find(|f| f.name == name);
        let inputs = described.map_or(&description.input, |f| &f.input);
        if let Some(flexible) = flexible(&function.inputs, inputs) {
            function.attributes.insert(FLEXIBLE.into(), flexible);
        }
    }
    lowered
}

/// What the source says of its making, and who compiled it.
fn build_info(source: Option<&proto::Value>) -> proto::Value {
    let mut entries = BTreeMap::new();
    if let Some(Contents::Immediate(i)) = source.and_then(|v| v.contents.as_ref())
        && let Some(Immediate::Dictionary(d)) = &i.kind
    {
        for pair in &d.values {
            let text = |v: &Option<proto::Value>| {
                let tensor = value::scalar(v.as_ref()?).ok()?;
                tensor.as_strings().map(|s| s.concat())
            };
            if let (Some(key), Some(value)) = (text(&pair.key), text(&pair.value)) {
                entries.insert(key, value);
            }
        }
    }
    entries.insert("russet-version".into(), env!("CARGO_PKG_VERSION").into());
    let pairs = entries.iter().map(|(k, v)| (string(k), string(v))).collect();
    dictionary(string_type(), string_type(), pairs)
}

/// The default shapes of inputs that have several, and which others they have.
fn flexible(
    inputs: &[proto::NamedValueType],
    described: &[proto::FeatureDescription],
) -> Option<proto::Value> {
    let (mut defaults, mut ranges) = (Vec::new(), Vec::new());
    let mut combinations: BTreeMap<String, Vec<(proto::Value, proto::Value)>> = BTreeMap::new();
    for input in inputs {
        let Some(feature) = described.iter().find(|f| f.name == input.name) else { continue };
        let kind = feature.r#type.as_ref().and_then(|t| t.kind.as_ref());
        let Some(FeatureKind::MultiArray(a)) = kind else { continue };
        match &a.flexibility {
            Some(Flexibility::Range(r)) => {
                let rows: Vec<proto::Value> = r
                    .size_ranges
                    .iter()
                    .map(|r| ints(&[r.lower as i64, r.upper], Some(2)))
                    .collect();
                ranges.push((string(&input.name), list(ints_type(Some(2)), rows)));
            }
            Some(Flexibility::Enumerated(e)) => {
                for shape in &e.shapes {
                    let entry = (string(&input.name), ints(&shape.shape, None));
                    let text = format!("{}{:?}", input.name, shape.shape);
                    let hash = Sha256::digest(text.as_bytes());
                    let key = hash[..4].iter().map(|b| format!("{b:02x}")).collect();
                    combinations.entry(key).or_default().push(entry);
                }
            }
            None => continue,
        }
        defaults.push((string(&input.name), ints(&a.shape, None)));
    }
    if defaults.is_empty() {
        return None;
    }
    let shapes = dictionary(string_type(), ints_type(None), defaults);
    let mut parts = vec![tuple(vec![string("DefaultShapes"), shapes])];
    if !combinations.is_empty() {
        let inner = |pairs| dictionary(string_type(), ints_type(None), pairs);
        let pairs = combinations.into_iter().map(|(key, pairs)| (string(&key), inner(pairs)));
        let of = inner(Vec::new()).r#type.unwrap_or_default();
        let all = dictionary(string_type(), of, pairs.collect());
        parts.push(tuple(vec![string("EnumeratedShapes"), all]));
    }
    if !ranges.is_empty() {
        let of = list(ints_type(Some(2)), Vec::new()).r#type.unwrap_or_default();
        let all = dictionary(string_type(), of, ranges);
        parts.push(tuple(vec![string("RangeDims"), all]));
    }
    Some(tuple(parts))
}

fn string_type() -> proto::ValueType {
    value::encode_type(&Type::Tensor(TensorType::scalar(DType::String)))
}

fn string(text: &str) -> proto::Value {
    value::encode_immediate(&Tensor::string(text))
}

/// Of `n` integers, or of any number of them.
fn ints_type(n: Option<u64>) -> proto::ValueType {
    let mut ty = value::encode_type(&Type::Tensor(TensorType::new(DType::I32, [n.unwrap_or(0)])));
    if let (None, Some(ValueKind::Tensor(t))) = (n, &mut ty.kind) {
        t.dimensions = vec![unknown()];
    }
    ty
}

fn unknown() -> Dimension {
    Dimension { kind: Some(DimensionKind::Unknown(Default::default())), ..Default::default() }
}

fn ints(numbers: &[i64], n: Option<u64>) -> proto::Value {
    let numbers: Vec<i32> =
        numbers.iter().map(|&n| n.clamp(i32::MIN.into(), i32::MAX.into()) as i32).collect();
    let value = value::encode_immediate(&Tensor::i32(vec![numbers.len() as u64], &numbers));
    proto::Value { r#type: Some(ints_type(n)), ..value }
}

fn compound(kind: ValueKind, contents: Immediate) -> proto::Value {
    proto::Value {
        r#type: Some(proto::ValueType { kind: Some(kind), ..Default::default() }),
        contents: Some(Contents::Immediate(proto::ImmediateValue {
            kind: Some(contents),
            ..Default::default()
        })),
        ..Default::default()
    }
}

fn list(of: proto::ValueType, values: Vec<proto::Value>) -> proto::Value {
    let r#type = Some(Box::new(of));
    let ty = proto::ListType { r#type, length: Some(unknown()), ..Default::default() };
    let values = proto::ListValue { values, ..Default::default() };
    compound(ValueKind::List(Box::new(ty)), Immediate::List(values))
}

fn tuple(values: Vec<proto::Value>) -> proto::Value {
    let types = values.iter().map(|v| v.r#type.clone().unwrap_or_default()).collect();
    let ty = proto::TupleType { types, ..Default::default() };
    let values = proto::ListValue { values, ..Default::default() };
    compound(ValueKind::Tuple(ty), Immediate::Tuple(values))
}

fn dictionary(
    key: proto::ValueType,
    value: proto::ValueType,
    pairs: Vec<(proto::Value, proto::Value)>,
) -> proto::Value {
    let ty = proto::DictionaryType {
        key_type: Some(Box::new(key)),
        value_type: Some(Box::new(value)),
        ..Default::default()
    };
    let pair = |(key, value)| proto::KeyValuePair {
        key: Some(key),
        value: Some(value),
        ..Default::default()
    };
    let values = pairs.into_iter().map(pair).collect();
    let values = proto::DictionaryValue { values, ..Default::default() };
    compound(ValueKind::Dictionary(Box::new(ty)), Immediate::Dictionary(values))
}
