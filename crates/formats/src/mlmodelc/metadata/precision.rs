//! In which types a model computes, and in which it keeps its weights.

use std::collections::BTreeSet;

use russet_ir::DType;

use super::operations;
use crate::mlpackage::proto::{self, Bound, Contents, ValueKind};
use crate::mlpackage::value;

/// Apple's name of an element type.
pub fn name(dtype: DType) -> String {
    match dtype {
        DType::F16 => "Float16".into(),
        DType::F32 => "Float32".into(),
        DType::F64 => "Double".into(),
        DType::BF16 => "BFloat16".into(),
        d => {
            let text = d.name();
            match text.strip_prefix("uint") {
                Some(bits) => format!("UInt{bits}"),
                None => text[..1].to_uppercase() + &text[1..],
            }
        }
    }
}

/// The types of all values but truths and strings, constants among them.
pub fn of_computing(functions: &[proto::Function]) -> Option<String> {
    let outputs = operations(functions).into_iter().flat_map(|op| &op.outputs);
    let dtypes = outputs.filter_map(|o| dtype(o.r#type.as_ref()));
    let dtypes = dtypes.filter(|d| !matches!(d, DType::Bool | DType::String));
    mixed(dtypes.map(name).collect())
}

/// The types of the tensors in weight files, and how they are compressed.
pub fn of_storage(functions: &[proto::Function]) -> Option<String> {
    let mut kinds = BTreeSet::new();
    for op in operations(functions) {
        let bound = op.inputs.iter().flat_map(|(param, a)| {
            a.arguments.iter().filter_map(move |b| match &b.bound {
                Some(Bound::Value(v)) => Some((param, &**v)),
                _ => None,
            })
        });
        let stored: Vec<(&String, &proto::Value)> =
            op.attributes.iter().chain(bound).filter(|(_, v)| is_stored(v)).collect();
        if stored.is_empty() {
            continue;
        }
        let given = |param: &str| {
            let bound = op.inputs.get(param).and_then(|a| a.arguments.first());
            op.attributes.get(param).or(match bound.map(|b| &b.bound) {
                Some(Some(Bound::Value(v))) => Some(&**v),
                _ => None,
            })
        };
        let dtype_of = |param: &str| given(param).and_then(|v| dtype(v.r#type.as_ref()));
        match op.r#type.as_str() {
            "constexpr_lut_to_dense" | "constexpr_lut_to_sparse" => {
                let packed = dtype_of("indices").filter(|d| d.bits() < 8).map(DType::bits);
                let bits = packed.or_else(|| table_bits(given("lut")?));
                kinds.insert(format!("Palettized ({} bits)", bits.unwrap_or(8)));
            }
            "constexpr_sparse_to_dense" => drop(kinds.insert("Sparse".into())),
            _ => {
                // What is compressed counts, not its scales.
                let data =
                    ["quantized_data", "data", "nonzero_data"].into_iter().find_map(dtype_of);
                let all = stored.iter().filter_map(|(_, v)| dtype(v.r#type.as_ref()));
                match (op.r#type.starts_with("constexpr_"), data) {
                    (true, Some(d)) => drop(kinds.insert(name(d))),
                    _ => kinds.extend(all.map(name)),
                }
            }
        }
    }
    mixed(kinds)
}

fn is_stored(v: &proto::Value) -> bool {
    matches!(v.contents, Some(Contents::BlobFile(_)))
}

/// How many bits an index into a table of one dimension has.
fn table_bits(lut: &proto::Value) -> Option<u64> {
    let Some(ValueKind::Tensor(t)) = &lut.r#type.as_ref()?.kind else { return None };
    match &t.dimensions.first()?.kind {
        Some(proto::DimensionKind::Constant(c)) => Some(u64::from(c.size.max(1).ilog2())),
        _ => None,
    }
}

fn dtype(ty: Option<&proto::ValueType>) -> Option<DType> {
    match &ty?.kind {
        Some(ValueKind::Tensor(t)) => value::dtype_of(t).ok(),
        Some(ValueKind::State(s)) => dtype(s.wrapped_type.as_deref()),
        _ => None,
    }
}

fn mixed(kinds: BTreeSet<String>) -> Option<String> {
    let all: Vec<String> = kinds.into_iter().collect();
    match all.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        _ => Some(format!("Mixed ({})", all.join(", "))),
    }
}
