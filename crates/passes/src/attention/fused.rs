//! Attention as one op.

use russet_ir::ops::{Add, Mul, ScaledDotProductAttention, Transpose};
use russet_ir::{Edit, Graph, Op, Tensor, Value};

use super::pattern::{Key, Products};
use crate::{Effect, Pass, Skip};

/// Makes `scaled_dot_product_attention` (iOS 18) of what is not taken apart by heads: heads that
/// are turned by their places, or share keys.
pub struct FuseAttention;

impl Pass for FuseAttention {
    fn name(&self) -> &'static str {
        "fuse-attention"
    }

    fn reason(&self) -> &'static str {
        "Core ML runs it as one op, which need not store the scores"
    }

    fn effect(&self) -> Effect {
        Effect::Reorders
    }

    fn rewrite<'g>(&self, g: &'g Graph, at: Value) -> Result<Edit<'g>, Skip> {
        let found = Products::ending_at(g, at).ok_or(Skip::NoMatch)?;
        let shape = g.shape(found.query);
        let width = shape.last().and_then(russet_ir::Dim::fixed).ok_or(Skip::NoMatch)?;
        let dtype = g.ty(found.query).tensor().ok_or(Skip::NoMatch)?.dtype;
        if shape.len() < 3 || shape.len() > 4 {
            return Err(Skip::NoMatch);
        }
        let name = &g.value(at).name;
        let mut edit = Edit::of(g);
        let mut query = found.query;
        // The op has a scale of its own.
        let rest = found.scale.unwrap_or(1.0) * (width as f32).sqrt();
        if (rest - 1.0).abs() > 1e-6 {
            let factor = Tensor::f32(vec![], &[rest]).cast(dtype);
            let factor = edit.constant(factor, &format!("{name}_scale"));
            query = edit.push(Mul { x: query, y: factor }, &format!("{name}_query"))?;
        }
        let key = match found.key {
            Key::Rows(v) => v,
            Key::Columns(v) => turned(&mut edit, g, v, &format!("{name}_key"))?,
        };
        let mut masks = found.masks.into_iter();
        let mut mask = masks.next();
        for other in masks {
            let sum = Add { x: mask.unwrap_or(other), y: other };
            mask = Some(edit.push(sum, &format!("{name}_mask"))?);
        }
        let op = ScaledDotProductAttention { query, key, value: found.value, attn_mask: mask };
        let new = edit.push(op, name)?;
        if edit.types().tensor(new).ok() != g.ty(at).tensor() {
            return Err(Skip::Blocked("its operands broadcast over heads".into()));
        }
        Ok(edit.replace(at, new))
    }
}

/// `[.., E, S]` as `[.., S, E]`: what it was before it was turned, if it was.
fn turned(edit: &mut Edit<'_>, g: &Graph, v: Value, name: &str) -> Result<Value, Skip> {
    let rank = g.shape(v).len();
    let (x, mut perm) = match g.op(v) {
        Some(Op::Transpose(t)) => (t.x, t.perm.clone()),
        _ => (v, (0..rank as i32).collect()),
    };
    perm.swap(rank - 2, rank - 1);
    match perm.iter().copied().eq(0..rank as i32) {
        true => Ok(x),
        false => Ok(edit.push(Transpose { x, perm }, name)?),
    }
}
