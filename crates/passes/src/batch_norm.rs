//! Batch norms behind convolutions.

use russet_ir::ops::{BatchNorm, Conv};
use russet_ir::{Edit, Graph, Op, Tensor, Value};

use crate::{Effect, Pass, Skip};

/// Multiplies a batch norm into the weights and the bias of the convolution in front of it.
///
/// Means and variances are then not rounded to fp16 on their own, where what they are taken from
/// may all but cancel.
pub struct FoldBatchNorm;

/// Weights beyond which they are not multiplied ahead: they would be held in memory.
const N_WEIGHTS_MAX: u64 = 1 << 26;

impl Pass for FoldBatchNorm {
    fn name(&self) -> &'static str {
        "fold-batch-norm"
    }

    fn reason(&self) -> &'static str {
        "a norm that is known before running costs nothing inside the weights"
    }

    fn effect(&self) -> Effect {
        Effect::Reorders
    }

    fn rewrite<'g>(&self, g: &'g Graph, at: Value) -> Result<Edit<'g>, Skip> {
        let Some(Op::BatchNorm(norm)) = g.op(at) else { return Err(Skip::NoMatch) };
        let Some(Op::Conv(conv)) = g.op(norm.x) else { return Err(Skip::NoMatch) };
        let weight = g.constant(conv.weight).filter(|t| t.can_be_derived());
        let weight = weight.ok_or_else(|| Skip::Blocked("its weights are no floats".into()))?;
        if weight.n_elements() > N_WEIGHTS_MAX {
            return Err(Skip::Blocked(format!("{} weights are many", weight.n_elements())));
        }
        let n = weight.shape.first().copied().unwrap_or(0) as usize;
        let affine = Affine::of(g, norm, n).ok_or(Skip::NoMatch)?;
        let old = match conv.bias {
            None => vec![0.0; n],
            Some(b) => floats(g, b, n).ok_or(Skip::NoMatch)?,
        };
        let row = weight.n_elements() as usize / n.max(1);
        let mut weights = weight.to_f32();
        for (row, scale) in weights.chunks_exact_mut(row.max(1)).zip(&affine.scale) {
            row.iter_mut().for_each(|w| *w = (f64::from(*w) * scale) as f32);
        }
        let bias = old.iter().zip(affine.scale.iter().zip(&affine.shift));
        let bias: Vec<f32> = bias.map(|(b, (scale, shift))| (b * scale + shift) as f32).collect();
        let name = &g.value(at).name;
        let mut edit = Edit::of(g);
        let made = Tensor::f32(weight.shape.clone(), &weights).cast(weight.dtype);
        let weight = edit.constant(made, &format!("{}_normed", g.value(conv.weight).name));
        let dtype = g.ty(at).tensor().ok_or(Skip::NoMatch)?.dtype;
        let bias = Tensor::f32(vec![n as u64], &bias).cast(dtype);
        let bias = Some(edit.constant(bias, &format!("{name}_bias")));
        let new = edit.push(Conv { weight, bias, ..conv.clone() }, name)?;
        Ok(edit.replace(at, new))
    }
}

/// The norm as a factor and a number added, for each channel.
struct Affine {
    scale: Vec<f64>,
    shift: Vec<f64>,
}

impl Affine {
    fn of(g: &Graph, norm: &BatchNorm, n: usize) -> Option<Affine> {
        let (mean, variance) = (floats(g, norm.mean, n)?, floats(g, norm.variance, n)?);
        let or = |v: Option<Value>, absent: f64| match v {
            Some(v) => floats(g, v, n),
            None => Some(vec![absent; n]),
        };
        let (gamma, beta) = (or(norm.gamma, 1.0)?, or(norm.beta, 0.0)?);
        let scale: Vec<f64> = gamma
            .iter()
            .zip(&variance)
            .map(|(g, v)| g / (v + f64::from(norm.epsilon)).sqrt())
            .collect();
        let shift = beta.iter().zip(mean.iter().zip(&scale)).map(|(b, (m, s))| b - m * s).collect();
        Some(Affine { scale, shift })
    }
}

/// The `n` numbers of a constant vector.
fn floats(g: &Graph, v: Value, n: usize) -> Option<Vec<f64>> {
    let t = g.constant(v).filter(|t| t.dtype.is_float() && t.shape == [n as u64])?;
    Some(t.to_f32().into_iter().map(f64::from).collect())
}
