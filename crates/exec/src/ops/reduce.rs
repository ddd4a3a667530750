//! Norms, softmax and reductions on arrays.

use russet_ir::Value;
use russet_ir::ops::{LayerNorm, Softmax};

use super::elementwise::places;
use super::{Operands, checked_len};
use crate::ane::Rule;
use crate::ane::special::{before_softmax_along, log_sum_exp};
use crate::kernels::layer_norm::{Affine, layer_norm as norm_kernel};
use crate::kernels::reduce::{Reduction, reduce as reduce_kernel};
use crate::kernels::softmax::softmax as softmax_kernel;
use crate::kernels::strided::transpose;
use crate::{Array, ExecError};

pub(super) fn softmax(x: &Operands<'_>, op: &Softmax) -> Result<Array, ExecError> {
    let a = x.array(op.x)?;
    let axis = x.axis(op.axis, a.shape.len())?;
    let inner = a.shape[axis + 1..].iter().product();
    let mut out = x.floats(&a)?.to_vec();
    before_softmax_along(&mut out, a.shape[axis], inner, x.rounding);
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
        let rows = rows(ints, &a.shape, &over, out.len());
        return Ok(Array::i32(shape, rows.iter().map(|row| of_ints(op, row)).collect()));
    }
    let floats = x.floats(&a)?;
    if op == Reduction::LogSumExp && x.rounding.has(Rule::LogSumExpCollapse) {
        let rows = rows(floats, &a.shape, &over, out.len());
        return Ok(x.stored(shape, rows.iter().map(|row| log_sum_exp(row)).collect()));
    }
    reduce_kernel(op, floats, &a.shape, &over, &mut out);
    match op {
        Reduction::Max | Reduction::Min | Reduction::Product => x.rounding.store(&mut out),
        _ => x.rounding.store_sums(&mut out),
    }
    Ok(Array::f32(shape, out))
}

/// The numbers of each result.
fn rows<T: Copy>(x: &[T], shape: &[usize], over: &[bool], n_results: usize) -> Vec<Vec<T>> {
    let kept: Vec<usize> = shape.iter().zip(over).map(|(&n, &o)| if o { 1 } else { n }).collect();
    let mut rows = vec![Vec::new(); n_results];
    places(&kept, shape).into_iter().zip(x).for_each(|(at, &i)| rows[at].push(i));
    rows
}

/// A reduction of integers: whole numbers wrap, fractions are taken towards zero.
fn of_ints(op: Reduction, row: &[i32]) -> i32 {
    let sum = |f: fn(i64) -> i64| row.iter().fold(0i64, |n, &i| n.wrapping_add(f(i.into())));
    let floats = || row.iter().map(|&i| f64::from(i));
    match op {
        Reduction::Sum => sum(|i| i) as i32,
        Reduction::SumSquare => sum(|i| i * i) as i32,
        Reduction::L1Norm => sum(i64::abs) as i32,
        Reduction::Product => row.iter().fold(1, |n: i32, &i| n.wrapping_mul(i)),
        Reduction::Max => row.iter().copied().max().unwrap_or(i32::MIN),
        Reduction::Min => row.iter().copied().min().unwrap_or(i32::MAX),
        Reduction::Mean => (sum(|i| i) as f64 / row.len() as f64) as i32,
        Reduction::L2Norm => floats().map(|x| x * x).sum::<f64>().sqrt() as i32,
        Reduction::LogSum => (sum(|i| i) as f64).ln() as i32,
        Reduction::LogSumExp => {
            let max = floats().fold(f64::NEG_INFINITY, f64::max);
            (max + floats().map(|x| (x - max).exp()).sum::<f64>().ln()) as i32
        }
    }
}
