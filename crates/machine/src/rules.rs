//! What must hold for an op to run on the Neural Engine.
//!
//! The sentence in `says` is what a user reads. Sources are in `docs/hardware.md`.

use russet_ir::{DType, Dim, Graph, Node, Op, TensorType, Type, Value};

use crate::Profile;

/// One condition, by name.
pub struct Rule {
    pub id: &'static str,
    pub says: &'static str,
    pub holds: fn(&Graph, &Node, &Profile) -> bool,
}

/// Every rule, in the order in which they are asked; the first that fails is the reason given.
pub const RULES: &[Rule] = &[
    Rule {
        id: "op-known",
        says: "an op this version does not know is assumed to run on the CPU",
        holds: |_, node, _| !matches!(node.op, Op::Opaque(_)),
    },
    Rule {
        id: "no-control-flow",
        says: "`cond` and `while_loop` have no Neural Engine form",
        holds: |_, node, _| !matches!(node.op, Op::Cond(_)),
    },
    Rule {
        id: "no-gather",
        says: "`gather` runs on the CPU; at the start of a graph that is harmless",
        holds: |_, node, _| !matches!(node.op, Op::Gather(_)),
    },
    Rule {
        id: "no-shape-arithmetic",
        says: "reading a shape while running is CPU work",
        holds: |_, node, _| !matches!(node.op, Op::Shape(_)),
    },
    Rule {
        id: "static-slice",
        says: "a slice needs begin and end known when the program is written",
        holds: |g, node, _| match &node.op {
            Op::SliceByIndex(op) => g.constant(op.begin).is_some() && g.constant(op.end).is_some(),
            Op::SliceBySize(op) => g.constant(op.begin).is_some() && g.constant(op.size).is_some(),
            Op::Reshape(op) => g.constant(op.shape).is_some(),
            _ => true,
        },
    },
    Rule {
        id: "no-logic",
        says: "logical ops have no Neural Engine form",
        holds: |_, node, _| !matches!(node.op, Op::LogicalAnd(_) | Op::LogicalNot(_)),
    },
    Rule {
        id: "fp16",
        says: "the Neural Engine computes in fp16; fp32 and integer ops run elsewhere",
        holds: |g, node, _| {
            let float16 = |t: &TensorType| matches!(t.dtype, DType::F16 | DType::Bool);
            let operands = node.op.operands();
            let inputs = operands.iter().filter(|&&v| !is_weight(g, v));
            let mut tensors = inputs.chain(&node.outputs).filter_map(|&v| g.ty(v).tensor());
            match &node.op {
                // Between fp16 and fp32 the engine converts by itself.
                Op::Cast(_) => tensors.all(|t| float16(t) || t.dtype == DType::F32),
                _ => tensors.all(float16),
            }
        },
    },
    Rule {
        id: "rank-max-5",
        says: "a tensor has at most five dimensions",
        holds: |g, node, _| tensors(g, node).all(|t| t.rank() <= 5),
    },
    Rule {
        id: "extent-max",
        says: "height, width and depth stay within the chip's limit",
        holds: |g, node, chip| {
            let limit = chip.engines.ane.extent_max.value as u64;
            let spatial = |t: &TensorType| {
                let channels = t.rank().saturating_sub(2);
                t.shape[t.rank() - channels.min(3)..].iter().all(|d| match d {
                    Dim::Fixed(n) => *n <= limit,
                    Dim::Symbol(_) => true,
                })
            };
            tensors(g, node).all(spatial)
        },
    },
];

/// Is it in memory when the program begins, compressed or not?
fn is_weight(g: &Graph, v: Value) -> bool {
    g.op(v).is_some_and(|op| op.is_const() || op.is_constexpr())
}

/// Types of what the node reads and makes, weights aside.
fn tensors<'g>(g: &'g Graph, node: &'g Node) -> impl Iterator<Item = &'g TensorType> {
    let operands = node.op.operands().into_iter().filter(|&v| !is_weight(g, v));
    let all = operands.chain(node.outputs.iter().copied());
    all.filter_map(|v| g.ty(v).tensor())
}

/// The program as a whole: why none of it may run on the Neural Engine.
pub(crate) fn veto(g: &Graph) -> Option<&'static str> {
    let open = g.symbols.ranges.values().next().is_some();
    if open {
        return Some("an input of open range keeps the program off the Neural Engine");
    }
    let states = g.inputs().iter().filter(|&&v| matches!(g.ty(v), Type::State(_))).count();
    (states > 1).then_some("more than one state fails on the Neural Engine")
}
