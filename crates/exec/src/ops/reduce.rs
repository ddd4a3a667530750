//! Norms, softmax and reductions on arrays.

use russet_ir::Value;
use russet_ir::ops::{LayerNorm, Softmax};

use super::{Operands, checked_len};
use crate::kernels::layer_norm::{Affine, layer_norm as norm_kernel};
use crate::kernels::reduce::{Reduction, reduce as reduce_kernel};
use crate::kernels::softmax::softmax as softmax_kernel;
use crate::kernels::strided::transpose;
use crate::{Array, ExecError};

pub(super) const SUM: Reduction = Reduction::Sum;
pub(super) const MEAN: Reduction = Reduction::Mean;
pub(super) const MAX: Reduction = Reduction::Max;
pub(super) const MIN: Reduction = Reduction::Min;
pub(super) const L2: Reduction = Reduction::L2Norm;

pub(super) fn softmax(x: &Operands<'_>, op: &Softmax) -> Result<Array, ExecError> {
    let a = x.array(op.x)?;
    let axis = x.axis(op.axis, a.shape.len())?;
    let inner = a.shape[axis + 1..].iter().product();
    let mut out = x.floats(&a)?.to_vec();
    softmax_kernel(&mut out, a.shape[axis], inner);
    Ok(x.stored(a.shape.clone(), out))
}

pub(super) fn layer_norm(x: &Operands<'_>, op: &LayerNorm) -> Result<Array, ExecError> {
    let a = x.array(op.x)?;
    let rank = a.shape.len();
    let mut axes: Vec<usize> = match &op.axes {
        Some(axes) => axes.iter().map(|&i| x.axis(i, rank)).collect::<Result<_, _>>()?,
        None => (0..rank).collect(),
    };
    axes.sort_unstable();
    let (gamma, beta) = (x.optional(op.gamma)?, x.optional(op.beta)?);
    let floats = |v: &Option<std::borrow::Cow<'_, Array>>| {
        v.as_deref().map(|a| x.floats(a).map(<[f32]>::to_vec)).transpose()
    };
    let (gamma, beta) = (floats(&gamma)?, floats(&beta)?);
    let n: usize = axes.iter().map(|&i| a.shape[i]).product();
    if [&gamma, &beta].into_iter().flatten().any(|g| g.len() != n) {
        return Err(x.fail(format!("gamma or beta do not have the {n} elements of {axes:?}")));
    }
    let affine = Affine { gamma: gamma.as_deref(), beta: beta.as_deref(), epsilon: op.epsilon };
    let mut out = x.floats(&a)?.to_vec();
    let adjacent = axes.windows(2).all(|w| w[1] == w[0] + 1);
    if let (true, Some(&last)) = (adjacent, axes.last()) {
        let inner = a.shape[last + 1..].iter().product();
        norm_kernel(&mut out, n, inner, &affine);
        return Ok(x.stored(a.shape.clone(), out));
    }
    // Axes that lie apart are brought together, and taken back.
    let kept = (0..rank).filter(|i| !axes.contains(i));
    let perm: Vec<usize> = kept.chain(axes.iter().copied()).collect();
    let gathered: Vec<usize> = perm.iter().map(|&p| a.shape[p]).collect();
    let mut rows = vec![0.0; out.len()];
    transpose(&out, &a.shape, &perm, &mut rows);
    norm_kernel(&mut rows, n, 1, &affine);
    let mut back = vec![0; rank];
    perm.iter().enumerate().for_each(|(i, &p)| back[p] = i);
    transpose(&rows, &gathered, &back, &mut out);
    Ok(x.stored(a.shape.clone(), out))
}

pub(super) fn reduce(
    x: &Operands<'_>,
    op: Reduction,
    v: Value,
    axes: Option<&[i32]>,
    keep_dims: bool,
) -> Result<Array, ExecError> {
    let a = x.array(v)?;
    let rank = a.shape.len();
    let mut over = vec![axes.is_none(); rank];
    for &axis in axes.unwrap_or(&[]) {
        over[x.axis(axis, rank)?] = true;
    }
    let shape = a.shape.iter().zip(&over).filter_map(|(&n, &over)| match (over, keep_dims) {
        (false, _) => Some(n),
        (true, true) => Some(1),
        (true, false) => None,
    });
    let shape: Vec<usize> = shape.collect();
    let mut out = vec![0.0; checked_len(&shape)?];
    if let Some(ints) = a.as_i32() {
        // Exact up to 2^24, which indices and lengths stay below.
        let floats: Vec<f32> = ints.iter().map(|&i| i as f32).collect();
        reduce_kernel(op, &floats, &a.shape, &over, &mut out);
        return Ok(Array::i32(shape, out.into_iter().map(|f| f as i32).collect()));
    }
    reduce_kernel(op, x.floats(&a)?, &a.shape, &over, &mut out);
    Ok(x.stored(shape, out))
}
