//! Channels first: (B, S, C) becomes (B, C, 1, S), the layout the Neural Engine works in.
//!
//! Each rewrite is local. A linear layer becomes a 1x1 convolution between a change of layout and
//! its opposite ([`LinearToConv`]); changes of layout sink through what does not care
//! ([`SinkLayout`]) until they meet their opposites and both go ([`CancelLayout`]).

use russet_ir::ops::{Conv, ExpandDims, Squeeze, Transpose};
use russet_ir::{Edit, Graph, Op, OpError, Type, Value};

use crate::{Effect, Pass, Skip};

/// (B, S, C) to (B, C, 1, S).
pub(crate) fn to_channels_first(
    edit: &mut Edit<'_>,
    x: Value,
    name: &str,
) -> Result<Value, OpError> {
    let t = edit.push(Transpose { x, perm: vec![0, 2, 1] }, &format!("{name}_bcs"))?;
    edit.push(ExpandDims { x: t, axes: vec![2] }, &format!("{name}_bc1s"))
}

/// (B, C, 1, S) to (B, S, C).
pub(crate) fn from_channels_first(
    edit: &mut Edit<'_>,
    x: Value,
    name: &str,
) -> Result<Value, OpError> {
    let t = edit.push(Squeeze { x, axes: Some(vec![2]) }, &format!("{name}_bcs"))?;
    edit.push(Transpose { x: t, perm: vec![0, 2, 1] }, name)
}

/// Turns linear layers on (B, S, C) into 1x1 convolutions on (B, C, 1, S).
pub struct LinearToConv;

impl Pass for LinearToConv {
    fn name(&self) -> &'static str {
        "linear-to-conv"
    }

    fn reason(&self) -> &'static str {
        "the Neural Engine's fast path is a 1x1 convolution over channels"
    }

    fn effect(&self) -> Effect {
        Effect::Reorders
    }

    fn rewrite<'g>(&self, g: &'g Graph, at: Value) -> Result<Edit<'g>, Skip> {
        let Some(Op::Linear(op)) = g.op(at) else { return Err(Skip::NoMatch) };
        if g.shape(op.x).len() != 3 {
            return Err(Skip::Blocked(format!("its input has rank {}", g.shape(op.x).len())));
        }
        let Some(weight) = g.constant(op.weight) else {
            return Err(Skip::Blocked("its weight is computed".into()));
        };
        let name = &g.value(at).name;
        let mut edit = Edit::of(g);
        let x = to_channels_first(&mut edit, op.x, &format!("{name}_x"))?;
        let kernel = weight.reshaped(vec![weight.shape[0], weight.shape[1], 1, 1]);
        let weight = edit.constant(kernel, &g.value(op.weight).name);
        let conv = edit.push(Conv::pointwise(x, weight, op.bias), &format!("{name}_conv"))?;
        let y = from_channels_first(&mut edit, conv, name)?;
        Ok(edit.replace(at, y))
    }
}

/// Moves changes of layout after the elementwise ops that follow them.
pub struct SinkLayout;

impl Pass for SinkLayout {
    fn name(&self) -> &'static str {
        "sink-layout"
    }

    fn reason(&self) -> &'static str {
        "a change of layout that meets its opposite costs nothing"
    }

    fn effect(&self) -> Effect {
        Effect::Exact
    }

    fn rewrite<'g>(&self, g: &'g Graph, at: Value) -> Result<Edit<'g>, Skip> {
        let op = g.op(at).ok_or(Skip::NoMatch)?;
        if !is_elementwise(op) {
            return Err(Skip::NoMatch);
        }
        let operands = op.operands();
        let moving: Vec<Value> = operands.iter().copied().filter(|&v| !is_single(g, v)).collect();
        let first = *moving.first().ok_or(Skip::NoMatch)?;
        let change = Movement::of(g, first).ok_or(Skip::NoMatch)?;
        if !moving.iter().all(|&v| Movement::of(g, v).as_ref() == Some(&change)) {
            return Err(Skip::NoMatch);
        }
        if !moving.iter().all(|&v| g.shape(v) == g.shape(first)) {
            return Err(Skip::NoMatch);
        }
        if let Some(&v) = moving.iter().find(|&&v| !all_readers_let_pass(g, v)) {
            let why = format!("%{} keeps its change of layout for another reader", g.value(v).name);
            return Err(Skip::NoGain(why));
        }
        let mut edit = Edit::of(g);
        let mut moved = op.clone();
        moved.map_values(&mut |v| if is_single(g, v) { v } else { source(g, v) });
        let name = &g.value(at).name;
        let inner = edit.push(moved, &format!("{name}_moved"))?;
        let outer = edit.push(change.on(inner), name)?;
        Ok(moving.into_iter().fold(edit.replace(at, outer), Edit::keep))
    }
}

/// Is every reader of a moved value one that sinks too, or a change of layout it may meet?
fn all_readers_let_pass(g: &Graph, v: Value) -> bool {
    g.users(v).iter().all(|&id| {
        let op = &g.node(id).op;
        is_elementwise(op) || matches!(op, Op::Transpose(_) | Op::ExpandDims(_) | Op::Squeeze(_))
    })
}

/// A scalar constant, or a constant of one element: it has no layout.
fn is_single(g: &Graph, v: Value) -> bool {
    g.constant(v).is_some_and(|t| t.n_elements() == 1 && t.shape.is_empty())
}

/// A change of layout as an op, its operand aside.
#[derive(Debug, Clone, PartialEq)]
enum Movement {
    Transpose(Vec<i32>),
    Squeeze(Vec<i32>),
}

impl Movement {
    fn of(g: &Graph, v: Value) -> Option<Movement> {
        match g.op(v)? {
            Op::Transpose(op) => Some(Movement::Transpose(op.perm.clone())),
            Op::Squeeze(op) => Some(Movement::Squeeze(op.axes.clone()?)),
            _ => None,
        }
    }

    fn on(&self, x: Value) -> Op {
        match self {
            Movement::Transpose(perm) => Transpose { x, perm: perm.clone() }.into(),
            Movement::Squeeze(axes) => Squeeze { x, axes: Some(axes.clone()) }.into(),
        }
    }
}

/// What a movement moves.
fn source(g: &Graph, v: Value) -> Value {
    match g.op(v) {
        Some(Op::Transpose(op)) => op.x,
        Some(Op::Squeeze(op)) => op.x,
        _ => unreachable!("only called on movements"),
    }
}

/// Does the op compute each element from those at the same place?
fn is_elementwise(op: &Op) -> bool {
    matches!(
        op,
        Op::Add(_)
            | Op::Sub(_)
            | Op::Mul(_)
            | Op::RealDiv(_)
            | Op::Maximum(_)
            | Op::Minimum(_)
            | Op::Pow(_)
            | Op::Abs(_)
            | Op::Clip(_)
            | Op::Erf(_)
            | Op::Exp(_)
            | Op::Gelu(_)
            | Op::Relu(_)
            | Op::Rsqrt(_)
            | Op::Sigmoid(_)
            | Op::Silu(_)
            | Op::Sqrt(_)
            | Op::Square(_)
            | Op::Tanh(_)
            | Op::Cast(_)
    )
}

/// Removes changes of layout that undo each other.
pub struct CancelLayout;

impl Pass for CancelLayout {
    fn name(&self) -> &'static str {
        "cancel-layout"
    }

    fn reason(&self) -> &'static str {
        "two changes of layout that undo each other move every element twice for nothing"
    }

    fn effect(&self) -> Effect {
        Effect::Exact
    }

    fn rewrite<'g>(&self, g: &'g Graph, at: Value) -> Result<Edit<'g>, Skip> {
        let (inner, unchanged) = match g.op(at).ok_or(Skip::NoMatch)? {
            Op::Transpose(outer) => {
                let Some(Op::Transpose(inner)) = g.op(outer.x) else { return Err(Skip::NoMatch) };
                let composed = outer.perm.iter().map(|&p| inner.perm.get(p as usize).copied());
                let identity = (0..outer.perm.len() as i32).map(Some);
                if !composed.eq(identity) {
                    return Err(Skip::NoMatch);
                }
                (outer.x, inner.x)
            }
            Op::ExpandDims(outer) => {
                let Some(Op::Squeeze(inner)) = g.op(outer.x) else { return Err(Skip::NoMatch) };
                (outer.x, inner.x)
            }
            Op::Squeeze(outer) => {
                let Some(Op::ExpandDims(inner)) = g.op(outer.x) else { return Err(Skip::NoMatch) };
                (outer.x, inner.x)
            }
            _ => return Err(Skip::NoMatch),
        };
        let same: &Type = g.ty(unchanged);
        if same != g.ty(at) {
            return Err(Skip::NoMatch);
        }
        crate::keeps_interface(g, at, unchanged)?;
        // The inner movement may have other readers; it stays for them.
        Ok(Edit::of(g).replace(at, unchanged).keep(inner))
    }
}
