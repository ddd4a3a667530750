//! Norms over channels.

use russet_ir::ops::{Add, LayerNorm, Mul, ReduceMean, Rsqrt, Square, Sub};
use russet_ir::{Edit, Graph, Op, Value};

use crate::layout::{from_channels_first, to_channels_first};
use crate::{Effect, Pass, Skip};

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
