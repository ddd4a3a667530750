//! Attention and layers of it, as most transformers have them, on fixed shapes.

use russet_ir::ops::*;
use russet_ir::{Tensor, Value};

use super::json::Activation;
use super::net::Bias;
use super::scope::Scope;
use crate::Error;

/// What masked scores are lowered by: the lowest f32, as in `transformers`.
pub const MASKED: f32 = f32::MIN;

/// The numbers of an attention.
#[derive(Debug, Clone, Copy)]
pub struct Heads {
    pub batch: u64,
    pub count: u64,
    pub dim: u64,
}

impl Heads {
    pub fn width(&self) -> u64 {
        self.count * self.dim
    }

    /// `1 / sqrt(dim)`.
    pub fn scale(&self) -> f32 {
        (1.0 / (self.dim as f64).sqrt()) as f32
    }
}

/// Modules of an attention, and which of them have a bias.
#[derive(Debug, Clone, Copy)]
pub struct Projections {
    pub query: (&'static str, Bias),
    pub key: (&'static str, Bias),
    pub value: (&'static str, Bias),
    pub output: (&'static str, Bias),
}

impl Projections {
    /// All of them with a bias.
    pub const fn biased(
        query: &'static str,
        key: &'static str,
        value: &'static str,
        output: &'static str,
    ) -> Projections {
        let b = Bias::Present;
        Projections { query: (query, b), key: (key, b), value: (value, b), output: (output, b) }
    }
}

/// `[batch, length, count * dim]` as `[batch, count, length, dim]`.
pub fn split(s: &mut Scope, x: Value, h: Heads, length: u64, name: &str) -> Result<Value, Error> {
    let shape = [h.batch, length, h.count, h.dim];
    let split = s.reshape(x, &shape, &format!("{name}_split"))?;
    s.transpose(split, &[0, 2, 1, 3], &format!("{name}_heads"))
}

/// The opposite of [`split`].
pub fn merge(s: &mut Scope, x: Value, h: Heads, length: u64, name: &str) -> Result<Value, Error> {
    let tokens = s.transpose(x, &[0, 2, 1, 3], &format!("{name}_tokens"))?;
    s.reshape(tokens, &[h.batch, length, h.width()], name)
}

/// Mixtures of `value` by how `query` and `key` agree, all of them in heads; `added` to the scores,
/// one after another.
pub fn mixture(
    s: &mut Scope,
    [query, key, value]: [Value; 3],
    scale: Option<f32>,
    added: &[Value],
) -> Result<Value, Error> {
    let product = Matmul { x: query, y: key, transpose_x: false, transpose_y: true };
    let mut scores = s.op(product, "scores")?;
    if let Some(scale) = scale {
        scores = s.scaled(scores, scale, "scaled_scores")?;
    }
    for (i, &y) in added.iter().enumerate() {
        scores = s.add(scores, y, &format!("scores_{i}"))?;
    }
    let weights = s.op(Softmax { x: scores, axis: -1 }, "probabilities")?;
    let mix = Matmul { x: weights, y: value, transpose_x: false, transpose_y: false };
    s.op(mix, "mixed")
}

/// What an attention reads: queries of one sequence, keys and values of another or the same.
#[derive(Debug, Clone, Copy)]
pub struct Reads {
    /// The sequence with its length and columns.
    pub from: (Value, u64, u64),
    pub to: (Value, u64, u64),
}

impl Reads {
    /// A sequence reads itself.
    pub fn itself(x: Value, length: u64, columns: u64) -> Reads {
        Reads { from: (x, length, columns), to: (x, length, columns) }
    }
}

/// The attention of `modules` with its output projected to `n_out` columns, called `name`.
pub fn attention(
    s: &mut Scope,
    modules: &Projections,
    h: Heads,
    reads: Reads,
    (scale, added): (Option<f32>, &[Value]),
    n_out: u64,
    name: &str,
) -> Result<Value, Error> {
    let ((x, length, n_in), (y, other, n_other)) = (reads.from, reads.to);
    let mut heads = |(module, bias), of, (n, len), part: &str| {
        let z = s.linear(module, of, (n, h.width()), bias, part)?;
        split(s, z, h, len, part)
    };
    let query = heads(modules.query, x, (n_in, length), "query")?;
    let key = heads(modules.key, y, (n_other, other), "key")?;
    let value = heads(modules.value, y, (n_other, other), "value")?;
    let mixed = mixture(s, [query, key, value], scale, added)?;
    let context = merge(s, mixed, h, length, "context")?;
    s.linear(modules.output.0, context, (h.width(), n_out), modules.output.1, name)
}

/// Two linear layers with an activation between.
pub fn mlp(
    s: &mut Scope,
    [up, down]: [&str; 2],
    x: Value,
    (n, inner): (u64, u64),
    activation: Activation,
    name: &str,
) -> Result<Value, Error> {
    let up = s.linear(up, x, (n, inner), Bias::Present, "up")?;
    let active = s.activation(activation, up, "active")?;
    s.linear(down, active, (inner, n), Bias::Present, name)
}

/// Where the norms of a layer stand: before attention and MLP, or after their sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Norms {
    Before,
    After,
}

/// The usual layer: attention and an MLP, each with a norm and a sum. Names are below the layer.
#[derive(Debug, Clone, Copy)]
pub struct Layer {
    pub attention: Projections,
    pub norms: Norms,
    pub attention_norm: &'static str,
    pub mlp_norm: &'static str,
    pub up: &'static str,
    pub down: &'static str,
    /// Factors per channel of what attention and MLP add.
    pub factors: Option<[&'static str; 2]>,
}

/// The numbers of such a layer.
#[derive(Debug, Clone, Copy)]
pub struct LayerSizes {
    pub heads: Heads,
    pub length: u64,
    pub intermediate: u64,
    pub epsilon: f32,
    pub activation: Activation,
}

impl Layer {
    /// The layer on `x`, its result called `output`. `gated` makes the MLP's result where it is no
    /// plain one.
    pub fn build(
        &self,
        s: &mut Scope,
        z: &LayerSizes,
        x: Value,
        added: &[Value],
    ) -> Result<Value, Error> {
        let plain = |s: &mut Scope, x: Value| {
            let sizes = (z.heads.width(), z.intermediate);
            mlp(s, [self.up, self.down], x, sizes, z.activation, "down")
        };
        self.build_with(s, z, x, added, plain)
    }

    /// The same with another MLP.
    pub fn build_with(
        &self,
        s: &mut Scope,
        z: &LayerSizes,
        x: Value,
        added: &[Value],
        mlp: impl FnOnce(&mut Scope, Value) -> Result<Value, Error>,
    ) -> Result<Value, Error> {
        let width = z.heads.width();
        let norm = (width, z.epsilon);
        let before = self.norms == Norms::Before;
        let read = match before {
            true => s.norm(self.attention_norm, x, norm, "normed")?,
            false => x,
        };
        let reads = Reads::itself(read, z.length, width);
        let scores = (Some(z.heads.scale()), added);
        let mut y = attention(s, &self.attention, z.heads, reads, scores, width, "attention")?;
        if let Some([factor, _]) = self.factors {
            let factor = s.weight(factor, &[width], "attention_factor")?;
            y = s.mul(y, factor, "attention_scaled")?;
        }
        let mut sum = s.add(y, x, "attention_sum")?;
        if !before {
            sum = s.norm(self.attention_norm, sum, norm, "attended")?;
        }
        let read = match before {
            true => s.norm(self.mlp_norm, sum, norm, "attention_normed")?,
            false => sum,
        };
        let mut y = mlp(s, read)?;
        if let Some([_, factor]) = self.factors {
            let factor = s.weight(factor, &[width], "mlp_factor")?;
            y = s.mul(y, factor, "mlp_scaled")?;
        }
        match before {
            true => s.add(y, sum, "output"),
            false => {
                let sum = s.add(y, sum, "sum")?;
                s.norm(self.mlp_norm, sum, norm, "output")
            }
        }
    }
}

/// `[batch, 1, 1, length]`: 0 for tokens, [`MASKED`] for padding, of an int32 mask of ones and zeros.
pub fn padding_bias(s: &mut Scope, mask: Value) -> Result<Value, Error> {
    let mut s = s.part("mask");
    let mask = s.op(Cast { x: mask, dtype: russet_ir::DType::F32 }, "float")?;
    let rows = s.op(ExpandDims { x: mask, axes: vec![1, 2] }, "rows")?;
    let one = s.scalar(1.0, "one")?;
    let padding = s.op(Sub { x: one, y: rows }, "padding")?;
    let masked = s.scalar(MASKED, "masked")?;
    s.mul(padding, masked, "bias")
}

/// `[1, 1, length, length]`: each token sees itself and those before.
pub fn causal_bias(s: &mut Scope, length: u64) -> Result<Value, Error> {
    let n = length as usize;
    let bias: Vec<f32> = (0..n * n).map(|i| if i % n > i / n { MASKED } else { 0.0 }).collect();
    s.constant(Tensor::f32(vec![1, 1, length, length], &bias), "causal_bias")
}

/// `x` over its length along the last axis.
pub fn unit(s: &mut Scope, x: Value, name: &str) -> Result<Value, Error> {
    let norm = ReduceL2Norm { x, axes: Some(vec![-1]), keep_dims: true };
    let norm = s.op(norm, &format!("{name}_length"))?;
    s.op(RealDiv { x, y: norm }, name)
}
