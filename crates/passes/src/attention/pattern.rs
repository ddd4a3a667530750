//! The arithmetic of attention, in the forms in which converters and exporters write it.

use russet_ir::{Graph, Op, Tensor, Value};

use crate::activation::number;

/// `softmax(scale * query key^T + masks) value`, all of `[.., heads, rows, columns]`.
pub struct Products {
    pub query: Value,
    pub key: Key,
    pub value: Value,
    /// Factors of the scores; None when there is none.
    pub scale: Option<f32>,
    /// Added to the scores.
    pub masks: Vec<Value>,
}

/// How keys lie in the product of the scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// `[.., S, E]`: the product contracts the last axes.
    Rows(Value),
    /// `[.., E, S]`.
    Columns(Value),
}

/// Ops between the product of queries and keys and the softmax, at most: a hostile graph has very
/// many paths up.
const SCORES_DEPTH_MAX: usize = 8;

impl Products {
    /// The attention whose heads, before they are merged, are `at`.
    pub fn ending_at(g: &Graph, at: Value) -> Option<Products> {
        let Op::Matmul(weighted) = g.op(at)? else { return None };
        if weighted.transpose_x || weighted.transpose_y {
            return None;
        }
        let (weights, guarded) = unguarded(g, weighted.x);
        let Op::Softmax(softmax) = g.op(weights)? else { return None };
        let rank = g.shape(weights).len() as i32;
        if softmax.axis != -1 && softmax.axis != rank - 1 {
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
                // A factor behind a mask would be the mask's, too.
                Op::Mul(_) | Op::RealDiv(_) => {
                    let (rest, factor) = scaled(g, scores).filter(|s| !makes_mask(g, s.0))?;
                    scale = times(scale, factor);
                    scores = rest;
                }
                Op::Matmul(op) => break op,
                _ => return None,
            }
        };
        if product.transpose_x || (guarded && !masks.iter().all(|&m| is_finite(g, m, 0))) {
            return None;
        }
        let mut side = |mut v: Value| {
            while let Some((rest, factor)) = scaled(g, v) {
                scale = times(scale, factor);
                v = rest;
            }
            v
        };
        let (query, key) = (side(product.x), side(product.y));
        let key = if product.transpose_y { Key::Rows(key) } else { Key::Columns(key) };
        masks.reverse();
        Some(Products { query, key, value: weighted.y, scale, masks })
    }
}

/// Is there a mask between `v` and the product?
fn makes_mask(g: &Graph, v: Value) -> bool {
    let mut v = v;
    while let Some((rest, _)) = scaled(g, v) {
        v = rest;
    }
    matches!(g.op(v), Some(Op::Add(_)))
}

fn times(scale: Option<f32>, factor: f64) -> Option<f32> {
    Some((f64::from(scale.unwrap_or(1.0)) * factor) as f32)
}

/// What is multiplied by a number, and the number.
fn scaled(g: &Graph, v: Value) -> Option<(Value, f64)> {
    match g.op(v)? {
        Op::Mul(op) => match (number(g, op.x), number(g, op.y)) {
            (None, Some(n)) => Some((op.x, n)),
            (Some(n), None) => Some((op.y, n)),
            _ => None,
        },
        Op::RealDiv(op) => number(g, op.y).map(|n| (op.x, 1.0 / n)),
        _ => None,
    }
    // A factor with more axes than the value would add them.
    .filter(|(x, _)| g.shape(*x).len() == g.shape(v).len())
}

/// Weights behind a guard that makes zeros of rows that are NaN, since everything is masked there.
fn unguarded(g: &Graph, v: Value) -> (Value, bool) {
    let Some(Op::Select(guard)) = g.op(v) else { return (v, false) };
    let zero = number(g, guard.a) == Some(0.0);
    match g.op(guard.cond) {
        Some(Op::NotEqual(op)) if zero && op.x == op.y && op.x == guard.b => (guard.b, true),
        _ => (v, false),
    }
}

/// Does `v` come from a product (rather than being a mask)?
fn makes_scores(g: &Graph, v: Value, depth: usize) -> bool {
    let up = |v: Value| depth < SCORES_DEPTH_MAX && makes_scores(g, v, depth + 1);
    match g.op(v) {
        Some(Op::Matmul(_)) => true,
        Some(Op::Mul(_) | Op::RealDiv(_)) => scaled(g, v).is_some_and(|(x, _)| up(x)),
        Some(Op::Add(op)) => up(op.x) || up(op.y),
        _ => false,
    }
}

/// Is every number of a mask finite, whatever the inputs are? Then no row of weights is NaN.
fn is_finite(g: &Graph, v: Value, depth: usize) -> bool {
    if depth > SCORES_DEPTH_MAX {
        return false;
    }
    let of = |v: Value| is_finite(g, v, depth + 1);
    if let Some(t) = g.constant(v) {
        return small(t) && t.to_f32().iter().all(|x| x.is_finite());
    }
    match g.op(v) {
        Some(Op::Select(op)) => of(op.a) && of(op.b),
        Some(Op::Add(op)) => of(op.x) && of(op.y),
        Some(Op::Sub(op)) => of(op.x) && of(op.y),
        Some(Op::Mul(op)) => of(op.x) && of(op.y),
        Some(Op::Reshape(op)) => of(op.x),
        Some(Op::ExpandDims(op)) => of(op.x),
        Some(Op::SliceByIndex(op)) => of(op.x),
        Some(Op::Tile(op)) => of(op.x),
        Some(Op::Cast(op)) => g.ty(op.x).tensor().is_some_and(|t| !t.dtype.is_float()) || of(op.x),
        _ => false,
    }
}

/// Few enough elements to look at all of them.
fn small(t: &Tensor) -> bool {
    t.dtype.is_float() && t.n_elements() <= 1 << 22
}
