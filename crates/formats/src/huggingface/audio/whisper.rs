//! Whisper: an encoder of thirty seconds of sound, whose result every layer of the decoder reads.

use russet_ir::ops::*;
use russet_ir::{DType, Dim, Graph, TensorType, Value};

use super::super::Options;
use super::super::attention::{Heads, Layer, LayerSizes, Norms, Projections, split};
use super::super::decoder::config::FULL;
use super::super::family::{Built, Family, Folder};
use super::super::json::{Activation, Json};
use super::super::lengths::{self, Span};
use super::super::net::{Bias, Net};
use super::super::scope::Scope;
use super::super::usage::audio::{Audio, Features, Says};
use super::super::usage::transcript::Transcript;
use super::super::usage::{Decoder, Mask, Usage};
use super::super::weights::Weights;
use super::waves::conv_1d;
use super::whisper_decoder;
use crate::Error;

pub const WHISPER: Family = Family {
    name: "whisper",
    model_types: &["whisper"],
    architectures: &["Whisper"],
    check: |json| Config::parse(json).map(drop),
    build,
};

/// The numbers of both halves.
pub struct Config {
    pub hidden: u64,
    pub n_mels: u64,
    /// Frames the encoder makes, half of those it reads.
    pub n_frames: u64,
    pub activation: Activation,
    pub encoder: Half,
    pub decoder: Half,
    pub n_vocab: u64,
    /// Tokens the decoder has positions for.
    pub n_positions: u64,
}

/// The numbers of one half.
pub struct Half {
    pub n_layers: u64,
    pub heads: Heads,
    pub intermediate: u64,
}

/// Frames and mels beyond which a config is a mistake.
const FRAMES_MAX: u64 = 1 << 14;
const MELS_MAX: u64 = 1024;

/// Of norms, as torch has it.
pub const EPSILON: f32 = 1e-5;

/// Where the modules are below; only the encoder's own folder has them at the top.
pub const LAYER: Layer = Layer {
    attention: Projections {
        query: ("self_attn.q_proj", Bias::Present),
        key: ("self_attn.k_proj", Bias::Absent),
        value: ("self_attn.v_proj", Bias::Present),
        output: ("self_attn.out_proj", Bias::Present),
    },
    norms: Norms::Before,
    attention_norm: "self_attn_layer_norm",
    mlp_norm: "final_layer_norm",
    up: "fc1",
    down: "fc2",
    factors: None,
};

impl Config {
    fn parse(json: &Json) -> Result<Config, Error> {
        let hidden = json.count("d_model", None)?;
        json.require("scale_embedding", false)?;
        let half = |part: &str| {
            let field = |name: &str| format!("{part}_{name}");
            let count = json.count(&field("attention_heads"), None)?;
            if !hidden.is_multiple_of(count) {
                let expected = format!("a multiple of `{}`, {count}", field("attention_heads"));
                return Err(json.error("d_model", hidden.to_string(), expected));
            }
            Ok(Half {
                n_layers: json.count(&field("layers"), None)?,
                heads: Heads { batch: 1, count, dim: hidden / count },
                intermediate: json.count(&field("ffn_dim"), None)?,
            })
        };
        let bounded =
            |field: &str, default: u64, max: u64| match json.count(field, Some(default))? {
                n if n <= max => Ok(n),
                n => Err(json.error(field, n.to_string(), format!("at most {max}"))),
            };
        Ok(Config {
            hidden,
            n_mels: bounded("num_mel_bins", 80, MELS_MAX)?,
            n_frames: bounded("max_source_positions", 1500, FRAMES_MAX)?,
            activation: json.activation("activation_function", "gelu")?,
            encoder: half("encoder")?,
            decoder: half("decoder")?,
            n_vocab: json.count("vocab_size", None)?,
            n_positions: bounded("max_target_positions", 448, FRAMES_MAX)?,
        })
    }
}

/// Tokens that `prefill` takes: as many as a transcript begins with.
const CHUNK_DEFAULT: u64 = 4;

/// The function `encoder`: `input_features` `[1, mels, 2 frames]` to `last_hidden_state`, and to what
/// the decoder's layers make of that once and for all, `cross_cache`. Then the decoder's `prefill`,
/// `decode` and `lm_head`.
fn build(folder: &Folder, options: &Options) -> Result<Built, Error> {
    let config = Config::parse(&folder.config)?;
    let file = folder.config.file();
    let choice = |option, found: u64, why: &str| Error::Choice {
        file: file.to_owned(),
        option,
        found: found.to_string(),
        why: why.to_owned(),
    };
    if options.batch != 1 {
        return Err(choice("batch", options.batch, "a cache belongs to one sound"));
    }
    let context = options.context.unwrap_or(config.n_positions);
    if context == 0 || context > config.n_positions {
        return Err(choice("context", context, "the model has no positions for so many tokens"));
    }
    let default = CHUNK_DEFAULT.min(context);
    let chunk =
        lengths::length(options, &Span { unit: "token", default, min: 1, max: context }, file)?;
    let shape = vec![config.hidden, config.n_mels, 3];
    let weights = Weights::open(&folder.path, &("encoder.conv1.weight", shape))?;
    let mut functions = vec![encoder(&config, &weights)?];
    let mut n_parameters = weights.n_parameters();
    let cache = options.cache;
    for (name, n_new) in [("prefill", chunk), ("decode", 1)] {
        let before = weights.n_parameters();
        let sizes = whisper_decoder::Sizes { n_new, context, cache };
        functions.push(whisper_decoder::trunk(name, &config, &weights, sizes)?);
        // Both have the same.
        n_parameters += if name == "decode" { weights.n_parameters() - before } else { 0 };
    }
    functions.push(whisper_decoder::head(&config, &weights)?);
    let decoder = Decoder {
        cache,
        context,
        chunk,
        rotary: Default::default(),
        masks: [(FULL.to_owned(), Mask { window: None })].into(),
        position_ids: Some(0),
        bos_token_id: None,
        eos_token_ids: folder.config.numbers("eos_token_id")?,
    };
    let transcript = Transcript::read(&folder.path, &folder.config, decoder)?;
    let features = Features::whisper_mel(&folder.path, config.n_mels, 2 * config.n_frames)?;
    Ok(Built {
        functions,
        usage: Usage::Audio(Audio { features, says: Says::Transcript(transcript.into()) }),
        n_parameters,
        n_bytes: weights.n_bytes(),
    })
}

fn encoder(config: &Config, weights: &Weights) -> Result<Graph, Error> {
    let (hidden, n) = (config.hidden, config.n_frames);
    let mut net = Net::new("encoder", weights.file());
    let mut whole = Scope::new(&mut net, weights);
    let mut s = whole.inside("encoder", "");
    let shape = [1, config.n_mels, 2 * n].map(Dim::Fixed);
    let mut x = s.net.graph.add_input("input_features", TensorType::new(DType::F32, shape));
    for (module, n_in, stride) in [("conv1", config.n_mels, 1), ("conv2", hidden, 2)] {
        let mut s = s.inside(module, module);
        let weight = s.weight("weight", &[hidden, n_in, 3], "weight")?;
        let bias = Some(s.weight("bias", &[hidden], "bias")?);
        x = s.op(conv_1d(x, (weight, bias), stride, [1, 1], 1), "conv")?;
        // Whatever the layers have: it is not the config's activation.
        x = s.op(Gelu { x, mode: GeluMode::Exact }, "active")?;
    }
    let rows = s.transpose(x, &[0, 2, 1], "frames")?;
    let places = s.tensor("embed_positions.weight", &[n, hidden])?.reshaped(vec![1, n, hidden]);
    let places = s.constant(places, "positions")?;
    let mut x = s.add(rows, places, "embedded")?;
    let sizes = LayerSizes {
        heads: config.encoder.heads,
        length: n,
        intermediate: config.encoder.intermediate,
        epsilon: EPSILON,
        activation: config.activation,
    };
    for i in 0..config.encoder.n_layers {
        let mut s = s.inside(&format!("layers.{i}"), &format!("layer_{i}"));
        x = LAYER.build(&mut s, &sizes, x, &[])?;
    }
    let x = s.norm("layer_norm", x, (hidden, EPSILON), "last_hidden_state")?;
    let cache = cross_cache(&mut whole, config, x)?;
    net.graph.set_outputs(vec![x, cache]);
    Ok(net.graph)
}

/// `[2 layers, heads, frames, head_dim]`: keys and values of each layer of the decoder, one after the
/// other.
fn cross_cache(s: &mut Scope, config: &Config, x: Value) -> Result<Value, Error> {
    let heads = config.decoder.heads;
    let square = (config.hidden, config.hidden);
    let mut all = Vec::new();
    for i in 0..config.decoder.n_layers {
        let module = format!("decoder.layers.{i}.encoder_attn");
        let mut s = s.inside(&module, &format!("cross_{i}"));
        for (part, name, bias) in
            [("k_proj", "key", Bias::Absent), ("v_proj", "value", Bias::Present)]
        {
            let y = s.linear(part, x, square, bias, name)?;
            all.push(split(&mut s, y, heads, config.n_frames, name)?);
        }
    }
    s.concat(all, 0, "cross_cache")
}
