//! What denoising is conditioned on, as one vector per picture, and norms that follow it.
//!
//! Vectors are kept as `[batch, 1, width]`: they broadcast over tokens as they are, and a linear
//! layer on them becomes a convolution like any other.

use russet_ir::ops::*;
use russet_ir::{DType, Dim, Tensor, TensorType, Value};

use super::super::net::Bias;
use super::super::scope::Scope;
use crate::Error;

/// Waves that a time is turned into.
pub const N_WAVES: u64 = 256;

/// Steps of all schedulers diffusers has.
const N_STEPS: u64 = 1000;

/// Radians per step of wave `i` of half of them; `shift` as diffusers' `downscale_freq_shift`.
fn rate(i: u64, shift: u64) -> f32 {
    let half = N_WAVES / 2;
    (-(10000f32.ln()) * i as f32 / (half - shift) as f32).exp()
}

/// The input `timestep`, whole numbers below 1000, int32 `[batch]`, as waves `[batch, 1, waves]`.
///
/// They come from a table: in fp16 the product of a time and a rate is off by up to a quarter of a
/// radian, and sines of large angles are nothing the Neural Engine has.
pub fn whole_time(s: &mut Scope, batch: u64, shift: u64) -> Result<Value, Error> {
    let ty = TensorType::new(DType::I32, [Dim::Fixed(batch)]);
    let time = s.net.graph.add_input("timestep", ty);
    let rates: Vec<f32> = (0..N_WAVES / 2).map(|i| rate(i, shift)).collect();
    let row = |t: u64| {
        let angles = rates.iter().map(move |r| t as f32 * r);
        angles.clone().map(f32::cos).chain(angles.map(f32::sin)).collect::<Vec<f32>>()
    };
    let table: Vec<f32> = (0..N_STEPS).flat_map(row).collect();
    let table = s.constant(Tensor::f32(vec![N_STEPS, N_WAVES], &table), "time_table")?;
    let (batch_dims, validate_indices) = (0, false);
    let gather = Gather { x: table, indices: time, axis: 0, batch_dims, validate_indices };
    let waves = s.op(gather, "time_row")?;
    s.reshape(waves, &[batch, 1, N_WAVES], "time_waves")
}

/// The input `name`, any number, fp32 `[batch, n]` or `[batch]` for one, as waves
/// `[batch, n, waves]`; `factor` comes first.
pub fn waves_of(
    s: &mut Scope,
    name: &str,
    (batch, n): (u64, Option<u64>),
    factor: f32,
) -> Result<Value, Error> {
    let shape: Vec<Dim> = std::iter::once(batch).chain(n).map(Dim::Fixed).collect();
    let x = s.net.graph.add_input(name, TensorType::new(DType::F32, shape));
    let mut s = s.part(name);
    let mut x = s.reshape(x, &[batch, n.unwrap_or(1), 1], "column")?;
    if factor != 1.0 {
        x = s.scaled(x, factor, "scaled")?;
    }
    let half = N_WAVES / 2;
    let rates: Vec<f32> = (0..half).map(|i| rate(i, 0)).collect();
    let rates = s.constant(Tensor::f32(vec![1, 1, half], &rates), "rates")?;
    let angles = s.mul(x, rates, "angles")?;
    let cos = s.op(Cos { x: angles }, "cos")?;
    let sin = s.op(Sin { x: angles }, "sin")?;
    s.concat(vec![cos, sin], -1, "waves")
}

/// Two linear layers `linear_1` and `linear_2` of `module` with silu between.
pub fn embedder(
    s: &mut Scope,
    module: &str,
    x: Value,
    (n_in, n): (u64, u64),
    name: &str,
) -> Result<Value, Error> {
    let mut inner = s.inside(module, name);
    let up = inner.linear("linear_1", x, (n_in, n), Bias::Present, "up")?;
    let active = inner.op(Silu { x: up }, "active")?;
    inner.linear("linear_2", active, (n, n), Bias::Present, "embedded")
}

/// The linear layer `module` on `silu(condition)`, as `n` vectors.
pub fn modulation(
    s: &mut Scope,
    module: &str,
    condition: Value,
    width: u64,
    n: u64,
) -> Result<Vec<Value>, Error> {
    let mut s = s.part("modulation");
    let active = s.op(Silu { x: condition }, "active")?;
    let all = s.linear(module, active, (width, n * width), Bias::Present, "all")?;
    s.parts(all, n as i32, -1, "part")
}

/// `norm(x) * (1 + scale) + shift`, the norm having no weights.
pub fn modulated(
    s: &mut Scope,
    x: Value,
    (shift, scale): (Value, Value),
    epsilon: f32,
    name: &str,
) -> Result<Value, Error> {
    let normed = s.plain_norm(x, epsilon, &format!("{name}_norm"))?;
    let one = s.scalar(1.0, &format!("{name}_one"))?;
    let factor = s.add(scale, one, &format!("{name}_factor"))?;
    let scaled = s.mul(normed, factor, &format!("{name}_scaled"))?;
    s.add(scaled, shift, name)
}

/// `x + gate * y`.
pub fn gated_sum(
    s: &mut Scope,
    x: Value,
    gate: Value,
    y: Value,
    name: &str,
) -> Result<Value, Error> {
    let gated = s.mul(gate, y, &format!("{name}_gated"))?;
    s.add(gated, x, name)
}
