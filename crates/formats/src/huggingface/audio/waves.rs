//! What wav2vec 2.0 and its kin do with samples before their layers: a stack of convolutions, a
//! projection, and positions by a wide convolution.

use russet_ir::ops::*;
use russet_ir::{DType, Dim, Tensor, TensorType, Value};

use super::super::json::{Activation, Json};
use super::super::net::Bias;
use super::super::scope::Scope;
use crate::Error;

/// The stack of convolutions over samples.
#[derive(Debug, Clone)]
pub struct Waves {
    /// Channels, kernel and stride of each.
    convs: Vec<[u64; 3]>,
    bias: Bias,
    /// Is each normed over its channels, rather than the first over time?
    layer_norm: bool,
    activation: Activation,
    /// Is there a norm before the projection?
    projects_normed: bool,
    hidden: u64,
    epsilon: f32,
    /// Kernel and groups of the convolution that makes positions.
    positions: [u64; 2],
}

/// Convolutions beyond which a stack is a mistake.
const N_CONVS_MAX: usize = 64;

impl Waves {
    pub fn parse(json: &Json) -> Result<Waves, Error> {
        let list = |field: &str, usual: &[u64]| match json.has(field) {
            true => json.numbers(field),
            false => Ok(usual.to_vec()),
        };
        let dims = list("conv_dim", &[512; 7])?;
        let kernels = list("conv_kernel", &[10, 3, 3, 3, 3, 2, 2])?;
        let strides = list("conv_stride", &[5, 2, 2, 2, 2, 2, 2])?;
        if dims.is_empty() || dims.len() > N_CONVS_MAX {
            let expected = format!("a list of 1 to {N_CONVS_MAX} channels");
            return Err(json.error("conv_dim", json.found("conv_dim"), expected));
        }
        for (field, all) in
            [("conv_dim", &dims), ("conv_kernel", &kernels), ("conv_stride", &strides)]
        {
            if all.len() != dims.len() || all.contains(&0) {
                let expected = format!("{} numbers above 0", dims.len());
                return Err(json.error(field, json.found(field), expected));
            }
        }
        let layer_norm = match json.text("feat_extract_norm").unwrap_or("group") {
            "group" => false,
            "layer" => true,
            other => return Err(json.error("feat_extract_norm", other, "group or layer")),
        };
        json.require("add_adapter", false)?;
        json.require("conv_pos_batch_norm", false)?;
        if json.has("adapter_attn_dim") {
            let found = json.found("adapter_attn_dim");
            return Err(json.error("adapter_attn_dim", found, "no adapters"));
        }
        let zipped = dims.iter().zip(&kernels).zip(&strides);
        let waves = Waves {
            convs: zipped.map(|((&d, &k), &s)| [d, k, s]).collect(),
            bias: Bias::when(json.flag("conv_bias", false)?),
            layer_norm,
            activation: json.activation("feat_extract_activation", "gelu")?,
            projects_normed: json.flag("feat_proj_layer_norm", true)?,
            hidden: json.count("hidden_size", None)?,
            epsilon: json.epsilon("layer_norm_eps", 1e-5)?,
            positions: [
                json.count("num_conv_pos_embeddings", Some(128))?,
                json.count("num_conv_pos_embedding_groups", Some(16))?,
            ],
        };
        let groups = waves.positions[1];
        if !waves.hidden.is_multiple_of(groups) {
            let expected = format!("a divisor of `hidden_size`, {}", waves.hidden);
            return Err(json.error("num_conv_pos_embedding_groups", groups.to_string(), expected));
        }
        Ok(waves)
    }

    /// Frames made of so many samples; 0 when they are too few.
    pub fn frames(&self, samples: u64) -> u64 {
        let step = |n: u64, [_, kernel, stride]: &[u64; 3]| match n.checked_sub(*kernel) {
            Some(rest) => rest / stride + 1,
            None => 0,
        };
        self.convs.iter().fold(samples, step)
    }

    /// Samples that make one frame.
    pub fn samples_min(&self) -> u64 {
        let back = |n: u64, [_, kernel, stride]: &[u64; 3]| {
            (n - 1).saturating_mul(*stride).saturating_add(*kernel)
        };
        self.convs.iter().rev().fold(1, back)
    }

    /// `input_values` `[batch, samples]` as frames `[batch, frames, hidden]`.
    pub fn build(&self, s: &mut Scope, batch: u64, samples: u64) -> Result<Value, Error> {
        let shape = [batch, samples].map(Dim::Fixed);
        let x = s.net.graph.add_input("input_values", TensorType::new(DType::F32, shape));
        let mut s = s.part("waves");
        let mut x = s.reshape(x, &[batch, 1, samples], "samples")?;
        let mut channels = 1;
        for (i, conv) in self.convs.iter().enumerate() {
            let module = format!("feature_extractor.conv_layers.{i}");
            let mut s = s.inside(&module, &i.to_string());
            x = self.conv(&mut s, i, *conv, channels, x)?;
            channels = conv[0];
        }
        let mut x = s.transpose(x, &[0, 2, 1], "frames")?;
        if self.projects_normed {
            let norm = (channels, self.epsilon);
            x = s.norm("feature_projection.layer_norm", x, norm, "normed")?;
        }
        let columns = (channels, self.hidden);
        s.linear("feature_projection.projection", x, columns, Bias::Present, "projected")
    }

    fn conv(
        &self,
        s: &mut Scope,
        i: usize,
        [n_out, kernel, stride]: [u64; 3],
        n_in: u64,
        x: Value,
    ) -> Result<Value, Error> {
        let weight = s.weight("conv.weight", &[n_out, n_in, kernel], "weight")?;
        let bias = match self.bias {
            Bias::Present => Some(s.weight("conv.bias", &[n_out], "bias")?),
            Bias::Absent => None,
        };
        let x = s.op(conv_1d(x, (weight, bias), stride, [0, 0], 1), "conv")?;
        let is_normed = self.layer_norm || i == 0;
        let x = match is_normed {
            false => x,
            true => {
                let gamma = Some(s.weight("layer_norm.weight", &[n_out], "gamma")?);
                let beta = Some(s.weight("layer_norm.bias", &[n_out], "beta")?);
                // As torch has it, whatever `layer_norm_eps` says.
                let epsilon = 1e-5;
                match self.layer_norm {
                    true => {
                        let axes = Some(vec![1]);
                        s.op(LayerNorm { x, axes, gamma, beta, epsilon }, "normed")?
                    }
                    false => s.op(InstanceNorm { x, gamma, beta, epsilon }, "normed")?,
                }
            }
        };
        s.activation(self.activation, x, "active")
    }

    /// `x` plus what the wide convolution `encoder.pos_conv_embed` makes of it.
    pub fn placed(&self, s: &mut Scope, x: Value) -> Result<Value, Error> {
        let mut s = s.inside("encoder.pos_conv_embed", "places");
        let [kernel, groups] = self.positions;
        let weight = self.position_weight(&s)?;
        let weight = s.constant(weight, "weight")?;
        let bias = s.weight("conv.bias", &[self.hidden], "bias")?;
        let columns = s.transpose(x, &[0, 2, 1], "columns")?;
        // Half a kernel before and after, and of an even one the last frame is dropped.
        let pad = [kernel / 2, kernel / 2 - u64::from(kernel.is_multiple_of(2))];
        let conv = conv_1d(columns, (weight, Some(bias)), 1, pad, groups);
        let y = s.op(conv, "conv")?;
        let y = s.activation(self.activation, y, "active")?;
        let y = s.transpose(y, &[0, 2, 1], "rows")?;
        s.add(x, y, "placed")
    }

    /// A direction and a length for each place of the kernel, multiplied: they are kept apart.
    fn position_weight(&self, s: &Scope) -> Result<Tensor, Error> {
        let [kernel, groups] = self.positions;
        let shape = [self.hidden, self.hidden / groups, kernel];
        let new = "conv.parametrizations.weight.original";
        let [length, direction] = match (s.has(&format!("{new}0")), s.has("conv.weight")) {
            (true, _) => [format!("{new}0"), format!("{new}1")],
            (false, true) => return s.tensor("conv.weight", &shape),
            (false, false) => ["conv.weight_g".to_owned(), "conv.weight_v".to_owned()],
        };
        let lengths = s.tensor(&length, &[1, 1, kernel])?.to_f32();
        let mut weight = s.tensor(&direction, &shape)?.to_f32();
        let mut squares = vec![0f64; kernel as usize];
        for row in weight.chunks(kernel as usize) {
            row.iter().zip(&mut squares).for_each(|(w, s)| *s += f64::from(*w) * f64::from(*w));
        }
        for row in weight.chunks_mut(kernel as usize) {
            for ((w, square), length) in row.iter_mut().zip(&squares).zip(&lengths) {
                *w *= length / square.sqrt() as f32;
            }
        }
        Ok(Tensor::f32(shape.to_vec(), &weight))
    }
}

/// A convolution over the last of three axes.
pub fn conv_1d(
    x: Value,
    (weight, bias): (Value, Option<Value>),
    stride: u64,
    pad: [u64; 2],
    groups: u64,
) -> Conv {
    Conv {
        x,
        weight,
        bias,
        strides: Some(vec![stride as i32]),
        pad_type: PadType::Custom,
        pad: Some(pad.map(|n| n as i32).to_vec()),
        dilations: Some(vec![1]),
        groups: groups as i32,
    }
}
