//! Functions of one number without a fast kernel, and activations with parameters.
//!
//! Transcendental functions are computed in f64 and rounded once, so that what the libraries of two
//! systems differ by does not reach the result.

use russet_ir::ops::{Exp2, Prelu, SoftplusParametric, Threshold};
use russet_ir::{Number, Op, Value};

use super::Operands;
use super::elementwise::clip;
use crate::ane::special::{self, from_odd_pi};
use crate::kernels::binary::Binary;
use crate::kernels::math;
use crate::{Array, ExecError, Numbers};

/// Runs the ops of this file.
pub(super) fn unary(x: &Operands<'_>, op: &Op) -> Result<Array, ExecError> {
    match op {
        Op::Abs(op) => either(x, op.x, f32::abs, i32::wrapping_abs),
        Op::Acos(op) => wide(x, op.x, f64::acos),
        Op::Asin(op) => wide(x, op.x, f64::asin),
        Op::Atan(op) => {
            wide(x, op.x, |v| special::seam(v.atan(), (v.abs() - 1.0).abs(), x.rounding))
        }
        Op::Atanh(op) => wide(x, op.x, f64::atanh),
        Op::Ceil(op) => map(x, op.x, f32::ceil),
        Op::Clip(op) => map(x, op.x, |v| clip(v, op.alpha, op.beta)),
        Op::Cos(op) => wide(x, op.x, |v| special::seam(v.cos(), from_odd_pi(v), x.rounding)),
        Op::Cosh(op) => wide(x, op.x, f64::cosh),
        Op::Exp2(op) => exp2(x, op),
        Op::Floor(op) => map(x, op.x, f32::floor),
        Op::Inverse(op) => map(x, op.x, |v| 1.0 / (v + op.epsilon)),
        Op::Log(op) => map(x, op.x, |v| {
            let v = f64::from(v) + f64::from(op.epsilon);
            special::log(v, v.ln() as f32, x.rounding)
        }),
        Op::Round(op) => map(x, op.x, f32::round_ties_even),
        Op::Rsqrt(op) => map(x, op.x, |v| 1.0 / (v + op.epsilon).sqrt()),
        Op::Sign(op) => either(x, op.x, sign, i32::signum),
        Op::Sin(op) => wide(x, op.x, |v| special::seam(v.sin(), from_odd_pi(v), x.rounding)),
        Op::Sinh(op) => wide(x, op.x, f64::sinh),
        Op::Tan(op) => wide(x, op.x, f64::tan),
        Op::Threshold(op) => threshold(x, op),
        Op::ClampedRelu(op) => {
            map(x, op.x, |v| Binary::Min.of(if v < 0.0 { op.alpha * v } else { v }, op.beta))
        }
        Op::Elu(op) => {
            wide(x, op.x, |v| if v < 0.0 { f64::from(op.alpha) * v.exp_m1() } else { v })
        }
        Op::LeakyRelu(op) => map(x, op.x, |v| if v < 0.0 { op.alpha * v } else { v }),
        Op::LinearActivation(op) => map(x, op.x, |v| op.alpha * v + op.beta),
        Op::Prelu(op) => prelu(x, op),
        Op::Relu6(op) => map(x, op.x, |v| clip(v, 0.0, 6.0)),
        Op::ScaledTanh(op) => {
            wide(x, op.x, |v| f64::from(op.alpha) * (f64::from(op.beta) * v).tanh())
        }
        Op::SigmoidHard(op) => map(x, op.x, |v| clip(op.alpha * v + op.beta, 0.0, 1.0)),
        Op::Softplus(op) => {
            map(x, op.x, |v| special::softplus(v.into(), softplus(v.into()) as f32, x.rounding))
        }
        Op::SoftplusParametric(op) => softplus_parametric(x, op),
        Op::Softsign(op) => map(x, op.x, |v| v / (1.0 + v.abs())),
        Op::ThresholdedRelu(op) => map(x, op.x, |v| if v < op.alpha { 0.0 } else { v }),
        _ => Err(x.fail("it is no function of one number")),
    }
}

/// A function of floats.
pub(super) fn map(x: &Operands<'_>, v: Value, f: impl Fn(f32) -> f32) -> Result<Array, ExecError> {
    let a = x.array(v)?;
    let out = x.floats(&a)?.iter().map(|&v| f(v)).collect();
    Ok(x.stored(a.shape.clone(), out))
}

/// A function of floats computed in f64.
fn wide(x: &Operands<'_>, v: Value, f: impl Fn(f64) -> f64) -> Result<Array, ExecError> {
    map(x, v, |v| f(v.into()) as f32)
}

/// A function of floats, or its counterpart on integers.
fn either(
    x: &Operands<'_>,
    v: Value,
    float: impl Fn(f32) -> f32,
    int: impl Fn(i32) -> i32,
) -> Result<Array, ExecError> {
    let a = x.array(v)?;
    match a.as_i32() {
        Some(ints) => Ok(Array::i32(a.shape.clone(), ints.iter().map(|&i| int(i)).collect())),
        None => map(x, v, float),
    }
}

/// -1, 0 or 1; NaN stays NaN.
fn sign(v: f32) -> f32 {
    if v > 0.0 {
        1.0
    } else if v < 0.0 {
        -1.0
    } else {
        v
    }
}

/// Powers of two; of integers, towards zero and at most the largest int32.
fn exp2(x: &Operands<'_>, op: &Exp2) -> Result<Array, ExecError> {
    let a = x.array(op.x)?;
    match a.as_i32() {
        Some(_) => either(x, op.x, |v| v, |i| f64::from(i).exp2() as i32),
        None => wide(x, op.x, f64::exp2),
    }
}

/// The larger of each element and a bound.
fn threshold(x: &Operands<'_>, op: &Threshold) -> Result<Array, ExecError> {
    let a = x.array(op.x)?;
    match (&a.data, op.alpha) {
        (Numbers::I32(_), Number::Int(low)) => either(x, op.x, |v| v, |i| i.max(low)),
        (Numbers::I32(_), _) => Err(x.fail("alpha is a float, x is not")),
        (_, alpha) => map(x, op.x, |v| Binary::Max.of(v, alpha.to_f32())),
    }
}

/// `log(1 + exp(v))` without an overflow on the way.
fn softplus(v: f64) -> f64 {
    (-v.abs()).exp().ln_1p() + if v < 0.0 { 0.0 } else { v }
}

fn prelu(x: &Operands<'_>, op: &Prelu) -> Result<Array, ExecError> {
    let alpha = x.array(op.alpha)?;
    let alpha = x.floats(&alpha)?;
    per_channel(x, op.x, alpha.len(), |c, v| if v < 0.0 { alpha[c] * v } else { v })
}

fn softplus_parametric(x: &Operands<'_>, op: &SoftplusParametric) -> Result<Array, ExecError> {
    let (alpha, beta) = (x.array(op.alpha)?, x.array(op.beta)?);
    let (alpha, beta) = (x.floats(&alpha)?, x.floats(&beta)?);
    if alpha.len() != beta.len() {
        return Err(x.fail("alpha and beta are of different lengths"));
    }
    per_channel(x, op.x, alpha.len(), |c, v| {
        let v = f64::from(beta[c]) * f64::from(v);
        (f64::from(alpha[c]) * f64::from(special::softplus(v, 1.0, x.rounding)) * softplus(v))
            as f32
    })
}

/// A function that depends on the channel, which is the second axis.
fn per_channel(
    x: &Operands<'_>,
    v: Value,
    n_channels: usize,
    f: impl Fn(usize, f32) -> f32,
) -> Result<Array, ExecError> {
    let a = x.array(v)?;
    if a.shape.get(1) != Some(&n_channels) {
        return Err(x.fail(format!("{n_channels} parameters for channels of {:?}", a.shape)));
    }
    let inner: usize = a.shape[2..].iter().product();
    let numbers = x.floats(&a)?.iter().enumerate();
    let out = numbers.map(|(i, &v)| f(i / inner % n_channels, v)).collect();
    Ok(x.stored(a.shape.clone(), out))
}

/// The older approximation of GELU by a sigmoid.
pub(super) fn gelu_sigmoid(x: &Operands<'_>, v: Value) -> Result<Array, ExecError> {
    map(x, v, |v| v * math::sigmoid(1.702 * v))
}
