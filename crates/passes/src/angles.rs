//! Angles that grow with a time or a place.
//!
//! A diffusion model takes sines of a thousand times its rates; in fp16 such an angle is off by up to
//! half a radian, which leaves nothing of the sine. These few numbers stay in fp32, whatever runs them.

use russet_ir::{Graph, NodeId, Op, Value};

/// Ops between an input and a sine, at most: a hostile graph has very many paths.
const DEPTH_MAX: usize = 8;
/// Readers that are looked at.
const READERS_MAX: usize = 8;

/// Does the op make an angle of inputs and constants alone, or its sine or cosine?
pub fn is_one(g: &Graph, op: &Op, outputs: &[Value]) -> bool {
    match (turn(op), outputs) {
        (Some(angle), _) => is_of_inputs(g, angle, 0),
        (None, &[made]) => is_plain(op) && is_of_inputs(g, made, 0) && is_for_turns(g, made, 0),
        (None, _) => false,
    }
}

/// What a sine or cosine is taken of.
fn turn(op: &Op) -> Option<Value> {
    match op {
        Op::Sin(op) => Some(op.x),
        Op::Cos(op) => Some(op.x),
        _ => None,
    }
}

/// Does the op do to each number what it does to every other?
fn is_plain(op: &Op) -> bool {
    matches!(
        op,
        Op::Add(_)
            | Op::Sub(_)
            | Op::Mul(_)
            | Op::RealDiv(_)
            | Op::Cast(_)
            | Op::Reshape(_)
            | Op::ExpandDims(_)
            | Op::Squeeze(_)
    )
}

fn is_of_inputs(g: &Graph, v: Value, depth: usize) -> bool {
    if g.constant(v).is_some() {
        return true;
    }
    match g.op(v) {
        None => true,
        Some(op) => {
            let operands = || op.operands().into_iter().all(|x| is_of_inputs(g, x, depth + 1));
            depth < DEPTH_MAX && is_plain(op) && operands()
        }
    }
}

/// Do only sines and cosines read it, maybe through other plain ops?
fn is_for_turns(g: &Graph, v: Value, depth: usize) -> bool {
    let readers = g.users(v);
    let turns = |id: &NodeId| {
        let node = g.node(*id);
        let onward = || node.outputs.iter().all(|&x| is_for_turns(g, x, depth + 1));
        turn(&node.op).is_some() || (is_plain(&node.op) && onward())
    };
    depth < DEPTH_MAX
        && (1..=READERS_MAX).contains(&readers.len())
        && !g.is_output(v)
        && readers.iter().all(turns)
}
