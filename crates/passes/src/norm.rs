//! Norms: found in their arithmetic, and moved over channels.

use russet_ir::ops::{Add, LayerNorm, Mul, ReduceMean, Rsqrt, Square, Sub};
use russet_ir::{Dim, Edit, Graph, Op, Value};

use crate::activation::number;
use crate::layout::{from_channels_first, to_channels_first};
use crate::{Effect, Pass, Skip};

/// Makes `layer_norm` of its arithmetic, then of a norm with the scale and the shift behind it.
pub struct FuseLayerNorm;

impl Pass for FuseLayerNorm {
    fn name(&self) -> &'static str {
        "fuse-layer-norm"
    }

    fn reason(&self) -> &'static str {
        "one op instead of nine, whose mean and variance stay wide"
    }

    fn effect(&self) -> Effect {
        Effect::Reorders
    }

    fn rewrite<'g>(&self, g: &'g Graph, at: Value) -> Result<Edit<'g>, Skip> {
        let norm = scaled(g, at).or_else(|| shifted(g, at)).or_else(|| standardized(g, at));
        let norm = norm.filter(|n| g.ty(n.x) == g.ty(at)).ok_or(Skip::NoMatch)?;
        let mut edit = Edit::of(g);
        // Parameters `[1, 1, C]` are vectors to the op.
        let axes = norm.axes.as_ref().map_or(0, Vec::len);
        let mut flat = |v: Option<Value>| {
            let t = v.and_then(|v| Some((v, g.constant(v)?)))?;
            let shape = t.1.shape[t.1.shape.len().saturating_sub(axes)..].to_vec();
            Some(match shape == t.1.shape {
                true => t.0,
                false => edit.constant(t.1.reshaped(shape), &g.value(t.0).name),
            })
        };
        let (gamma, beta) = (flat(norm.gamma), flat(norm.beta));
        let new = edit.push(LayerNorm { gamma, beta, ..norm }, &g.value(at).name)?;
        Ok(edit.replace(at, new))
    }
}

/// `(x - mean) / sqrt(variance + epsilon)`.
fn standardized(g: &Graph, at: Value) -> Option<LayerNorm> {
    let (centered, variance, epsilon) = over_root(g, at)?;
    let (x, axes) = less_mean(g, centered)?;
    let (squared, over) = mean(g, variance)?;
    let deviation = square_of(g, squared)?;
    // Some exporters take the mean away twice.
    let same = deviation == centered || less_mean(g, deviation)? == (x, axes.clone());
    let rank = g.shape(x).len() as i32;
    let trailing = axes.iter().copied().eq(rank - axes.len() as i32..rank) && !axes.is_empty();
    (same && axes == over && trailing).then_some(LayerNorm {
        x,
        axes: Some(axes),
        gamma: None,
        beta: None,
        epsilon,
    })
}

/// A norm without parameters, times a constant of its axes.
fn scaled(g: &Graph, at: Value) -> Option<LayerNorm> {
    let Op::Mul(op) = g.op(at)? else { return None };
    let with = |norm: Value, gamma: Value| {
        let Op::LayerNorm(n) = g.op(norm)? else { return None };
        let bare = n.gamma.is_none() && n.beta.is_none();
        (bare && fits(g, n, gamma)).then(|| LayerNorm { gamma: Some(gamma), ..n.clone() })
    };
    with(op.x, op.y).or_else(|| with(op.y, op.x))
}

/// A norm without a shift, and a constant of its axes added.
fn shifted(g: &Graph, at: Value) -> Option<LayerNorm> {
    let Op::Add(op) = g.op(at)? else { return None };
    let with = |norm: Value, beta: Value| {
        let Op::LayerNorm(n) = g.op(norm)? else { return None };
        (n.beta.is_none() && n.gamma.is_some() && fits(g, n, beta))
            .then(|| LayerNorm { beta: Some(beta), ..n.clone() })
    };
    with(op.x, op.y).or_else(|| with(op.y, op.x))
}

/// Is `v` a constant with the extents of the norm's axes, and 1 in front of them?
fn fits(g: &Graph, norm: &LayerNorm, v: Value) -> bool {
    let (Some(t), Some(axes)) = (g.constant(v), &norm.axes) else { return false };
    let shape = g.shape(norm.x);
    let own: Option<Vec<u64>> =
        shape[shape.len() - axes.len().min(shape.len())..].iter().map(Dim::fixed).collect();
    let Some(front) = t.shape.len().checked_sub(axes.len()) else { return false };
    let trailing = axes.iter().all(|&a| a < 0 || a as usize >= shape.len() - axes.len());
    trailing
        && front <= shape.len() - axes.len()
        && t.shape[..front].iter().all(|&n| n == 1)
        && own.as_deref() == Some(&t.shape[front..])
}

/// What is divided by `sqrt(v + epsilon)`, that `v`, and epsilon.
fn over_root(g: &Graph, at: Value) -> Option<(Value, Value, f32)> {
    match g.op(at)? {
        Op::RealDiv(op) => {
            let Op::Sqrt(root) = g.op(op.y)? else { return None };
            let (v, epsilon) = with_epsilon(g, root.x)?;
            Some((op.x, v, epsilon))
        }
        Op::Mul(op) => {
            let one = |x: Value, inverse: Value| {
                let (v, epsilon) = inverse_root(g, inverse)?;
                Some((x, v, epsilon))
            };
            one(op.x, op.y).or_else(|| one(op.y, op.x))
        }
        _ => None,
    }
}

/// `1 / sqrt(v + epsilon)` in any of its forms: `v` and epsilon.
fn inverse_root(g: &Graph, at: Value) -> Option<(Value, f32)> {
    match g.op(at)? {
        Op::Rsqrt(op) if op.epsilon > 1e-12 => Some((op.x, op.epsilon)),
        Op::Rsqrt(op) => with_epsilon(g, op.x),
        Op::RealDiv(op) if number(g, op.x) == Some(1.0) => match g.op(op.y)? {
            Op::Sqrt(root) => with_epsilon(g, root.x),
            _ => None,
        },
        Op::Inverse(op) if op.epsilon <= 1e-12 => match g.op(op.x)? {
            Op::Sqrt(root) => with_epsilon(g, root.x),
            _ => None,
        },
        Op::Pow(op) if number(g, op.y) == Some(-0.5) => with_epsilon(g, op.x),
        _ => None,
    }
}

/// `v + epsilon`.
fn with_epsilon(g: &Graph, sum: Value) -> Option<(Value, f32)> {
    let Op::Add(op) = g.op(sum)? else { return None };
    let (v, epsilon) = match (number(g, op.x), number(g, op.y)) {
        (None, Some(n)) => (op.x, n),
        (Some(n), None) => (op.y, n),
        _ => return None,
    };
    (0.0..=1e-2).contains(&epsilon).then_some((v, epsilon as f32))
}

/// The mean along axes, which it keeps: of what, and the axes from the front.
fn mean(g: &Graph, v: Value) -> Option<(Value, Vec<i32>)> {
    let Op::ReduceMean(op) = g.op(v)? else { return None };
    let rank = g.shape(op.x).len() as i32;
    let axes = op.axes.as_ref().filter(|_| op.keep_dims)?;
    let mut axes: Vec<i32> = axes.iter().map(|&a| if a < 0 { a + rank } else { a }).collect();
    axes.sort_unstable();
    Some((op.x, axes))
}

/// `x - mean(x)`.
fn less_mean(g: &Graph, v: Value) -> Option<(Value, Vec<i32>)> {
    let Op::Sub(op) = g.op(v)? else { return None };
    mean(g, op.y).filter(|(of, _)| *of == op.x)
}

/// What `v` is the square of.
fn square_of(g: &Graph, v: Value) -> Option<Value> {
    match g.op(v)? {
        Op::Square(op) => Some(op.x),
        Op::Mul(op) if op.x == op.y => Some(op.x),
        Op::Pow(op) if number(g, op.y) == Some(2.0) => Some(op.x),
        _ => None,
    }
}

/// Writes norms by the root mean square one way: `x * rsqrt(mean(square(x)))`. MIL has no op for
/// them.
pub struct FuseRmsNorm;

impl Pass for FuseRmsNorm {
    fn name(&self) -> &'static str {
        "fuse-rms-norm"
    }

    fn reason(&self) -> &'static str {
        "`rsqrt` adds its epsilon by itself, and a product costs less than a quotient"
    }

    fn effect(&self) -> Effect {
        Effect::Reorders
    }

    fn rewrite<'g>(&self, g: &'g Graph, at: Value) -> Result<Edit<'g>, Skip> {
        let (x, squares, epsilon) = over_root(g, at).ok_or(Skip::NoMatch)?;
        let (squared, axes) = mean(g, squares).ok_or(Skip::NoMatch)?;
        if square_of(g, squared) != Some(x) || is_plain(g, at) {
            return Err(Skip::NoMatch);
        }
        let name = &g.value(at).name;
        let mut edit = Edit::of(g);
        let square = edit.push(Square { x }, &format!("{name}_square"))?;
        let mean = ReduceMean { x: square, axes: Some(axes), keep_dims: true };
        let mean = edit.push(mean, &format!("{name}_mean"))?;
        let inverse = edit.push(Rsqrt { x: mean, epsilon }, &format!("{name}_rsqrt"))?;
        let new = edit.push(Mul { x, y: inverse }, name)?;
        Ok(edit.replace(at, new))
    }
}

/// Is it the form the pass makes?
fn is_plain(g: &Graph, at: Value) -> bool {
    let Some(Op::Mul(Mul { y, .. })) = g.op(at) else { return false };
    let Some(Op::Rsqrt(root)) = g.op(*y) else { return false };
    let Some(Op::ReduceMean(mean)) = g.op(root.x) else { return false };
    matches!(g.op(mean.x), Some(Op::Square(_)))
}

/// Turns layer norms over the last axis of (B, S, C) into norms over axis 1 of (B, C, 1, S).
///
/// `layer_norm` with `axes = [1]` is what Core ML's own converter makes of the reference
/// implementation in apple/ml-ane-transformers.
pub struct NormOverChannels;

impl Pass for NormOverChannels {
    fn name(&self) -> &'static str {
        "norm-over-channels"
    }

    fn reason(&self) -> &'static str {
        "channels-first convolutions on both sides need no change of layout in between"
    }

    fn effect(&self) -> Effect {
        Effect::Reorders
    }

    fn rewrite<'g>(&self, g: &'g Graph, at: Value) -> Result<Edit<'g>, Skip> {
        let Some(Op::LayerNorm(op)) = g.op(at) else { return Err(Skip::NoMatch) };
        let last = matches!(op.axes.as_deref(), Some([-1] | [2]));
        if g.shape(op.x).len() != 3 || !last {
            return Err(Skip::NoMatch);
        }
        let name = &g.value(at).name;
        let mut edit = Edit::of(g);
        let x = to_channels_first(&mut edit, op.x, &format!("{name}_x"))?;
        let norm = LayerNorm { x, axes: Some(vec![1]), ..op.clone() };
        let norm = edit.push(norm, &format!("{name}_norm"))?;
        let y = from_channels_first(&mut edit, norm, name)?;
        Ok(edit.replace(at, y))
    }
}

/// Writes a norm over channels out as the arithmetic it is, when lengths are enumerated.
///
/// `layer_norm` in a model of enumerated shapes takes it off the Neural Engine
/// (apple/coremltools issue 1909).
pub struct DecomposeNorm;

impl Pass for DecomposeNorm {
    fn name(&self) -> &'static str {
        "decompose-norm"
    }

    fn reason(&self) -> &'static str {
        "`layer_norm` in a model of enumerated shapes takes it off the Neural Engine"
    }

    fn effect(&self) -> Effect {
        Effect::Reorders
    }

    fn rewrite<'g>(&self, g: &'g Graph, at: Value) -> Result<Edit<'g>, Skip> {
        let Some(Op::LayerNorm(op)) = g.op(at) else { return Err(Skip::NoMatch) };
        if !g.is_symbolic() {
            return Err(Skip::NoGain("shapes are fixed".into()));
        }
        if op.axes.as_deref() != Some(&[1]) || g.shape(op.x).len() != 4 {
            return Err(Skip::Blocked("it is not over the channels of (B, C, 1, S)".into()));
        }
        let name = &g.value(at).name;
        let named = |part: &str| format!("{name}_{part}");
        let mut edit = Edit::of(g);
        let mean_of = |x| ReduceMean { x, axes: Some(vec![1]), keep_dims: true };
        let mean = edit.push(mean_of(op.x), &named("mean"))?;
        let centered = edit.push(Sub { x: op.x, y: mean }, &named("centered"))?;
        let squared = edit.push(Square { x: centered }, &named("squared"))?;
        let variance = edit.push(mean_of(squared), &named("variance"))?;
        let scale = edit.push(Rsqrt { x: variance, epsilon: op.epsilon }, &named("rsqrt"))?;
        let mut y = edit.push(Mul { x: centered, y: scale }, &named("normed"))?;
        let column = |edit: &mut Edit<'_>, v: Value| {
            let t = g.constant(v).ok_or_else(|| Skip::Blocked("its scale is computed".into()))?;
            let t = t.reshaped(vec![1, t.n_elements(), 1, 1]);
            Ok::<Value, Skip>(edit.constant(t, &format!("{}_column", g.value(v).name)))
        };
        if let Some(gamma) = op.gamma {
            let gamma = column(&mut edit, gamma)?;
            y = edit.push(Mul { x: y, y: gamma }, &named("scaled"))?;
        }
        if let Some(beta) = op.beta {
            let beta = column(&mut edit, beta)?;
            y = edit.push(Add { x: y, y: beta }, &named("shifted"))?;
        }
        Ok(edit.replace(at, y))
    }
}
