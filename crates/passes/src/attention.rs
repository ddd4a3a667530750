//! Attention, head by head, on channels-first operands.

use russet_ir::ops::{Add, Concat, Matmul, Mul, Reshape, Softmax, Split};
use russet_ir::{Dim, Edit, Graph, Op, Tensor, Value};

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
        let Op::Matmul(weighted) = g.op(t.x)? else { return None };
        if t.perm != [0, 2, 1, 3] || weighted.transpose_x || weighted.transpose_y {
            return None;
        }
        let Op::Softmax(softmax) = g.op(weighted.x)? else { return None };
        if !matches!(softmax.axis, -1 | 3) {
            return None;
        }
        let (mut scores, mut scale, mut masks) = (softmax.x, None, Vec::new());
        let product = loop {
            match g.op(scores)? {
                Op::Add(op) => {
                    let (rest, mask) =
                        if makes_scores(g, op.x, 0) { (op.x, op.y) } else { (op.y, op.x) };
                    masks.push(mask);
                    scores = rest;
                }
                Op::Mul(op) if scale.is_none() => {
                    scale = Some(g.constant(op.y)?.item_f32()?);
                    scores = op.x;
                }
                Op::RealDiv(op) if scale.is_none() => {
                    scale = Some(1.0 / g.constant(op.y)?.item_f32()?);
                    scores = op.x;
                }
                Op::Matmul(op) => break op,
                _ => return None,
            }
        };
        if product.transpose_x || !product.transpose_y {
            return None;
        }
        let (query, shape) = heads(g, product.x)?;
        let (key, key_shape) = heads(g, product.y)?;
        let (value, value_shape) = heads(g, weighted.y)?;
        let [batch, n_heads, head_size] = shape;
        // The merged result has as many channels as there are heads times their size.
        let merged = g.shape(at).to_vec();
        let same = shape == key_shape && shape == value_shape;
        let hidden = n_heads.checked_mul(head_size).filter(|&n| i32::try_from(n).is_ok())?;
        let whole = merged.len() == 3 && merged[2] == Dim::Fixed(hidden);
        i32::try_from(batch).ok()?;
        masks.reverse();
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
            let scale = edit.constant(Tensor::f32(vec![], &[scale]), &format!("{name}_scale"));
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

/// Ops between the product of queries and keys and the softmax, at most: a hostile graph has very
/// many paths up.
const SCORES_DEPTH_MAX: usize = 8;

/// Does `v` come from a product (rather than being a mask)?
fn makes_scores(g: &Graph, v: Value, depth: usize) -> bool {
    let up = |v: Value| depth < SCORES_DEPTH_MAX && makes_scores(g, v, depth + 1);
    match g.op(v) {
        Some(Op::Matmul(_)) => true,
        Some(Op::Mul(op)) => g.constant(op.y).is_some() && up(op.x),
        Some(Op::RealDiv(op)) => up(op.x),
        Some(Op::Add(op)) => up(op.x) || up(op.y),
        _ => false,
    }
}

/// (B, S, C) split into heads as (B, H, S, D): what was split, and B, H, D.
fn heads(g: &Graph, v: Value) -> Option<(Value, [u64; 3])> {
    let Op::Transpose(t) = g.op(v)? else { return None };
    let Op::Reshape(r) = g.op(t.x)? else { return None };
    let split = g.shape(t.x);
    let (from, [b, s, h, d]) = (g.shape(r.x), split) else { return None };
    let same_rows = from.len() == 3 && from[0] == *b && from[1] == *s;
    let numbers = [b.fixed()?, h.fixed()?, d.fixed()?];
    (t.perm == [0, 2, 1, 3] && same_rows).then_some((r.x, numbers))
}

/// Cuts (B, H, ..) into H pieces (B, 1, ..).
fn split(edit: &mut Edit<'_>, x: Value, n: i32, name: &str) -> Result<Vec<Value>, Skip> {
    if n == 1 {
        return Ok(vec![x]);
    }
    let op = Split { x, num_splits: Some(n), split_sizes: None, axis: 1 };
    Ok(edit.push_all(op, name)?)
}
