//! Arithmetic, comparison, activations and casts on arrays.

use std::cmp::Ordering;

use russet_ir::ops::{Cast, GeluMode, Select};
use russet_ir::{Calculation, DType, Op, Value};

use super::unary::gelu_sigmoid;
use super::{Operands, checked_len};
use crate::ane::Rule;
use crate::kernels::binary::{Binary, broadcast_shape, combine};
use crate::kernels::unary::{Unary, map_as};
use crate::{Array, ExecError, Numbers};

/// One binary op: on floats and on integers.
#[derive(Clone, Copy)]
pub(super) struct Arithmetic {
    float: Binary,
    int: fn(i32, i32) -> i32,
}

pub(super) const ADD: Arithmetic = Arithmetic { float: Binary::Add, int: i32::wrapping_add };
pub(super) const SUB: Arithmetic = Arithmetic { float: Binary::Sub, int: i32::wrapping_sub };
pub(super) const MUL: Arithmetic = Arithmetic { float: Binary::Mul, int: i32::wrapping_mul };
pub(super) const DIV: Arithmetic = Arithmetic { float: Binary::Div, int: div };
pub(super) const FLOOR_DIV: Arithmetic =
    Arithmetic { float: Binary::FloorDiv, int: |x, y| Calculation::FloorDiv.of(x, y) };
pub(super) const MOD: Arithmetic =
    Arithmetic { float: Binary::Mod, int: |x, y| Calculation::Mod.of(x, y) };
pub(super) const MAX: Arithmetic = Arithmetic { float: Binary::Max, int: |x, y| x.max(y) };
pub(super) const MIN: Arithmetic = Arithmetic { float: Binary::Min, int: |x, y| x.min(y) };
pub(super) const POW: Arithmetic = Arithmetic { float: Binary::Pow, int: pow };

/// The quotient towards zero; division by zero is 0.
fn div(x: i32, y: i32) -> i32 {
    if y == 0 { 0 } else { x.wrapping_div(y) }
}

/// A power that wraps; one with a negative exponent is a fraction, taken towards zero.
fn pow(x: i32, y: i32) -> i32 {
    match (x, u32::try_from(y)) {
        (x, Ok(y)) => x.wrapping_pow(y),
        (1, _) => 1,
        (-1, _) => 1 - 2 * (y & 1),
        _ => 0,
    }
}

pub(super) fn binary(
    x: &Operands<'_>,
    op: Arithmetic,
    left: Value,
    right: Value,
) -> Result<Array, ExecError> {
    let (a, b) = (x.array(left)?, x.array(right)?);
    let shape = common_shape(x, &a.shape, &b.shape)?;
    let n = checked_len(&shape)?;
    match (&a.data, &b.data) {
        (Numbers::F32(p), Numbers::F32(q)) => {
            let mut out = vec![0.0; n];
            if x.rounding.has(Rule::PowOfTwo) && matches!(op.float, Binary::Pow) {
                let squares = zip(p, &a.shape, q, &b.shape, &shape).map(|(_, y)| y * y);
                return Ok(x.stored(shape.clone(), squares.collect()));
            }
            combine(op.float, (p, &a.shape), (q, &b.shape), &shape, &mut out);
            Ok(x.stored(shape, out))
        }
        (Numbers::I32(p), Numbers::I32(q)) => {
            let pairs = zip(p, &a.shape, q, &b.shape, &shape);
            Ok(Array::i32(shape, pairs.map(|(p, q)| (op.int)(p, q)).collect()))
        }
        _ => Err(x.fail("its operands are of different kinds")),
    }
}

fn common_shape(x: &Operands<'_>, a: &[usize], b: &[usize]) -> Result<Vec<usize>, ExecError> {
    broadcast_shape(a, b).ok_or_else(|| x.fail(format!("{a:?} and {b:?} do not broadcast")))
}

/// Pairs of elements that broadcasting puts together, in the order of `shape`.
fn zip<'a, T: Copy, U: Copy>(
    a: &'a [T],
    a_shape: &[usize],
    b: &'a [U],
    b_shape: &[usize],
    shape: &[usize],
) -> impl Iterator<Item = (T, U)> + use<'a, T, U> {
    let (ia, ib) = (places(a_shape, shape), places(b_shape, shape));
    ia.into_iter().zip(ib).map(|(i, j)| (a[i], b[j]))
}

/// For each element of `to`, the place of the element of `from` that broadcasts to it.
pub(super) fn places(from: &[usize], to: &[usize]) -> Vec<usize> {
    let n: usize = from.iter().product();
    if from == to {
        return (0..n).collect();
    }
    let lead = to.len() - from.len();
    let mut stride = 1;
    let mut strides = vec![0; to.len()];
    for i in (0..from.len()).rev() {
        strides[lead + i] = if from[i] == 1 { 0 } else { stride };
        stride *= from[i];
    }
    let total: usize = to.iter().product();
    (0..total)
        .map(|mut flat| {
            let mut place = 0;
            for (extent, stride) in to.iter().zip(&strides).rev() {
                place += flat % extent * stride;
                flat /= extent;
            }
            place
        })
        .collect()
}

pub(super) fn compare(
    x: &Operands<'_>,
    holds: fn(Ordering) -> bool,
    left: Value,
    right: Value,
) -> Result<Array, ExecError> {
    let (a, b) = (x.array(left)?, x.array(right)?);
    let shape = common_shape(x, &a.shape, &b.shape)?;
    checked_len(&shape)?;
    let out = match (&a.data, &b.data) {
        (Numbers::F32(p), Numbers::F32(q)) => {
            let pairs = zip(p, &a.shape, q, &b.shape, &shape);
            // Only "not equal" holds of a NaN.
            let not_a_number = holds(Ordering::Less) && holds(Ordering::Greater);
            pairs.map(|(p, q)| p.partial_cmp(&q).map_or(not_a_number, holds)).collect()
        }
        (Numbers::I32(p), Numbers::I32(q)) => {
            zip(p, &a.shape, q, &b.shape, &shape).map(|(p, q)| holds(p.cmp(&q))).collect()
        }
        _ => return Err(x.fail("its operands are of different kinds")),
    };
    Ok(Array::bool(shape, out))
}

pub(super) fn logical(
    x: &Operands<'_>,
    op: fn(bool, bool) -> bool,
    left: Value,
    right: Value,
) -> Result<Array, ExecError> {
    let (a, b) = (x.array(left)?, x.array(right)?);
    let shape = common_shape(x, &a.shape, &b.shape)?;
    checked_len(&shape)?;
    let (Some(p), Some(q)) = (a.as_bool(), b.as_bool()) else {
        return Err(x.fail("its operands are not booleans"));
    };
    let out = zip(p, &a.shape, q, &b.shape, &shape).map(|(p, q)| op(p, q)).collect();
    Ok(Array::bool(shape, out))
}

pub(super) fn logical_not(x: &Operands<'_>, v: Value) -> Result<Array, ExecError> {
    let a = x.array(v)?;
    let p = a.as_bool().ok_or_else(|| x.fail("its operand is not boolean"))?;
    Ok(Array::bool(a.shape.clone(), p.iter().map(|b| !b).collect()))
}

pub(super) fn select(x: &Operands<'_>, op: &Select) -> Result<Array, ExecError> {
    let (cond, a, b) = (x.array(op.cond)?, x.array(op.a)?, x.array(op.b)?);
    let shape = common_shape(x, &a.shape, &b.shape)?;
    let shape = common_shape(x, &cond.shape, &shape)?;
    checked_len(&shape)?;
    let chosen = cond.as_bool().ok_or_else(|| x.fail("its condition is not boolean"))?;
    let chosen: Vec<bool> = places(&cond.shape, &shape).into_iter().map(|i| chosen[i]).collect();
    fn pick<T: Copy>(
        chosen: &[bool],
        (a, a_shape): (&[T], &[usize]),
        (b, b_shape): (&[T], &[usize]),
        shape: &[usize],
    ) -> Vec<T> {
        let pairs = zip(a, a_shape, b, b_shape, shape);
        chosen.iter().zip(pairs).map(|(&c, (a, b))| if c { a } else { b }).collect()
    }
    let data = match (&a.data, &b.data) {
        (Numbers::F32(p), Numbers::F32(q)) => {
            Numbers::F32(pick(&chosen, (p, &a.shape), (q, &b.shape), &shape))
        }
        (Numbers::I32(p), Numbers::I32(q)) => {
            Numbers::I32(pick(&chosen, (p, &a.shape), (q, &b.shape), &shape))
        }
        (Numbers::Bool(p), Numbers::Bool(q)) => {
            Numbers::Bool(pick(&chosen, (p, &a.shape), (q, &b.shape), &shape))
        }
        _ => return Err(x.fail("its operands are of different kinds")),
    };
    Ok(Array { shape, data })
}

pub(super) fn cast(x: &Operands<'_>, op: &Cast) -> Result<Array, ExecError> {
    let a = x.array(op.x)?;
    let shape = a.shape.clone();
    if op.dtype.is_float() {
        let floats: Vec<f32> = match &a.data {
            Numbers::F32(v) => v.clone(),
            Numbers::I32(v) => v.iter().map(|&i| i as f32).collect(),
            Numbers::Bool(v) => v.iter().map(|&b| b.into()).collect(),
        };
        return Ok(x.stored(shape, floats));
    }
    if op.dtype == DType::Bool {
        let truths = match &a.data {
            Numbers::F32(v) => v.iter().map(|&f| f != 0.0).collect(),
            Numbers::I32(v) => v.iter().map(|&i| i != 0).collect(),
            Numbers::Bool(v) => v.clone(),
        };
        return Ok(Array::bool(shape, truths));
    }
    let ints: Vec<i32> = match &a.data {
        // Towards zero, saturating; NaN is 0.
        Numbers::F32(v) => v.iter().map(|&f| f as i32).collect(),
        Numbers::I32(v) => v.clone(),
        Numbers::Bool(v) => v.iter().map(|&b| b.into()).collect(),
    };
    let narrowed = |i: i32| match op.dtype {
        DType::I8 => (i as i8).into(),
        DType::U8 => (i as u8).into(),
        DType::I16 => (i as i16).into(),
        DType::U16 => (i as u16).into(),
        _ => i,
    };
    Ok(Array::i32(shape, ints.into_iter().map(narrowed).collect()))
}

/// NaN stays NaN; an upper end below the lower one wins, as in numpy.
pub(super) fn clip(v: f32, low: f32, high: f32) -> f32 {
    let v = if v < low { low } else { v };
    if v > high { high } else { v }
}

/// The fast kernel of an activation.
pub(crate) fn unary_kernel(op: &Op) -> Option<(Unary, Value)> {
    Some(match op {
        Op::Erf(op) => (Unary::Erf, op.x),
        Op::Exp(op) => (Unary::Exp, op.x),
        Op::Gelu(op) if op.mode == GeluMode::Exact => (Unary::Gelu, op.x),
        Op::Gelu(op) if op.mode == GeluMode::Tanh => (Unary::GeluTanh, op.x),
        Op::Relu(op) => (Unary::Relu, op.x),
        Op::Sigmoid(op) => (Unary::Sigmoid, op.x),
        Op::Silu(op) => (Unary::Silu, op.x),
        Op::Sqrt(op) => (Unary::Sqrt, op.x),
        Op::Square(op) => (Unary::Square, op.x),
        Op::Tanh(op) => (Unary::Tanh, op.x),
        _ => return None,
    })
}

/// An activation, by its fast kernel if it has one.
pub(super) fn activation(x: &Operands<'_>, op: &Op) -> Result<Array, ExecError> {
    match (unary_kernel(op), op) {
        (Some((kernel, v)), _) => {
            let a = x.array(v)?;
            // Squares alone are taken of integers.
            if let (Unary::Square, Some(ints)) = (kernel, a.as_i32()) {
                let squares = ints.iter().map(|&i| i.wrapping_mul(i)).collect();
                return Ok(Array::i32(a.shape.clone(), squares));
            }
            let mut out = x.floats(&a)?.to_vec();
            map_as(kernel, &mut out, x.rounding);
            Ok(x.stored(a.shape.clone(), out))
        }
        (None, Op::Gelu(op)) => gelu_sigmoid(x, op.x),
        _ => super::unary::unary(x, op),
    }
}
