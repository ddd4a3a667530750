//! Conformer layers: half an MLP, attention by relative positions, a convolution over time, half an
//! MLP, a norm.

use russet_ir::ops::*;
use russet_ir::{Tensor, Value};

use super::super::attention::{Heads, merge, mixture, split};
use super::super::json::Activation;
use super::super::net::Bias;
use super::super::scope::Scope;
use super::waves::conv_1d;
use crate::Error;

/// Names of the modules of a layer.
#[derive(Debug)]
pub struct Modules {
    /// Norm, first and second linear layer of each half MLP.
    first_mlp: [&'static str; 3],
    second_mlp: [&'static str; 3],
    attention_norm: &'static str,
    /// Query, key, value and output.
    attention: [&'static str; 4],
    /// The projection of relative positions, and what is added to queries for content and places.
    positions: [&'static str; 3],
    conv_norm: &'static str,
    /// Pointwise, over time, its norm, pointwise.
    conv: [&'static str; 4],
    output_norm: &'static str,
}

pub const WAV2VEC2: Modules = Modules {
    first_mlp: ["ffn1_layer_norm", "ffn1.intermediate_dense", "ffn1.output_dense"],
    second_mlp: ["ffn2_layer_norm", "ffn2.intermediate_dense", "ffn2.output_dense"],
    attention_norm: "self_attn_layer_norm",
    attention: ["linear_q", "linear_k", "linear_v", "linear_out"],
    positions: ["linear_pos", "pos_bias_u", "pos_bias_v"],
    conv_norm: "conv_module.layer_norm",
    conv: [
        "conv_module.pointwise_conv1",
        "conv_module.depthwise_conv",
        "conv_module.batch_norm",
        "conv_module.pointwise_conv2",
    ],
    output_norm: "final_layer_norm",
};

pub const PARAKEET: Modules = Modules {
    first_mlp: ["norm_feed_forward1", "feed_forward1.linear1", "feed_forward1.linear2"],
    second_mlp: ["norm_feed_forward2", "feed_forward2.linear1", "feed_forward2.linear2"],
    attention_norm: "norm_self_att",
    attention: ["q_proj", "k_proj", "v_proj", "o_proj"],
    positions: ["relative_k_proj", "bias_u", "bias_v"],
    conv_norm: "norm_conv",
    conv: ["conv.pointwise_conv1", "conv.depthwise_conv", "conv.norm", "conv.pointwise_conv2"],
    output_norm: "norm_out",
};

/// How attention knows of places.
#[derive(Debug, Clone, Copy)]
pub enum Positions {
    /// A score for each distance, as in Transformer-XL.
    Relative,
    /// What queries and keys are made of is turned by its place.
    Rotary { base: f64 },
    /// Only by what the convolutions make of it.
    Absent,
}

/// A stack of Conformer layers.
#[derive(Debug, Clone, Copy)]
pub struct Conformer {
    pub modules: &'static Modules,
    pub heads: Heads,
    pub intermediate: u64,
    /// Frames the convolution sees; odd.
    pub kernel: u64,
    pub activation: Activation,
    pub positions: Positions,
    pub bias: Bias,
    pub conv_bias: Bias,
}

/// Of norms, as torch has it.
const EPSILON: f32 = 1e-5;

/// What all layers read.
enum Places {
    /// `[1, 2 frames - 1, hidden]`, from the furthest before to the furthest after.
    Distances(Value),
    /// `[1, frames, 1, dim]` each.
    Turns {
        cos: Value,
        sin: Value,
    },
    Nothing,
}

impl Conformer {
    /// The layers `layers.{i}` on `x` `[batch, frames, hidden]`.
    pub fn layers(
        &self,
        s: &mut Scope,
        n_layers: u64,
        frames: u64,
        mut x: Value,
    ) -> Result<Value, Error> {
        let places = match self.positions {
            Positions::Relative => self.distances(s, frames)?,
            Positions::Rotary { base } => self.turns(s, frames, base)?,
            Positions::Absent => Places::Nothing,
        };
        for i in 0..n_layers {
            let mut s = s.inside(&format!("layers.{i}"), &format!("layer_{i}"));
            x = self.layer(&mut s, frames, &places, x)?;
        }
        Ok(x)
    }

    fn layer(&self, s: &mut Scope, frames: u64, places: &Places, x: Value) -> Result<Value, Error> {
        let m = self.modules;
        let norm = (self.heads.width(), EPSILON);
        let x = self.half_mlp(&mut s.part("first"), &m.first_mlp, x)?;
        let normed = s.norm(m.attention_norm, x, norm, "normed")?;
        let y = self.attention(&mut s.inside("self_attn", ""), frames, places, normed)?;
        let x = s.add(y, x, "attention_sum")?;
        let normed = s.norm(m.conv_norm, x, norm, "conv_normed")?;
        let y = self.convolution(&mut s.part("conv"), normed)?;
        let x = s.add(x, y, "conv_sum")?;
        let x = self.half_mlp(&mut s.part("second"), &m.second_mlp, x)?;
        s.norm(m.output_norm, x, norm, "output")
    }

    fn half_mlp(
        &self,
        s: &mut Scope,
        [norm, up, down]: &[&str; 3],
        x: Value,
    ) -> Result<Value, Error> {
        let (n, inner) = (self.heads.width(), self.intermediate);
        let normed = s.norm(norm, x, (n, EPSILON), "normed")?;
        let y = s.linear(up, normed, (n, inner), self.bias, "up")?;
        let y = s.activation(self.activation, y, "active")?;
        let y = s.linear(down, y, (inner, n), self.bias, "down")?;
        let y = s.scaled(y, 0.5, "half")?;
        s.add(y, x, "sum")
    }

    fn attention(
        &self,
        s: &mut Scope,
        frames: u64,
        places: &Places,
        x: Value,
    ) -> Result<Value, Error> {
        let h = self.heads;
        let square = (h.width(), h.width());
        let [query, key, value, output] = self.modules.attention;
        let asked = match places {
            Places::Distances(_) | Places::Nothing => x,
            Places::Turns { cos, sin } => turned(s, h, frames, x, (*cos, *sin))?,
        };
        let mut query = s.linear(query, asked, square, self.bias, "query")?;
        let key = s.linear(key, asked, square, self.bias, "key")?;
        let value = s.linear(value, x, square, self.bias, "value")?;
        let mut added = Vec::new();
        if let Places::Distances(table) = places {
            let [_, content, _] = self.modules.positions;
            added.push(self.by_distance(s, frames, *table, query)?);
            let shape = [h.count, h.dim];
            let content = s.tensor(content, &shape)?.reshaped(vec![1, 1, h.width()]);
            let content = s.constant(content, "content_bias")?;
            query = s.add(query, content, "content_query")?;
        }
        let query = split(s, query, h, frames, "query")?;
        let key = split(s, key, h, frames, "key")?;
        let value = split(s, value, h, frames, "value")?;
        let mixed = mixture(s, [query, key, value], Some(h.scale()), &added)?;
        let context = merge(s, mixed, h, frames, "context")?;
        s.linear(output, context, square, self.bias, "attention")
    }

    /// `[batch, heads, frames, frames]`: what each query says to each distance. Products are made for
    /// all distances in order; shifting row `i` by `i` puts them at their keys.
    fn by_distance(
        &self,
        s: &mut Scope,
        frames: u64,
        table: Value,
        query: Value,
    ) -> Result<Value, Error> {
        let h = self.heads;
        let (width, n) = (h.width(), 2 * frames - 1);
        let [projection, _, place] = self.modules.positions;
        let place = s.tensor(place, &[h.count, h.dim])?.reshaped(vec![1, 1, width]);
        let place = s.constant(place, "place_bias")?;
        let query = s.add(query, place, "place_query")?;
        let query = split(s, query, h, frames, "place_query")?;
        let keys = s.linear(projection, table, (width, width), Bias::Absent, "distance_key")?;
        let keys = split(s, keys, Heads { batch: 1, ..h }, n, "distance_key")?;
        let product = Matmul { x: query, y: keys, transpose_x: false, transpose_y: true };
        let scores = s.op(product, "distance_scores")?;
        let pad = s.constant(Tensor::i32(vec![2], &[1, 0]), "shift_pad")?;
        let (mode, constant_val) = (PadMode::Constant, None);
        let wide = s.op(Pad { x: scores, pad, mode, constant_val }, "shift_wide")?;
        let tall = s.reshape(wide, &[h.batch, h.count, n + 1, frames], "shift_tall")?;
        let tall = s.slice(tall, (2, 4), (1, n + 1), "shifted_tall")?;
        let shifted = s.reshape(tall, &[h.batch, h.count, frames, n], "shifted")?;
        let kept = s.slice(shifted, (3, 4), (0, frames), "place_scores")?;
        s.scaled(kept, h.scale(), "scaled_place_scores")
    }

    /// Gated, convolved over time, normed, activated, projected.
    fn convolution(&self, s: &mut Scope, x: Value) -> Result<Value, Error> {
        let [first, over_time, norm, last] = self.modules.conv;
        let n = self.heads.width();
        let both = self.pointwise(s, first, x, (n, 2 * n), "both")?;
        let halves = s.parts(both, 2, -1, "half")?;
        let gate = s.op(Sigmoid { x: halves[1] }, "gate")?;
        let x = s.mul(halves[0], gate, "gated")?;
        let x = s.transpose(x, &[0, 2, 1], "columns")?;
        let weight = s.weight(&format!("{over_time}.weight"), &[n, 1, self.kernel], "weight")?;
        let bias = match self.conv_bias {
            Bias::Present => Some(s.weight(&format!("{over_time}.bias"), &[n], "bias")?),
            Bias::Absent => None,
        };
        let around = (self.kernel - 1) / 2;
        let x = s.op(conv_1d(x, (weight, bias), 1, [around, around], n), "over_time")?;
        let mut of =
            |part: &str| s.weight(&format!("{norm}.{part}"), &[n], &format!("norm_{part}"));
        let (mean, variance) = (of("running_mean")?, of("running_var")?);
        let (gamma, beta) = (Some(of("weight")?), Some(of("bias")?));
        let epsilon = EPSILON;
        let x = s.op(BatchNorm { x, mean, variance, gamma, beta, epsilon }, "over_time_normed")?;
        let x = s.activation(self.activation, x, "active")?;
        let x = s.transpose(x, &[0, 2, 1], "rows")?;
        self.pointwise(s, last, x, (n, n), "projected")
    }

    /// A convolution that sees one frame is a linear layer.
    fn pointwise(
        &self,
        s: &mut Scope,
        module: &str,
        x: Value,
        (n_in, n_out): (u64, u64),
        name: &str,
    ) -> Result<Value, Error> {
        let weight = s.tensor(&format!("{module}.weight"), &[n_out, n_in, 1])?;
        let weight = weight.reshaped(vec![n_out, n_in]);
        let weight = s.constant(weight, &format!("{name}_weight"))?;
        let bias = match self.conv_bias {
            Bias::Present => {
                Some(s.weight(&format!("{module}.bias"), &[n_out], &format!("{name}_bias"))?)
            }
            Bias::Absent => None,
        };
        s.op(Linear { x, weight, bias }, name)
    }

    /// Sines and cosines of each distance, the longest wave last.
    fn distances(&self, s: &mut Scope, frames: u64) -> Result<Places, Error> {
        let n = self.heads.width();
        let rates: Vec<f32> = (0..n.div_ceil(2)).map(|i| rate(2 * i, n, 10000.0)).collect();
        let mut table = Vec::with_capacity(((2 * frames - 1) * n) as usize);
        for distance in (1 - frames as i64..frames as i64).rev() {
            for i in 0..n as usize {
                let angle = distance as f32 * rates[i / 2];
                table.push(if i % 2 == 0 { angle.sin() } else { angle.cos() });
            }
        }
        let table = Tensor::f32(vec![1, 2 * frames - 1, n], &table);
        Ok(Places::Distances(s.constant(table, "distances")?))
    }

    fn turns(&self, s: &mut Scope, frames: u64, base: f64) -> Result<Places, Error> {
        let dim = self.heads.dim;
        let rates: Vec<f32> = (0..dim / 2).map(|i| rate(2 * i, dim, base as f32)).collect();
        let mut table = |f: fn(f32) -> f32, name: &str| {
            let row = |t: u64| rates.iter().chain(&rates).map(move |r| f(t as f32 * r));
            let all: Vec<f32> = (0..frames).flat_map(row).collect();
            s.constant(Tensor::f32(vec![1, frames, 1, dim / 2 * 2], &all), name)
        };
        Ok(Places::Turns { cos: table(f32::cos, "cos")?, sin: table(f32::sin, "sin")? })
    }
}

/// Radians per frame of column `i` of `n`.
fn rate(i: u64, n: u64, base: f32) -> f32 {
    1.0 / base.powf(i as f32 / n as f32)
}

/// Each head's columns turned by their place, the halves being the two sides of each angle.
fn turned(
    s: &mut Scope,
    h: Heads,
    frames: u64,
    x: Value,
    (cos, sin): (Value, Value),
) -> Result<Value, Error> {
    let mut s = s.part("turned");
    let heads = s.reshape(x, &[h.batch, frames, h.count, h.dim], "heads")?;
    let halves = s.parts(heads, 2, -1, "half")?;
    let minus = s.scaled(halves[1], -1.0, "minus")?;
    let crossed = s.concat(vec![minus, halves[0]], -1, "crossed")?;
    let a = s.mul(heads, cos, "along")?;
    let b = s.mul(crossed, sin, "across")?;
    let sum = s.add(a, b, "sum")?;
    s.reshape(sum, &[h.batch, frames, h.width()], "tokens")
}
