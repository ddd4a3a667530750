//! Norms over batches, instances, vectors and neighbours.
//!
//! Sums of plain norms are in f64: these are definitions, and where real models spend time there
//! is another path.

use russet_ir::Value;
use russet_ir::ops::{BatchNorm, InstanceNorm, L2Norm, LocalResponseNorm};

use super::Operands;
use crate::{Array, ExecError};

/// The numbers of an operand, one for each of `n` channels, or `default` for all.
fn vector(
    x: &Operands<'_>,
    v: Option<Value>,
    n: usize,
    default: f32,
) -> Result<Vec<f32>, ExecError> {
    let Some(v) = v else { return Ok(vec![default; n]) };
    let a = x.array(v)?;
    let numbers = x.floats(&a)?;
    match numbers.len() == n {
        true => Ok(numbers.to_vec()),
        false => Err(x.fail(format!("{} numbers for {n} channels", numbers.len()))),
    }
}

/// Channels of `[N, C, *D]` and numbers of each.
fn planes(x: &Operands<'_>, shape: &[usize]) -> Result<(usize, usize), ExecError> {
    match shape {
        [_, c, rest @ ..] if !rest.is_empty() => Ok((*c, rest.iter().product())),
        _ => Err(x.fail(format!("{shape:?} has no channels"))),
    }
}

pub(super) fn batch_norm(x: &Operands<'_>, op: &BatchNorm) -> Result<Array, ExecError> {
    let a = x.array(op.x)?;
    let (c, plane) = planes(x, &a.shape)?;
    let mean = vector(x, Some(op.mean), c, 0.0)?;
    let variance = vector(x, Some(op.variance), c, 1.0)?;
    let (gamma, beta) = (vector(x, op.gamma, c, 1.0)?, vector(x, op.beta, c, 0.0)?);
    let mut data = x.floats(&a)?.to_vec();
    for (i, plane) in data.chunks_exact_mut(plane.max(1)).enumerate() {
        let i = i % c;
        let scale = gamma[i] / (variance[i] + op.epsilon).sqrt();
        plane.iter_mut().for_each(|v| *v = (*v - mean[i]) * scale + beta[i]);
    }
    Ok(x.stored(a.shape.clone(), data))
}

pub(super) fn instance_norm(x: &Operands<'_>, op: &InstanceNorm) -> Result<Array, ExecError> {
    let a = x.array(op.x)?;
    let (c, plane) = planes(x, &a.shape)?;
    let (gamma, beta) = (vector(x, op.gamma, c, 1.0)?, vector(x, op.beta, c, 0.0)?);
    let mut data = x.floats(&a)?.to_vec();
    for (i, plane) in data.chunks_exact_mut(plane.max(1)).enumerate() {
        let n = plane.len() as f64;
        let mean = plane.iter().map(|&v| f64::from(v)).sum::<f64>() / n;
        let variance = plane.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / n;
        let scale = f64::from(gamma[i % c]) / (variance + f64::from(op.epsilon)).sqrt();
        let beta = f64::from(beta[i % c]);
        plane.iter_mut().for_each(|v| *v = ((f64::from(*v) - mean) * scale + beta) as f32);
    }
    Ok(x.stored(a.shape.clone(), data))
}

pub(super) fn l2_norm(x: &Operands<'_>, op: &L2Norm) -> Result<Array, ExecError> {
    let a = x.array(op.x)?;
    let rank = a.shape.len();
    let inner = rank.checked_sub(3).map(|from| a.shape[from..].iter().product::<usize>());
    let inner = inner.ok_or_else(|| x.fail(format!("{:?} has not three axes", a.shape)))?;
    let mut data = x.floats(&a)?.to_vec();
    for block in data.chunks_exact_mut(inner.max(1)) {
        let sum: f64 = block.iter().map(|&v| f64::from(v).powi(2)).sum();
        let length = (sum + f64::from(op.epsilon)).sqrt();
        block.iter_mut().for_each(|v| *v = (f64::from(*v) / length) as f32);
    }
    Ok(x.stored(a.shape.clone(), data))
}

pub(super) fn local_response_norm(
    x: &Operands<'_>,
    op: &LocalResponseNorm,
) -> Result<Array, ExecError> {
    let a = x.array(op.x)?;
    let (c, plane) = planes(x, &a.shape)?;
    let size = usize::try_from(op.size).ok().filter(|&s| s > 0);
    let size = size.ok_or_else(|| x.fail(format!("size {}", op.size)))?;
    let input = x.floats(&a)?;
    let mut data = vec![0.0; input.len()];
    for (from, to) in
        input.chunks_exact((c * plane).max(1)).zip(data.chunks_exact_mut((c * plane).max(1)))
    {
        for i in 0..c {
            // Half of the others before, the rest behind, as PyTorch and ONNX have them.
            let first = i.saturating_sub(size / 2);
            let end = (i + (size - 1) / 2 + 1).min(c);
            for p in 0..plane {
                let squares = (first..end).map(|j| f64::from(from[j * plane + p]).powi(2));
                let sum: f64 = squares.sum();
                let base = f64::from(op.k) + f64::from(op.alpha) / size as f64 * sum;
                let divisor = base.powf(op.beta.into());
                to[i * plane + p] = (f64::from(from[i * plane + p]) / divisor) as f32;
            }
        }
    }
    Ok(x.stored(a.shape.clone(), data))
}
