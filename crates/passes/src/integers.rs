//! Products of integers that stand for floats.

use russet_ir::ops::{ConstexprAffineDequantize, Conv, Matmul, Mul};
use russet_ir::{Edit, Graph, Op, Tensor, Value};

use crate::activation::number;
use crate::{Effect, Pass, Skip};

/// Multiplies by the scales before a product of integers, not behind it: `(a b) (s t)` becomes
/// `(a s) (b t)`, where `t` goes into the compressed weight.
pub struct ScaleFirst;

impl Pass for ScaleFirst {
    fn name(&self) -> &'static str {
        "scale-first"
    }

    fn reason(&self) -> &'static str {
        "sums of products of bytes are beyond fp16, those of the floats they stand for are not"
    }

    fn effect(&self) -> Effect {
        Effect::Reorders
    }

    fn rewrite<'g>(&self, g: &'g Graph, at: Value) -> Result<Edit<'g>, Skip> {
        let Some(Op::Mul(outer)) = g.op(at) else { return Err(Skip::NoMatch) };
        let found = product(g, outer.x).map(|p| (p, outer.y));
        let found = found.or_else(|| product(g, outer.y).map(|p| (p, outer.x)));
        let (product, factor) = found.ok_or(Skip::NoMatch)?;
        let name = &g.value(at).name;
        let mut edit = Edit::of(g);
        let (scale, constant) = scales(g, factor).ok_or(Skip::NoMatch)?;
        let (left, weight, axis) = match product {
            Op::Matmul(op) => (op.x, op.y, -1),
            Op::Conv(op) => (op.x, op.weight, 0),
            _ => return Err(Skip::NoMatch),
        };
        let Some(Op::ConstexprAffineDequantize(bytes)) = g.op(weight) else {
            return Err(Skip::NoMatch);
        };
        let mut left = left;
        if let Some(scale) = scale {
            left = edit.push(Mul { x: left, y: scale }, &format!("{name}_scaled"))?;
        }
        let t = fitting(g, bytes, constant).ok_or(Skip::NoMatch)?;
        let bytes = ConstexprAffineDequantize {
            scale: edit.constant(t, &format!("{name}_scale")),
            axis: if axis < 0 { g.shape(weight).len() as i32 - 1 } else { axis },
            ..bytes.clone()
        };
        let weight = edit.push(bytes, &g.value(weight).name)?;
        let op: Op = match product {
            Op::Matmul(op) => Matmul { x: left, y: weight, ..op.clone() }.into(),
            Op::Conv(op) => Conv { x: left, weight, ..op.clone() }.into(),
            _ => return Err(Skip::NoMatch),
        };
        let new = edit.push(op, name)?;
        if edit.types().tensor(new).ok() != g.ty(at).tensor() {
            return Err(Skip::NoMatch);
        }
        Ok(edit.replace(at, new))
    }
}

/// A product with bytes whose scale is one, which is cast to integers and back.
fn product(g: &Graph, v: Value) -> Option<&Op> {
    let Op::Cast(wide) = g.op(v)? else { return None };
    let Op::Cast(whole) = g.op(wide.x)? else { return None };
    let op = g.op(whole.x)?;
    let weight = match op {
        Op::Matmul(op) if !op.transpose_x && !op.transpose_y => op.y,
        Op::Conv(op) if op.bias.is_none() => op.weight,
        _ => return None,
    };
    let Op::ConstexprAffineDequantize(bytes) = g.op(weight)? else { return None };
    (g.ty(whole.x) == g.ty(v) && number(g, bytes.scale) == Some(1.0)).then_some(op)
}

/// A factor as a number that is computed, if there is one, and a constant.
fn scales(g: &Graph, v: Value) -> Option<(Option<Value>, &Tensor)> {
    if let Some(t) = g.constant(v) {
        return Some((None, t));
    }
    let Op::Mul(op) = g.op(v)? else { return None };
    let (scale, constant) = match (g.constant(op.x), g.constant(op.y)) {
        (None, Some(t)) => (op.x, t),
        (Some(t), None) => (op.y, t),
        _ => return None,
    };
    let single = g.ty(scale).tensor()?.n_elements() == Some(1);
    (single && g.shape(scale).len() <= 1).then_some((Some(scale), constant))
}

/// The constant as a scale of the bytes: one, or one for each row or column that has a zero point
/// of its own.
fn fitting(g: &Graph, bytes: &ConstexprAffineDequantize, t: &Tensor) -> Option<Tensor> {
    let zeros = g.constant(bytes.zero_point)?;
    let flat = match t.n_elements() {
        1 => vec![],
        n => vec![n],
    };
    let same = zeros.shape == flat || zeros.shape.is_empty();
    same.then(|| t.reshaped(flat))
}
