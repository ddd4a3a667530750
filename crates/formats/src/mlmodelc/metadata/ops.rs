//! How often each op occurs, under the name and version Apple gives it.

use std::collections::BTreeMap;

use russet_ir::Opset;

use super::with_opsets;
use crate::mlpackage::proto;

/// Ops that have one version for ever; seen without one in programs of iOS 17.
const UNCHANGED: &[&str] =
    &["identity", "pad", "range_1d", "select", "shape", "split", "stack", "tile"];

/// Ops that are not changed in iOS 16: those that only move numbers. Seen without a version there:
/// the first five.
const UNCHANGED_IN_16: &[&str] = &[
    "concat",
    "expand_dims",
    "slice_by_index",
    "squeeze",
    "transpose",
    "reverse",
    "slice_by_size",
    "reverse_sequence",
    "sliding_windows",
];

/// Ops that iOS 17 changed. From the definitions in `coremltools` 9.0, and those that were seen
/// with this version besides: arithmetic on two operands, comparisons, `floor`, `concat`.
const CHANGED_IN_17: &[&str] = &[
    "abs",
    "add",
    "batch_norm",
    "cast",
    "ceil",
    "clamped_relu",
    "clip",
    "concat",
    "conv",
    "conv_transpose",
    "crop_resize",
    "dequantize",
    "elu",
    "equal",
    "expand_dims",
    "floor",
    "floor_div",
    "gather",
    "gather_along_axis",
    "gather_nd",
    "greater",
    "greater_equal",
    "gru",
    "instance_norm",
    "inverse",
    "l2_norm",
    "layer_norm",
    "leaky_relu",
    "less",
    "less_equal",
    "linear",
    "linear_activation",
    "local_response_norm",
    "log",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "lstm",
    "matmul",
    "maximum",
    "minimum",
    "mod",
    "mul",
    "non_maximum_suppression",
    "not_equal",
    "pow",
    "prelu",
    "quantize",
    "real_div",
    "reduce_argmax",
    "reduce_argmin",
    "resample",
    "reshape",
    "reshape_like",
    "resize",
    "reverse",
    "reverse_sequence",
    "rnn",
    "round",
    "rsqrt",
    "scaled_tanh",
    "scatter",
    "scatter_along_axis",
    "scatter_nd",
    "sigmoid_hard",
    "sign",
    "slice_by_index",
    "slice_by_size",
    "sliding_windows",
    "softplus_parametric",
    "square",
    "squeeze",
    "sub",
    "thresholded_relu",
    "topk",
    "transpose",
];

/// Constants are not counted.
pub fn histogram(functions: &[proto::Function]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for (opset, ops) in with_opsets(functions) {
        let opset = opset.parse().unwrap_or(Opset::Ios15);
        for op in ops.into_iter().filter(|op| op.r#type != "const") {
            *counts.entry(name(&op.r#type, opset)).or_default() += 1;
        }
    }
    counts
}

/// `slice_by_index` is `SliceByIndex`, from iOS 17 on `Ios17.sliceByIndex`.
fn name(op: &str, opset: Opset) -> String {
    let mut camel = String::new();
    let mut upper = version(op, opset).is_none();
    for c in op.chars() {
        match (c, upper) {
            ('_', _) => upper = true,
            (c, true) => {
                camel.extend(c.to_uppercase());
                upper = false;
            }
            (c, false) => camel.push(c),
        }
    }
    match version(op, opset) {
        Some(version) => format!("{version}.{camel}"),
        None => camel,
    }
}

/// Of which release the definition of `op` is that a program of `opset` uses; `None` of the first.
fn version(op: &str, opset: Opset) -> Option<&'static str> {
    if UNCHANGED.contains(&op) {
        return None;
    }
    match opset {
        Opset::Ios15 => None,
        Opset::Ios16 if UNCHANGED_IN_16.contains(&op) => None,
        Opset::Ios17 if CHANGED_IN_17.contains(&op) => Some("Ios17"),
        Opset::Ios16 | Opset::Ios17 => Some("Ios16"),
        // Seen for one op only; no op is new in iOS 26.
        Opset::Ios18 | Opset::Ios26 => Some("Ios18"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_apple_shows() {
        for (op, opset, wanted) in [
            ("slice_by_index", Opset::Ios15, "SliceByIndex"),
            ("slice_by_index", Opset::Ios16, "SliceByIndex"),
            ("slice_by_index", Opset::Ios17, "Ios17.sliceByIndex"),
            ("constexpr_affine_dequantize", Opset::Ios17, "Ios16.constexprAffineDequantize"),
            ("softmax", Opset::Ios17, "Ios16.softmax"),
            ("range_1d", Opset::Ios17, "Range1d"),
            ("relu", Opset::Ios18, "Ios18.relu"),
        ] {
            assert_eq!(name(op, opset), wanted);
        }
    }
}
