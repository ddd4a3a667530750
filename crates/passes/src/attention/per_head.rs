//! Attention, head by head, on channels-first operands.

use russet_ir::ops::{Add, Concat, Matmul, Mul, Reshape, Softmax, Split};
use russet_ir::{Dim, Edit, Graph, Op, Tensor, Value};

use super::pattern::{Key, Products};
use crate::layout::{from_channels_first, to_channels_first};
use crate::{Effect, Pass, Skip};

/// Cuts multi-head attention into one small attention per head, and scales the query first.
///
/// (B, C, 1, S) is viewed as (B, H, D, S) and split along the heads; scores come from a product
/// that contracts D where it lies, so nothing is transposed. Scaling the query before the product
/// keeps scores small, and lets the factor go into the query's weights.
pub struct AttentionPerHead;

/// Heads beyond which they are not taken apart; models have up to about a hundred.
const N_HEADS_MAX: u64 = 256;

impl Pass for AttentionPerHead {
    fn name(&self) -> &'static str {
        "attention-per-head"
    }

    fn reason(&self) -> &'static str {
        "small per-head products stay on chip, and early scaling keeps scores within fp16"
    }

    fn effect(&self) -> Effect {
        Effect::Reorders
    }

    fn rewrite<'g>(&self, g: &'g Graph, at: Value) -> Result<Edit<'g>, Skip> {
        let attention = Attention::ending_at(g, at).ok_or(Skip::NoMatch)?;
        if attention.n_heads > N_HEADS_MAX {
            let why = format!("{} heads would be as many small ops", attention.n_heads);
            return Err(Skip::Blocked(why));
        }
        let mut edit = Edit::of(g);
        let y = attention.per_head(&mut edit, &g.value(at).name)?;
        let y = from_channels_first(&mut edit, y, &g.value(at).name)?;
        Ok(edit.replace(at, y))
    }
}

/// softmax(Q K^T * scale + masks) V with heads merged again.
struct Attention {
    /// (B, S, C) each, before they are split into heads.
    query: Value,
    key: Value,
    value: Value,
    scale: Option<f32>,
    /// Added to the scores, (B or 1, H or 1, S or 1, S).
    masks: Vec<Value>,
    batch: u64,
    n_heads: u64,
    head_size: u64,
}

impl Attention {
    /// The attention whose merged heads are `at`.
    fn ending_at(g: &Graph, at: Value) -> Option<Attention> {
        let Op::Reshape(merge) = g.op(at)? else { return None };
        let Op::Transpose(t) = g.op(merge.x)? else { return None };
        if t.perm != [0, 2, 1, 3] {
            return None;
        }
        let Products { query, key, value, scale, masks } = Products::ending_at(g, t.x)?;
        let (query, shape) = heads(g, query)?;
        let (key, key_shape) = match key {
            Key::Rows(v) => heads(g, v)?,
            Key::Columns(v) => turned_heads(g, v)?,
        };
        let (value, value_shape) = heads(g, value)?;
        let [batch, n_heads, head_size] = shape;
        // The merged result has as many channels as there are heads times their size.
        let merged = g.shape(at).to_vec();
        let same = shape == key_shape && shape == value_shape;
        let hidden = n_heads.checked_mul(head_size).filter(|&n| i32::try_from(n).is_ok())?;
        let whole = merged.len() == 3 && merged[2] == Dim::Fixed(hidden);
        i32::try_from(batch).ok()?;
        (same && whole).then_some(Attention {
            query,
            key,
            value,
            scale,
            masks,
            batch,
            n_heads,
            head_size,
        })
    }

    /// The same attention on (B, C, 1, S), head by head.
    fn per_head(&self, edit: &mut Edit<'_>, name: &str) -> Result<Value, Skip> {
        let mut query = to_channels_first(edit, self.query, &format!("{name}_query"))?;
        if let Some(scale) = self.scale {
            let dtype = edit.types().tensor(query).map_err(|_| Skip::NoMatch)?.dtype;
            let scale = Tensor::f32(vec![], &[scale]).cast(dtype);
            let scale = edit.constant(scale, &format!("{name}_scale"));
            query = edit.push(Mul { x: query, y: scale }, &format!("{name}_query_scaled"))?;
        }
        let key = to_channels_first(edit, self.key, &format!("{name}_key"))?;
        let value = to_channels_first(edit, self.value, &format!("{name}_value"))?;
        let [b, h, d] = [self.batch, self.n_heads, self.head_size].map(|n| n as i32);
        let split_shape = Tensor::i32(vec![4], &[b, h, d, -1]);
        let split_shape = edit.constant(split_shape, &format!("{name}_heads_shape"));
        let heads_of = |edit: &mut Edit<'_>, x: Value, part: &str| {
            let whole = Reshape { x, shape: split_shape };
            let whole = edit.push(whole, &format!("{name}_{part}_heads"))?;
            split(edit, whole, h, &format!("{name}_{part}_head"))
        };
        let queries = heads_of(edit, query, "query")?;
        let keys = heads_of(edit, key, "key")?;
        let values = heads_of(edit, value, "value")?;
        let masks = self.masks_per_head(edit, name)?;
        let mut outputs = Vec::new();
        for i in 0..self.n_heads as usize {
            let named = |part: &str| format!("{name}_{part}_{i}");
            // (B, 1, D, Sq) and (B, 1, D, Sk) to (B, 1, Sq, Sk)
            let product =
                Matmul { x: queries[i], y: keys[i], transpose_x: true, transpose_y: false };
            let mut scores = edit.push(product, &named("scores"))?;
            for mask in &masks {
                scores = edit.push(Add { x: scores, y: mask[i] }, &named("masked"))?;
            }
            let weights = edit.push(Softmax { x: scores, axis: -1 }, &named("weights"))?;
            // (B, 1, D, Sk) and (B, 1, Sq, Sk) to (B, 1, D, Sq)
            let sum = Matmul { x: values[i], y: weights, transpose_x: false, transpose_y: true };
            outputs.push(edit.push(sum, &named("head"))?);
        }
        let joined = Concat { values: outputs, axis: 1, interleave: false };
        let joined = edit.push(joined, &format!("{name}_joined"))?;
        let shape = Tensor::i32(vec![4], &[b, h * d, 1, -1]);
        let shape = edit.constant(shape, &format!("{name}_merged_shape"));
        Ok(edit.push(Reshape { x: joined, shape }, &format!("{name}_bc1s"))?)
    }

    /// For each mask, what each head adds.
    fn masks_per_head(&self, edit: &mut Edit<'_>, name: &str) -> Result<Vec<Vec<Value>>, Skip> {
        let h = self.n_heads as usize;
        let mut all = Vec::new();
        for (k, &mask) in self.masks.iter().enumerate() {
            let shape = edit.types().tensor(mask).map(|t| t.shape.clone()).unwrap_or_default();
            let per_head =
                shape.len() >= 3 && h > 1 && shape[shape.len() - 3] == Dim::Fixed(self.n_heads);
            all.push(match per_head {
                true if shape.len() == 4 => {
                    split(edit, mask, h as i32, &format!("{name}_mask{k}"))?
                }
                true => return Err(Skip::Blocked("a mask by head has rank 3".into())),
                false => vec![mask; h],
            });
        }
        Ok(all)
    }
}

/// (B, S, C) split into heads as (B, H, S, D): what was split, and B, H, D.
fn heads(g: &Graph, v: Value) -> Option<(Value, [u64; 3])> {
    let Op::Transpose(t) = g.op(v)? else { return None };
    if t.perm == [0, 2, 1, 3] { split_of(g, t.x) } else { None }
}

/// (B, S, C) split into (B, S, H, D).
fn split_of(g: &Graph, v: Value) -> Option<(Value, [u64; 3])> {
    let Op::Reshape(r) = g.op(v)? else { return None };
    let (from, [b, s, h, d]) = (g.shape(r.x), g.shape(v)) else { return None };
    let same_rows = from.len() == 3 && from[0] == *b && from[1] == *s;
    let numbers = [b.fixed()?, h.fixed()?, d.fixed()?];
    same_rows.then_some((r.x, numbers))
}

/// The same of heads that are turned, (B, H, D, S).
fn turned_heads(g: &Graph, v: Value) -> Option<(Value, [u64; 3])> {
    match g.op(v)? {
        // At once with their split.
        Op::Transpose(t) if t.perm == [0, 2, 3, 1] => split_of(g, t.x),
        Op::Transpose(t) if t.perm == [0, 1, 3, 2] => heads(g, t.x),
        // Batches and heads as one while they are turned, as exporters write torch's own attention.
        Op::Reshape(apart) => {
            let Op::Transpose(t) = g.op(apart.x)? else { return None };
            let Op::Reshape(one) = g.op(t.x)? else { return None };
            let (before, after) = (g.shape(one.x), g.shape(v));
            let ([b, h, s, d], [b2, h2, d2, s2]) = (before, after) else { return None };
            let rows = g.shape(t.x).get(1..) == Some(&[s.clone(), d.clone()]);
            let same = t.perm == [0, 2, 1] && rows && (b, h, s, d) == (b2, h2, s2, d2);
            if same { heads(g, one.x) } else { None }
        }
        _ => None,
    }
}

/// Cuts (B, H, ..) into H pieces (B, 1, ..).
fn split(edit: &mut Edit<'_>, x: Value, n: i32, name: &str) -> Result<Vec<Value>, Skip> {
    if n == 1 {
        return Ok(vec![x]);
    }
    let op = Split { x, num_splits: Some(n), split_sizes: None, axis: 1 };
    Ok(edit.push_all(op, name)?)
}
