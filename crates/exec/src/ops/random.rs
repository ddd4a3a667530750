//! Ops that draw numbers.
//!
//! A number depends on the seed and its place alone, so that a run can be repeated; Core ML's
//! generators are not public, and its numbers are others.

use russet_ir::Value;
use russet_ir::ops::{
    CategoricalMode, RandomBernoulli, RandomCategorical, RandomNormal, RandomUniform,
};

use super::{Operands, checked_len};
use crate::{Array, ExecError};

/// A stream of numbers, all 64 bits of each as good as random: SplitMix64 (Steele, Lea and Flood,
/// "Fast splittable pseudorandom number generators", 2014).
struct Stream {
    state: u64,
}

impl Stream {
    fn new(seed: i32) -> Stream {
        Stream { state: u64::from(seed as u32) << 32 | 0x5eed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = self.state;
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to below 1, in steps of 2^-24: those f32 has there.
    fn fraction(&mut self) -> f64 {
        (self.next() >> 40) as f64 / f64::from(1 << 24)
    }

    /// Of mean 0 and deviation 1, after Box and Muller.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.fraction()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.fraction()).cos()
    }
}

/// A parameter that is a single number.
fn parameter(x: &Operands<'_>, v: Option<Value>, absent: f64) -> Result<f64, ExecError> {
    let Some(v) = v else { return Ok(absent) };
    let a = x.array(v)?;
    match x.floats(&a)? {
        [one] => Ok((*one).into()),
        other => Err(x.fail(format!("{} numbers, one is expected", other.len()))),
    }
}

fn drawn(
    x: &Operands<'_>,
    shape: Value,
    seed: i32,
    draw: impl Fn(&mut Stream) -> f64,
) -> Result<Array, ExecError> {
    let shape = x.extents(shape)?;
    let n = checked_len(&shape)?;
    let mut stream = Stream::new(seed);
    Ok(x.stored(shape, (0..n).map(|_| draw(&mut stream) as f32).collect()))
}

pub(super) fn bernoulli(x: &Operands<'_>, op: &RandomBernoulli) -> Result<Array, ExecError> {
    let p = parameter(x, op.prob, 0.5)?;
    drawn(x, op.shape, op.seed, |s| f64::from(u8::from(s.fraction() < p)))
}

pub(super) fn normal(x: &Operands<'_>, op: &RandomNormal) -> Result<Array, ExecError> {
    let (mean, deviation) = (parameter(x, op.mean, 0.0)?, parameter(x, op.stddev, 1.0)?);
    drawn(x, op.shape, op.seed, |s| mean + deviation * s.normal())
}

pub(super) fn uniform(x: &Operands<'_>, op: &RandomUniform) -> Result<Array, ExecError> {
    let (low, high) = (parameter(x, op.low, 0.0)?, parameter(x, op.high, 1.0)?);
    drawn(x, op.shape, op.seed, |s| low + (high - low) * s.fraction())
}

pub(super) fn categorical(x: &Operands<'_>, op: &RandomCategorical) -> Result<Array, ExecError> {
    let a = x.array(op.x)?;
    let n = *a.shape.last().ok_or_else(|| x.fail("it has no classes"))?;
    let size = usize::try_from(op.size).map_err(|_| x.fail(format!("{} draws", op.size)))?;
    let mut shape = a.shape.clone();
    *shape.last_mut().expect("checked above") = size;
    let mut out = Vec::with_capacity(checked_len(&shape)?);
    let mut stream = Stream::new(op.seed);
    for row in x.floats(&a)?.chunks(n.max(1)) {
        let weights = weights(row, op.mode);
        let total: f64 = weights.iter().sum();
        if !(total > 0.0 && total.is_finite()) {
            return Err(x.fail(format!("a row of {row:?} is no distribution")));
        }
        out.extend((0..size).map(|_| class(&weights, stream.fraction() * total) as f32));
    }
    if out.len() != checked_len(&shape)? {
        return Err(x.fail("it has no classes"));
    }
    Ok(x.stored(shape, out))
}

/// What each class weighs.
fn weights(row: &[f32], mode: CategoricalMode) -> Vec<f64> {
    match mode {
        CategoricalMode::Probabilities => row.iter().map(|&p| p.into()).collect(),
        CategoricalMode::Logits => {
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            row.iter().map(|&x| (f64::from(x) - f64::from(max)).exp()).collect()
        }
    }
}

/// The class in whose share of the weights `at` lies; never one without weight.
fn class(weights: &[f64], mut at: f64) -> usize {
    for (i, w) in weights.iter().enumerate() {
        if at < *w {
            return i;
        }
        at -= w;
    }
    weights.iter().rposition(|&w| w > 0.0).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(draw: impl Fn(&mut Stream) -> f64) -> (f64, f64) {
        let mut stream = Stream::new(7);
        let all: Vec<f64> = (0..20_000).map(|_| draw(&mut stream)).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        (mean, all.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / all.len() as f64)
    }

    /// Four deviations of the estimates themselves.
    #[test]
    fn distributions_have_their_moments() {
        let (mean, variance) = moments(Stream::fraction);
        assert!((mean - 0.5).abs() < 0.009 && (variance - 1.0 / 12.0).abs() < 0.003);
        let (mean, variance) = moments(Stream::normal);
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.04, "{mean} {variance}");
        let weights = weights(&[0.0, f32::NEG_INFINITY, 2f32.ln()], CategoricalMode::Logits);
        let total: f64 = weights.iter().sum();
        let (mean, _) = moments(|s| class(&weights, s.fraction() * total) as f64 / 2.0);
        assert!((mean - 2.0 / 3.0).abs() < 0.014, "{mean}");
        assert_eq!(class(&[0.5, 0.0], 0.5), 0);
    }

    #[test]
    fn seeds_make_streams_of_their_own() {
        let first = |seed| Stream::new(seed).next();
        assert_eq!(first(3), first(3));
        assert_ne!(first(3), first(-3));
    }
}
