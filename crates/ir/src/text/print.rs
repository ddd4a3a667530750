//! A program as text.

use std::fmt::Write;

use half::{bf16, f16};

use super::{Store, float};
use crate::graph::{BlockId, NodeId};
use crate::{Arg, Attr, DType, Graph, Op, Opset, Origin, Program, Tensor, Value};

/// Elements up to which a constant is printed as numbers.
const INLINE_MAX: u64 = 16;

/// What happens to constants too long to read.
pub enum Weights<'s> {
    /// Printed as `hex"…"`: the text stands alone.
    Inline,
    /// Printed as `#hash` and kept in the store.
    Stored(&'s mut Store),
    /// Printed as `#hash`: for people.
    Named,
}

/// The whole program.
pub fn print(program: &Program, mut weights: Weights<'_>) -> String {
    let mut out = format!("program {}\n", program.opset);
    for (key, value) in &program.metadata {
        let _ = writeln!(out, "meta {key:?} = {value:?}");
    }
    for graph in &program.functions {
        graph_into(&mut out, graph, program.opset, &mut weights);
    }
    out
}

/// One function.
pub fn print_graph(graph: &Graph, opset: Opset, mut weights: Weights<'_>) -> String {
    let mut out = String::new();
    graph_into(&mut out, graph, opset, &mut weights);
    out
}

/// One node on a line, as findings show it; long constants by name only.
pub fn node(graph: &Graph, id: NodeId, opset: Opset) -> String {
    let mut out = String::new();
    node_into(&mut out, graph, id, opset, &mut None, 0);
    out.truncate(out.trim_end().len());
    out
}

/// An attribute as the text form shows it.
pub fn attr(attr: &Attr) -> String {
    attr.to_string()
}

fn graph_into(out: &mut String, graph: &Graph, opset: Opset, weights: &mut Weights<'_>) {
    let _ = write!(out, "func {}(", graph.name);
    parameters(out, graph, graph.inputs());
    out.push(')');
    symbols(out, graph);
    out.push_str(" {\n");
    block_into(out, graph, BlockId::BODY, opset, &mut Some(weights), 1);
    let _ = writeln!(out, "}} -> {}", results(graph, graph.outputs()));
}

fn parameters(out: &mut String, graph: &Graph, inputs: &[Value]) {
    for (i, &v) in inputs.iter().enumerate() {
        let data = graph.value(v);
        let _ = write!(out, "{}%{}: {}", if i > 0 { ", " } else { "" }, data.name, data.ty);
    }
}

fn symbols(out: &mut String, graph: &Graph) {
    let mut clauses = Vec::new();
    if let Some(first) = graph.symbols.enumerated.first() {
        let names: Vec<String> = first.keys().map(ToString::to_string).collect();
        let row = |values: Vec<String>| match values.as_slice() {
            [one] => one.clone(),
            many => format!("({})", many.join(", ")),
        };
        let rows: Vec<String> = graph
            .symbols
            .enumerated
            .iter()
            .map(|b| row(b.values().map(ToString::to_string).collect()))
            .collect();
        clauses.push(format!("{} in [{}]", row(names), rows.join(", ")));
    }
    for (symbol, (low, high)) in &graph.symbols.ranges {
        let high = high.map(|h| format!("={h}")).unwrap_or_default();
        clauses.push(format!("{symbol} in {low}..{high}"));
    }
    if !clauses.is_empty() {
        let _ = write!(out, " where {}", clauses.join(", "));
    }
}

fn results(graph: &Graph, outputs: &[Value]) -> String {
    let names: Vec<String> = outputs.iter().map(|&v| format!("%{}", graph.value(v).name)).collect();
    match names.as_slice() {
        [one] => one.clone(),
        many => format!("({})", many.join(", ")),
    }
}

type MaybeWeights<'a, 's> = Option<&'a mut Weights<'s>>;

fn block_into(
    out: &mut String,
    graph: &Graph,
    block: BlockId,
    opset: Opset,
    weights: &mut MaybeWeights<'_, '_>,
    depth: usize,
) {
    for &id in &graph.block(block).nodes {
        out.push_str(&"  ".repeat(depth));
        node_into(out, graph, id, opset, weights, depth);
    }
}

fn node_into(
    out: &mut String,
    graph: &Graph,
    id: NodeId,
    opset: Opset,
    weights: &mut MaybeWeights<'_, '_>,
    depth: usize,
) {
    let node = graph.node(id);
    let names: Vec<String> =
        node.outputs.iter().map(|&v| format!("%{}", graph.value(v).name)).collect();
    if !names.is_empty() {
        let _ = write!(out, "{} = ", names.join(", "));
    }
    let _ = write!(out, "{}(", node.op.name());
    for (i, (param, arg)) in node.op.args(opset).into_iter().enumerate() {
        let _ = write!(out, "{}{param}=", if i > 0 { ", " } else { "" });
        match arg {
            Arg::Value(v) => out.push_str(&results(graph, &[v])),
            Arg::Values(vs) => {
                let all: Vec<String> = vs.iter().map(|&v| results(graph, &[v])).collect();
                let _ = write!(out, "({})", all.join(", "));
            }
            Arg::Attr(Attr::Tensor(t)) => out.push_str(&tensor(&t, weights)),
            Arg::Attr(a) => out.push_str(&attr(&a)),
        }
    }
    out.push(')');
    if let Op::Opaque(op) = &node.op {
        let types: Vec<String> = op.types.iter().map(ToString::to_string).collect();
        let types = if types.is_empty() { "()".into() } else { types.join(", ") };
        let _ = write!(out, " : {types}");
    }
    origin(out, &node.origin);
    for &block in &node.blocks {
        out.push_str(" {");
        if !graph.block(block).inputs.is_empty() {
            out.push_str(" |");
            parameters(out, graph, &graph.block(block).inputs);
            out.push('|');
        }
        out.push('\n');
        block_into(out, graph, block, opset, weights, depth + 1);
        let outputs = results(graph, &graph.block(block).outputs);
        let _ = write!(out, "{}}} -> {outputs}", "  ".repeat(depth));
    }
    out.push('\n');
}

fn origin(out: &mut String, origin: &Origin) {
    if let Some(source) = &origin.source {
        let _ = write!(out, " from {source:?}");
    }
    if !origin.passes.is_empty() {
        let _ = write!(out, " by {}", origin.passes.join(", "));
    }
}

/// A constant: its type, then its elements as numbers, bytes or a name.
fn tensor(t: &Tensor, weights: &mut MaybeWeights<'_, '_>) -> String {
    if let Some(strings) = t.as_strings() {
        return format!("{} {strings:?}", t.ty());
    }
    if t.n_elements() <= INLINE_MAX
        && let Some(numbers) = numbers(t)
    {
        return format!("{} [{}]", t.ty(), numbers.join(", "));
    }
    match weights {
        Some(Weights::Stored(store)) => format!("{} #{}", t.ty(), store.add(t)),
        Some(Weights::Inline) => {
            let mut hex = String::with_capacity(2 * t.n_bytes() as usize);
            t.to_bytes().iter().for_each(|b| {
                let _ = write!(hex, "{b:02x}");
            });
            format!("{} hex\"{hex}\"", t.ty())
        }
        Some(Weights::Named) => format!("{} #{}", t.ty(), super::content_name(t)),
        None => t.ty().to_string(),
    }
}

/// The elements in decimal; `None` when a NaN would lose its bits.
fn numbers(t: &Tensor) -> Option<Vec<String>> {
    let bytes = t.to_bytes();
    let words = |width: usize| bytes.chunks_exact(width);
    let all: Vec<String> = match t.dtype {
        DType::Bool => {
            if bytes.iter().any(|&b| b > 1) {
                return None;
            }
            bytes.iter().map(|&b| (b == 1).to_string()).collect()
        }
        DType::F64 => words(8)
            .map(|c| f64::from_le_bytes(c.try_into().expect("eight bytes")))
            .map(|x| float(x, |s| s.parse::<f64>().is_ok_and(|y| y.to_bits() == x.to_bits())))
            .collect(),
        DType::F32 => t.to_f32().into_iter().map(|x| attr(&Attr::Float(x))).collect(),
        DType::F16 => t
            .to_f32()
            .into_iter()
            .map(|x| {
                let bits = f16::from_f32(x).to_bits();
                float(x.into(), |s| s.parse().is_ok_and(|y| f16::from_f32(y).to_bits() == bits))
            })
            .collect(),
        DType::BF16 => t
            .to_f32()
            .into_iter()
            .map(|x| {
                let bits = bf16::from_f32(x).to_bits();
                float(x.into(), |s| s.parse().is_ok_and(|y| bf16::from_f32(y).to_bits() == bits))
            })
            .collect(),
        d if d.is_float() => return None,
        DType::U64 => words(8)
            .map(|c| u64::from_le_bytes(c.try_into().expect("eight bytes")).to_string())
            .collect(),
        _ => t.to_i64()?.iter().map(ToString::to_string).collect(),
    };
    // The bits past the last sub-byte element, and those of a NaN, are not in the numbers.
    let padded = !(t.n_elements() * t.dtype.bits()).is_multiple_of(8);
    (!padded && !all.iter().any(|s| s == "nan")).then_some(all)
}
