//! Parakeet: a FastConformer over mel frames, eight of which become one, with or without a head for
//! CTC.

use russet_ir::ops::*;
use russet_ir::{DType, Dim, Graph, TensorType, Value};

use super::super::Options;
use super::super::attention::Heads;
use super::super::family::{Built, Family, Folder};
use super::super::json::Json;
use super::super::lengths::{self, Span};
use super::super::net::{Bias, Net};
use super::super::scope::Scope;
use super::super::usage::Usage;
use super::super::usage::audio::{Audio, Ctc, Features, Says};
use super::super::weights::Weights;
use super::conformer::{self, Conformer, Positions};
use super::wav2vec2::odd;
use crate::Error;

pub const PARAKEET: Family = Family {
    name: "parakeet",
    model_types: &["parakeet_encoder", "parakeet_ctc"],
    architectures: &["ParakeetEncoder", "ParakeetForCTC"],
    check: |json| Config::parse(json).map(drop),
    build,
};

struct Config {
    conformer: Conformer,
    n_layers: u64,
    n_mels: u64,
    subsampling: Subsampling,
    /// What frames are multiplied by before the layers.
    scale: f32,
    /// Of a model with a head: classes, the blank one among them.
    head: Option<(u64, u64)>,
}

/// Convolutions that halve time and mels, until one frame is left of `2^n_layers`.
struct Subsampling {
    n_layers: u64,
    channels: u64,
    kernel: u64,
}

impl Config {
    fn parse(json: &Json) -> Result<Config, Error> {
        let is_ctc = json.has("encoder_config");
        let encoder = json.section("encoder_config")?.unwrap_or_else(|| json.clone());
        let head = match is_ctc {
            true => {
                let n = json.count("vocab_size", Some(1025))?;
                Some((n, json.number("pad_token_id", Some(n - 1))?))
            }
            false => None,
        };
        let json = &encoder;
        let hidden = json.count("hidden_size", Some(1024))?;
        let n_heads = json.count("num_attention_heads", Some(8))?;
        if !hidden.is_multiple_of(n_heads) {
            let expected = format!("a multiple of `num_attention_heads`, {n_heads}");
            return Err(json.error("hidden_size", hidden.to_string(), expected));
        }
        json.require("num_key_value_heads", n_heads)?;
        json.require("subsampling_conv_stride", 2)?;
        let factor = json.count("subsampling_factor", Some(8))?;
        if !factor.is_power_of_two() || !(2..=FACTOR_MAX).contains(&factor) {
            let expected = format!("a power of two from 2 to {FACTOR_MAX}");
            return Err(json.error("subsampling_factor", factor.to_string(), expected));
        }
        let subsampling = Subsampling {
            n_layers: factor.ilog2().into(),
            channels: json.count("subsampling_conv_channels", Some(256))?,
            kernel: odd(json, "subsampling_conv_kernel_size", 3)?,
        };
        let n_mels = json.count("num_mel_bins", Some(80))?;
        if n_mels < factor || n_mels > MELS_MAX {
            let expected = format!("from `subsampling_factor` to {MELS_MAX}");
            return Err(json.error("num_mel_bins", n_mels.to_string(), expected));
        }
        let scale = match json.flag("scale_input", true)? {
            true => (hidden as f64).sqrt() as f32,
            false => 1.0,
        };
        Ok(Config {
            conformer: Conformer {
                modules: &conformer::PARAKEET,
                heads: Heads { batch: 1, count: n_heads, dim: hidden / n_heads },
                intermediate: json.count("intermediate_size", Some(4096))?,
                kernel: odd(json, "conv_kernel_size", 9)?,
                activation: json.activation("hidden_act", "silu")?,
                positions: Positions::Relative,
                bias: Bias::when(json.flag("attention_bias", true)?),
                conv_bias: Bias::when(json.flag("convolution_bias", true)?),
            },
            n_layers: json.count("num_hidden_layers", Some(24))?,
            n_mels,
            subsampling,
            scale,
            head,
        })
    }
}

const FACTOR_MAX: u64 = 64;
const MELS_MAX: u64 = 1024;

/// Mel frames when nothing is said about them: fifteen seconds.
const FRAMES_DEFAULT: u64 = 1501;
/// Five minutes.
const FRAMES_MAX: u64 = 30_001;

/// One function `main`: `input_features` `[batch, frames, mels]` to `logits`, or without a head to
/// `last_hidden_state`.
fn build(folder: &Folder, options: &Options) -> Result<Built, Error> {
    let mut config = Config::parse(&folder.config)?;
    let file = folder.config.file();
    let span = Span { unit: "frame", default: FRAMES_DEFAULT, min: 1, max: FRAMES_MAX };
    let frames = lengths::length(options, &span, file)?;
    config.conformer.heads.batch = lengths::batch(options, file)?;
    let probe = ("subsampling.linear.weight", vec![config.conformer.heads.width()]);
    let weights = Weights::open(&folder.path, &probe)?;
    let whole = Weights::whole(&folder.path)?;
    let graph = graph(&config, &weights, &whole, frames)?;
    let says = match config.head {
        Some((_, blank)) => Ctc::read(&folder.path, blank)?.map_or(Says::Nothing, Says::Ctc),
        None => Says::Nothing,
    };
    Ok(Built {
        functions: vec![graph],
        usage: Usage::Audio(Audio {
            features: Features::normed_mel(&folder.path, config.n_mels)?,
            says,
        }),
        n_parameters: weights.n_parameters() + whole.n_parameters(),
        n_bytes: weights.n_bytes(),
    })
}

fn graph(config: &Config, weights: &Weights, whole: &Weights, frames: u64) -> Result<Graph, Error> {
    let mut net = Net::new("main", weights.file());
    let mut s = Scope::new(&mut net, weights);
    let (mut x, n) = fewer_frames(&mut s, config, frames)?;
    if config.scale != 1.0 {
        x = s.scaled(x, config.scale, "scaled_frames")?;
    }
    let x = config.conformer.layers(&mut s, config.n_layers, n, x)?;
    let x = s.op(Identity { x }, "last_hidden_state")?;
    let mut output = x;
    if let Some((n_classes, _)) = config.head {
        let hidden = config.conformer.heads.width();
        let mut s = Scope::new(s.net, whole);
        let weight = s.tensor("ctc_head.weight", &[n_classes, hidden, 1])?;
        let weight = s.constant(weight.reshaped(vec![n_classes, hidden]), "logits_weight")?;
        let bias = Some(s.weight("ctc_head.bias", &[n_classes], "logits_bias")?);
        output = s.op(Linear { x, weight, bias }, "logits")?;
    }
    net.graph.set_outputs(vec![output]);
    Ok(net.graph)
}

/// Frames `[batch, fewer frames, hidden]`, and how many they are.
fn fewer_frames(s: &mut Scope, config: &Config, frames: u64) -> Result<(Value, u64), Error> {
    let sub = &config.subsampling;
    let (batch, hidden) = (config.conformer.heads.batch, config.conformer.heads.width());
    let shape = [batch, frames, config.n_mels].map(Dim::Fixed);
    let x = s.net.graph.add_input("input_features", TensorType::new(DType::F32, shape));
    let mut s = s.inside("subsampling", "fewer");
    let mut x = s.reshape(x, &[batch, 1, frames, config.n_mels], "picture")?;
    let halved = |n: u64| (n - 1) / 2 + 1;
    let (mut n, mut mels) = (frames, config.n_mels);
    // Modules are counted with the activations between them.
    let mut module = 0;
    for i in 0..sub.n_layers {
        let groups = if i == 0 { 1 } else { sub.channels };
        x = conv(&mut s, config, (module, sub.kernel), groups, x)?;
        module += 1;
        if i > 0 {
            x = conv(&mut s, config, (module, 1), 1, x)?;
            module += 1;
        }
        x = s.op(Relu { x }, &format!("relu_{i}"))?;
        module += 1;
        (n, mels) = (halved(n), halved(mels));
    }
    let rows = s.transpose(x, &[0, 2, 1, 3], "rows")?;
    let columns = sub.channels * mels;
    let flat = s.reshape(rows, &[batch, n, columns], "flat")?;
    Ok((s.linear("linear", flat, (columns, hidden), Bias::Present, "frames")?, n))
}

/// The convolution `layers.{module}`: a kernel above 1 halves both axes.
fn conv(
    s: &mut Scope,
    config: &Config,
    (module, kernel): (u64, u64),
    groups: u64,
    x: Value,
) -> Result<Value, Error> {
    let channels = config.subsampling.channels;
    let n_in = match (module, groups) {
        (0, _) => 1,
        (_, 1) => channels,
        _ => 1,
    };
    let mut s = s.inside(&format!("layers.{module}"), &module.to_string());
    let weight = s.weight("weight", &[channels, n_in, kernel, kernel], "weight")?;
    let bias = Some(s.weight("bias", &[channels], "bias")?);
    let (stride, around) = if kernel > 1 { (2, (kernel as i32 - 1) / 2) } else { (1, 0) };
    let conv = Conv {
        x,
        weight,
        bias,
        strides: Some(vec![stride; 2]),
        pad_type: PadType::Custom,
        pad: Some(vec![around; 4]),
        dilations: Some(vec![1; 2]),
        groups: groups as i32,
    };
    s.op(conv, "conv")
}
