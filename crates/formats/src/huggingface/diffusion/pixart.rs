//! PixArt: latent pictures denoised for a text, with one modulation that all layers share.

use russet_ir::ops::*;
use russet_ir::{DType, Dim, Graph, TensorType, Value};

use super::super::Options;
use super::super::attention::{Reads, attention};
use super::super::family::{Built, Family, Folder};
use super::super::json::Json;
use super::super::lengths::{self, Span};
use super::super::net::{Bias, Net};
use super::super::scope::Scope;
use super::super::usage::Usage;
use super::super::weights::Weights;
use super::conditions::{
    N_WAVES, embedder, gated_sum, modulated, modulation, waves_of, whole_time,
};
use super::dit::projections;
use super::latents::{Latents, Mlp};
use crate::Error;

pub const PIXART: Family = Family {
    name: "pixart",
    model_types: &["PixArtTransformer2DModel"],
    architectures: &[],
    check: |json| Config::parse(json).map(drop),
    build,
};

struct Config {
    latents: Latents,
    /// Columns of the text's vectors.
    caption: u64,
    /// Is it also told the picture's resolution and aspect ratio?
    sized: bool,
    /// What a place is divided by.
    unit: f64,
    bias: Bias,
    mlp: Mlp,
    epsilon: f32,
}

impl Config {
    fn parse(json: &Json) -> Result<Config, Error> {
        json.require("norm_type", "ada_norm_single")?;
        json.require("norm_elementwise_affine", false)?;
        let latents = Latents::parse(json)?;
        json.require("cross_attention_dim", latents.width())?;
        let usual_unit = (latents.size / 64).max(1) as f64;
        Ok(Config {
            latents,
            caption: json.count("caption_channels", None)?,
            sized: json.flag("use_additional_conditions", latents.size == 128)?,
            unit: json.positive("interpolation_scale", Some(usual_unit))?,
            bias: Bias::when(json.flag("attention_bias", true)?),
            mlp: Mlp::parse(json, "gelu-approximate")?,
            epsilon: json.epsilon("norm_eps", 1e-6)?,
        })
    }
}

/// Tokens of a text when nothing is said about them, and at most.
const LENGTH_DEFAULT: u64 = 120;
const LENGTH_MAX: u64 = 4096;

/// One function `main`: `hidden_states`, `timestep`, `encoder_hidden_states`,
/// `encoder_attention_mask`, and of large pictures `resolution` and `aspect_ratio`, to `sample`.
fn build(folder: &Folder, options: &Options) -> Result<Built, Error> {
    let mut config = Config::parse(&folder.config)?;
    let file = folder.config.file();
    let span = Span { unit: "token", default: LENGTH_DEFAULT, min: 1, max: LENGTH_MAX };
    let length = lengths::length(options, &span, file)?;
    config.latents.heads.batch = lengths::batch(options, file)?;
    let weights = Weights::whole(&folder.path)?;
    let graph = graph(&config, &weights, length)?;
    Ok(Built {
        functions: vec![graph],
        usage: Usage::Arrays,
        n_parameters: weights.n_parameters(),
        n_bytes: weights.n_bytes(),
    })
}

/// The text: its vectors, how many they are, and what its padding adds to scores.
#[derive(Clone, Copy)]
struct Caption {
    tokens: Value,
    length: u64,
    bias: Value,
}

fn graph(config: &Config, weights: &Weights, length: u64) -> Result<Graph, Error> {
    let latents = &config.latents;
    let (batch, width) = (latents.heads.batch, latents.width());
    let mut net = Net::new("main", weights.file());
    let mut s = Scope::new(&mut net, weights);
    let mut x = latents.embed(&mut s, latents.waves(config.unit))?;
    let condition = {
        let mut s = s.inside("adaln_single.emb", "condition");
        let time = whole_time(&mut s, batch, 0)?;
        let time = embedder(&mut s, "timestep_embedder", time, (N_WAVES, width), "time")?;
        if config.sized { size(&mut s, config, time)? } else { time }
    };
    let shared = modulation(&mut s, "adaln_single.linear", condition, width, 6)?;
    let caption = caption(&mut s, config, length)?;
    for i in 0..latents.n_layers {
        let mut s = s.inside(&format!("transformer_blocks.{i}"), &format!("layer_{i}"));
        x = layer(&mut s, config, &shared, caption, x)?;
    }
    let table = s.tensor("scale_shift_table", &[2, width])?;
    let mut part = |i: u64, name: &str| {
        let row = table.rows(i, 1).reshaped(vec![1, 1, width]);
        let row = s.constant(row, &format!("{name}_row"))?;
        s.add(condition, row, name)
    };
    let parts = (part(0, "last_shift")?, part(1, "last_scale")?);
    let x = modulated(&mut s, x, parts, EPSILON, "last_hidden_state")?;
    let columns = latents.patch * latents.patch * latents.out_channels;
    let x = s.linear("proj_out", x, (width, columns), Bias::Present, "patches_out")?;
    let sample = latents.picture(&mut s, x)?;
    net.graph.set_outputs(vec![sample]);
    Ok(net.graph)
}

/// Of norms that say no other.
const EPSILON: f32 = 1e-6;

/// The condition with what the picture's size adds: thirds of its columns for height, width and
/// aspect ratio.
fn size(s: &mut Scope, config: &Config, time: Value) -> Result<Value, Error> {
    let (batch, width) = (config.latents.heads.batch, config.latents.width());
    let third = width / 3;
    let sizes = waves_of(s, "resolution", (batch, Some(2)), 1.0)?;
    let sizes = embedder(s, "resolution_embedder", sizes, (N_WAVES, third), "resolution")?;
    let sizes = s.reshape(sizes, &[batch, 1, 2 * third], "resolution_row")?;
    let ratio = waves_of(s, "aspect_ratio", (batch, Some(1)), 1.0)?;
    let ratio = embedder(s, "aspect_ratio_embedder", ratio, (N_WAVES, third), "aspect_ratio")?;
    let all = s.concat(vec![sizes, ratio], -1, "size")?;
    s.add(time, all, "sized_time")
}

fn caption(s: &mut Scope, config: &Config, length: u64) -> Result<Caption, Error> {
    let (batch, width) = (config.latents.heads.batch, config.latents.width());
    let shape = [batch, length, config.caption].map(Dim::Fixed);
    let ty = TensorType::new(DType::F32, shape);
    let text = s.net.graph.add_input("encoder_hidden_states", ty);
    let ty = TensorType::new(DType::I32, [batch, length].map(Dim::Fixed));
    let mask = s.net.graph.add_input("encoder_attention_mask", ty);
    let bias = {
        let mut s = s.part("caption_mask");
        let mask = s.op(Cast { x: mask, dtype: DType::F32 }, "float")?;
        let rows = s.op(ExpandDims { x: mask, axes: vec![1, 2] }, "rows")?;
        let one = s.scalar(1.0, "one")?;
        let padding = s.op(Sub { x: one, y: rows }, "padding")?;
        s.scaled(padding, -10000.0, "bias")?
    };
    let mut s = s.inside("caption_projection", "caption");
    let up = s.linear("linear_1", text, (config.caption, width), Bias::Present, "up")?;
    let active = s.op(Gelu { x: up, mode: GeluMode::Tanh }, "active")?;
    let tokens = s.linear("linear_2", active, (width, width), Bias::Present, "tokens")?;
    Ok(Caption { tokens, length, bias })
}

fn layer(
    s: &mut Scope,
    config: &Config,
    shared: &[Value],
    caption: Caption,
    x: Value,
) -> Result<Value, Error> {
    let latents = &config.latents;
    let (heads, width, count) = (latents.heads, latents.width(), latents.count());
    let table = s.tensor("scale_shift_table", &[6, width])?;
    let mut parts = Vec::new();
    for (i, &of_all) in shared.iter().enumerate() {
        let row = table.rows(i as u64, 1).reshaped(vec![1, 1, width]);
        let row = s.constant(row, &format!("modulation_row_{i}"))?;
        parts.push(s.add(of_all, row, &format!("modulation_{i}"))?);
    }
    let modules = projections(config.bias);
    let scale = Some(heads.scale());
    let normed = modulated(s, x, (parts[0], parts[1]), config.epsilon, "normed")?;
    let reads = Reads::itself(normed, count, width);
    let mut inner = s.inside("attn1", "");
    let y = attention(&mut inner, &modules, heads, reads, (scale, &[]), width, "attention")?;
    let x = gated_sum(s, x, parts[2], y, "attention_sum")?;
    let reads = Reads { from: (x, count, width), to: (caption.tokens, caption.length, width) };
    let mut inner = s.inside("attn2", "cross");
    let added = [caption.bias];
    let y = attention(&mut inner, &modules, heads, reads, (scale, &added), width, "attention")?;
    let x = s.add(y, x, "cross_sum")?;
    let normed = modulated(s, x, (parts[3], parts[4]), config.epsilon, "attention_normed")?;
    let y = config.mlp.build(s, "ff", normed, width)?;
    gated_sum(s, x, parts[5], y, "output")
}
