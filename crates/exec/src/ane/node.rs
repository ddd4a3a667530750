//! Which rules a node is subject to: those that depend on what stands around it.

use russet_ir::{Graph, Op, Value};

use super::Rule;
use crate::kernels::rounding::Rounding;

/// `rounding` with the rules that do not concern this op taken away.
pub(crate) fn rounding(graph: &Graph, op: &Op, rounding: Rounding) -> Rounding {
    let Rounding::Ane(mut rules) = rounding else { return rounding };
    let follows_product = match op {
        Op::Gelu(op) => after_product(graph, op.x),
        Op::Silu(op) => after_product(graph, op.x),
        Op::Sigmoid(op) => after_product(graph, op.x),
        Op::Tanh(op) => after_product(graph, op.x),
        _ => false,
    };
    // A product takes its activation along, and so keeps the rule.
    if !follows_product && !is_product(op) {
        rules = rules.without(Rule::FusedActivation);
    }
    if !matches!(op, Op::Pow(op) if is_two(graph, op.x)) {
        rules = rules.without(Rule::PowOfTwo);
    }
    if let Op::Add(_) = op
        && !rules.has(Rule::Fp16Residual)
        && is_residual(graph, op)
    {
        rules = rules.without(Rule::Fp16Storage);
    }
    Rounding::Ane(rules)
}

fn is_product(op: &Op) -> bool {
    matches!(op, Op::Linear(_) | Op::Matmul(_) | Op::Conv(_) | Op::ConvTranspose(_) | Op::Einsum(_))
}

fn after_product(graph: &Graph, v: Value) -> bool {
    graph.op(v).is_some_and(is_product)
}

fn is_two(graph: &Graph, v: Value) -> bool {
    let numbers = graph.constant(v).filter(|t| t.n_elements() <= 1 << 16);
    numbers.is_some_and(|t| t.dtype.is_float() && t.to_f32().iter().all(|&x| x == 2.0))
}

/// Is this a sum that carries the residual stream on: of two results of one type, one of which is
/// read by others too? One that a product reads is none, since the product needs fp16.
pub(crate) fn is_residual(graph: &Graph, op: &Op) -> bool {
    let Op::Add(add) = op else { return false };
    let computed = |v: Value| graph.weight(v).is_none();
    let read_twice = |v: Value| graph.users(v).len() > 1;
    let sum = graph.users(add.x).iter().find(|&&id| graph.node(id).op == *op);
    let Some(&out) = sum.and_then(|&id| graph.node(id).outputs.first()) else { return false };
    graph.ty(add.x) == graph.ty(add.y)
        && computed(add.x)
        && computed(add.y)
        && (read_twice(add.x) || read_twice(add.y))
        && !graph.users(out).iter().any(|&id| is_product(&graph.node(id).op))
}
