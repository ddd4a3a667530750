//! Attention as one op, and activations between integers and floats.

use russet_ir::Value;
use russet_ir::ops::{Dequantize, Quantize, ScaledDotProductAttention};

use super::{Operands, checked_len};
use crate::ane::Rule;
use crate::ane::special::before_softmax_along;
use crate::kernels::gemm::{Epilogue, Rows, View, multiply};
use crate::kernels::softmax::softmax;
use crate::kernels::strided;
use crate::{Array, ExecError, Numbers};

/// Attention as the ops it stands for: product, scale, mask, softmax, product.
pub(super) fn scaled_dot_product(
    x: &Operands<'_>,
    op: &ScaledDotProductAttention,
) -> Result<Array, ExecError> {
    let (q, k, v) = (x.array(op.query)?, x.array(op.key)?, x.array(op.value)?);
    let mask = x.optional(op.attn_mask)?;
    let rank = q.shape.len();
    let fits = rank >= 3
        && k.shape.len() == rank
        && v.shape.len() == rank
        && q.shape[..rank - 2] == k.shape[..rank - 2]
        && q.shape[..rank - 2] == v.shape[..rank - 2]
        && q.shape[rank - 1] == k.shape[rank - 1]
        && k.shape[rank - 2] == v.shape[rank - 2];
    if !fits {
        return Err(x.fail(format!("{:?}, {:?} and {:?}", q.shape, k.shape, v.shape)));
    }
    let (l, e) = (q.shape[rank - 2], q.shape[rank - 1]);
    let (s, features) = (v.shape[rank - 2], v.shape[rank - 1]);
    let batches: usize = q.shape[..rank - 2].iter().product();
    let mut shape = q.shape.clone();
    shape[rank - 1] = features;
    let mut out = vec![0.0; checked_len(&shape)?];
    let mut scores_shape = q.shape.clone();
    scores_shape[rank - 1] = s;
    let mask = mask.map(|m| added(x, &m, &scores_shape)).transpose()?;
    let (q, k, v) = (x.floats(&q)?, x.floats(&k)?, x.floats(&v)?);
    let epilogue = Epilogue { rounding: x.rounding, ..Epilogue::default() };
    let mut scores = vec![0.0; checked_len(&[l, s])?];
    let scale = 1.0 / (e as f32).sqrt();
    for i in 0..batches {
        let query = View::new(&q[i * l * e..][..l * e], l, e);
        let key = View::new(&k[i * s * e..][..s * e], s, e);
        multiply(query, key.transposed(), Rows::new(&mut scores, l, s), &epilogue);
        scores.iter_mut().for_each(|v| *v *= scale);
        x.rounding.store(&mut scores);
        if let Some(mask) = &mask {
            scores.iter_mut().zip(&mask[i * l * s..]).for_each(|(v, m)| *v += m);
            x.rounding.store(&mut scores);
        }
        before_softmax_along(&mut scores, s, 1, x.rounding);
        softmax(&mut scores, s, 1);
        x.rounding.store(&mut scores);
        let value = View::new(&v[i * s * features..][..s * features], s, features);
        let rows = Rows::new(&mut out[i * l * features..][..l * features], l, features);
        multiply(View::new(&scores, l, s), value, rows, &epilogue);
    }
    Ok(Array::f32(shape, out))
}

/// A mask as what is added to scores of this shape.
fn added(x: &Operands<'_>, mask: &Array, scores: &[usize]) -> Result<Vec<f32>, ExecError> {
    let numbers: Vec<f32> = match &mask.data {
        Numbers::F32(m) => m.clone(),
        Numbers::Bool(m) => m.iter().map(|&b| if b { 0.0 } else { f32::NEG_INFINITY }).collect(),
        _ => return Err(x.fail("a mask of integers")),
    };
    let fits = mask.shape.len() <= scores.len()
        && mask.shape.iter().rev().zip(scores.iter().rev()).all(|(&m, &s)| m == s || m == 1);
    if !fits {
        return Err(x.fail(format!("a mask of {:?} for scores of {scores:?}", mask.shape)));
    }
    let mut out = vec![0.0; checked_len(scores)?];
    strided::broadcast(&numbers, &mask.shape, scores, &mut out);
    Ok(out)
}

/// For each element of `shape` a scale and a zero point, which are scalars or along `axis`.
fn scales(
    x: &Operands<'_>,
    shape: &[usize],
    axis: Option<i32>,
    (scale, zero_point): (Value, Option<Value>),
) -> Result<impl Fn(usize) -> (f32, f32), ExecError> {
    let scale = x.array(scale)?;
    let scale = x.floats(&scale)?.to_vec();
    let zero: Vec<f32> = match zero_point {
        Some(v) => x.ints(v)?.into_iter().map(|i| i as f32).collect(),
        None => vec![0.0],
    };
    let (n, inner) = match axis {
        Some(axis) => {
            let axis = x.axis(axis, shape.len())?;
            (shape[axis], shape[axis + 1..].iter().product::<usize>())
        }
        None => (1, 1),
    };
    if [scale.len(), zero.len()].into_iter().any(|len| len != 1 && len != n) {
        return Err(x.fail(format!("{} scales for {shape:?}", scale.len())));
    }
    Ok(move |i: usize| {
        let at = if n == 0 { 0 } else { i / inner.max(1) % n };
        let of = |v: &[f32]| if v.len() == 1 { v[0] } else { v[at] };
        (of(&scale), of(&zero))
    })
}

pub(super) fn quantize(x: &Operands<'_>, op: &Quantize) -> Result<Array, ExecError> {
    let a = x.array(op.input)?;
    let of = scales(x, &a.shape, op.axis, (op.scale, op.zero_point))?;
    let (low, high) = match op.output_dtype {
        russet_ir::DType::I8 => (-128.0, 127.0),
        _ => (0.0, 255.0),
    };
    let quantized = |(i, &v): (usize, &f32)| {
        let (scale, zero) = of(i);
        ((v / scale).round_ties_even() + zero).clamp(low, high) as i32
    };
    Ok(Array::i32(a.shape.clone(), x.floats(&a)?.iter().enumerate().map(quantized).collect()))
}

pub(super) fn dequantize(x: &Operands<'_>, op: &Dequantize) -> Result<Array, ExecError> {
    let a = x.array(op.input)?;
    let of = scales(x, &a.shape, op.axis, (op.scale, op.zero_point))?;
    let ints = a.as_i32().ok_or_else(|| x.fail("an operand is not of integers"))?;
    let number = |(i, &v): (usize, &i32)| {
        let (scale, zero) = of(i);
        (v as f32 - zero) * scale
    };
    let numbers = ints.iter().enumerate().map(number).collect();
    match x.rounding.has(Rule::Int8Products) {
        true => Ok(Array::f32(a.shape.clone(), numbers)),
        false => Ok(x.stored(a.shape.clone(), numbers)),
    }
}
