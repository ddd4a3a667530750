//! wav2vec 2.0, HuBERT, and wav2vec 2.0 with Conformer layers.

use russet_ir::{Graph, Value};

use super::super::Options;
use super::super::attention::{Heads, Layer, LayerSizes, Norms, Projections};
use super::super::family::{Built, Family, Folder};
use super::super::json::{Activation, Json};
use super::super::lengths::{self, Span};
use super::super::net::{Bias, Net};
use super::super::scope::Scope;
use super::super::usage::Usage;
use super::super::usage::audio::{Audio, Ctc, Features, Says};
use super::super::weights::Weights;
use super::conformer::{self, Conformer, Positions};
use super::waves::Waves;
use crate::Error;

pub const WAV2VEC2: Family = Family {
    name: "wav2vec2",
    model_types: &["wav2vec2"],
    architectures: &["Wav2Vec2For", "Wav2Vec2Model"],
    check: |json| Config::parse(json, false).map(drop),
    build: |folder, options| build(folder, options, false),
};

pub const HUBERT: Family = Family {
    name: "hubert",
    model_types: &["hubert"],
    architectures: &["Hubert"],
    check: |json| Config::parse(json, false).map(drop),
    build: |folder, options| build(folder, options, false),
};

pub const CONFORMER: Family = Family {
    name: "wav2vec2-conformer",
    model_types: &["wav2vec2-conformer"],
    architectures: &["Wav2Vec2Conformer"],
    check: |json| Config::parse(json, true).map(drop),
    build: |folder, options| build(folder, options, true),
};

const LAYER: Layer = Layer {
    attention: Projections::biased(
        "attention.q_proj",
        "attention.k_proj",
        "attention.v_proj",
        "attention.out_proj",
    ),
    norms: Norms::After,
    attention_norm: "layer_norm",
    mlp_norm: "final_layer_norm",
    up: "feed_forward.intermediate_dense",
    down: "feed_forward.output_dense",
    factors: None,
};

struct Config {
    waves: Waves,
    hidden: u64,
    n_layers: u64,
    n_heads: u64,
    intermediate: u64,
    epsilon: f32,
    activation: Activation,
    n_vocab: u64,
    blank: u64,
    layers: Layers,
}

enum Layers {
    /// Norms before or after; the encoder's own norm is then after or before all layers.
    Plain(Norms),
    Conformer(Conformer),
}

impl Config {
    fn parse(json: &Json, is_conformer: bool) -> Result<Config, Error> {
        let hidden = json.count("hidden_size", None)?;
        let n_heads = json.count("num_attention_heads", None)?;
        if !hidden.is_multiple_of(n_heads) {
            let expected = format!("a multiple of `num_attention_heads`, {n_heads}");
            return Err(json.error("hidden_size", hidden.to_string(), expected));
        }
        let activation = json.activation("hidden_act", "gelu")?;
        let intermediate = json.count("intermediate_size", None)?;
        let layers = match is_conformer {
            false => Layers::Plain(match json.flag("do_stable_layer_norm", false)? {
                true => Norms::Before,
                false => Norms::After,
            }),
            true => Layers::Conformer(Conformer {
                modules: &conformer::WAV2VEC2,
                heads: Heads { batch: 1, count: n_heads, dim: hidden / n_heads },
                intermediate,
                kernel: odd(json, "conv_depthwise_kernel_size", 31)?,
                activation,
                positions: positions(json)?,
                bias: Bias::Present,
                conv_bias: Bias::Absent,
            }),
        };
        Ok(Config {
            waves: Waves::parse(json)?,
            hidden,
            n_layers: json.count("num_hidden_layers", None)?,
            n_heads,
            intermediate,
            epsilon: json.epsilon("layer_norm_eps", 1e-5)?,
            activation,
            n_vocab: json.count("vocab_size", Some(32))?,
            blank: json.number("pad_token_id", Some(0))?,
            layers,
        })
    }
}

/// An odd kernel.
pub fn odd(json: &Json, field: &str, default: u64) -> Result<u64, Error> {
    match json.count(field, Some(default))? {
        n if n % 2 == 1 => Ok(n),
        n => Err(json.error(field, n.to_string(), "an odd number")),
    }
}

fn positions(json: &Json) -> Result<Positions, Error> {
    if json.is_null("position_embeddings_type") {
        return Ok(Positions::Absent);
    }
    match json.text("position_embeddings_type").unwrap_or("relative") {
        "relative" => Ok(Positions::Relative),
        "rotary" => {
            let base = json.positive("rotary_embedding_base", Some(10000.0))?;
            Ok(Positions::Rotary { base })
        }
        other => Err(json.error("position_embeddings_type", other, "relative, rotary or null")),
    }
}

/// Samples when nothing is said about them: ten seconds.
const SAMPLES_DEFAULT: u64 = 160_000;
/// Frames beyond which scores of all pairs are no longer to be had.
const FRAMES_MAX: u64 = 1 << 15;
/// Five minutes: attention grows with the square.
const SAMPLES_MAX: u64 = 4_800_000;

/// One function `main`: `input_values` to `logits` where there is a head for CTC, else to
/// `last_hidden_state`.
fn build(folder: &Folder, options: &Options, is_conformer: bool) -> Result<Built, Error> {
    let config = Config::parse(&folder.config, is_conformer)?;
    let file = folder.config.file();
    let min = config.waves.samples_min();
    let (default, max) = (SAMPLES_DEFAULT.max(min), SAMPLES_MAX.max(min));
    let span = Span { unit: "sample", default, min, max };
    let samples = lengths::length(options, &span, file)?;
    let frames = config.waves.frames(samples);
    if frames > FRAMES_MAX {
        let expected = format!("strides that leave at most {FRAMES_MAX} frames");
        return Err(folder.config.error("conv_stride", format!("{frames} frames"), expected));
    }
    let batch = lengths::batch(options, file)?;
    let probe = ("feature_projection.projection.weight", vec![config.hidden]);
    let weights = Weights::open(&folder.path, &probe)?;
    let whole = Weights::whole(&folder.path)?;
    let graph = graph(&config, &weights, &whole, batch, samples)?;
    let says = match whole.has("lm_head.weight") {
        true => Ctc::read(&folder.path, config.blank)?.map_or(Says::Nothing, Says::Ctc),
        false => Says::Nothing,
    };
    Ok(Built {
        functions: vec![graph],
        usage: Usage::Audio(Audio { features: Features::wave(&folder.path)?, says }),
        n_parameters: weights.n_parameters() + whole.n_parameters(),
        n_bytes: weights.n_bytes(),
    })
}

fn graph(
    config: &Config,
    weights: &Weights,
    whole: &Weights,
    batch: u64,
    samples: u64,
) -> Result<Graph, Error> {
    let mut net = Net::new("main", weights.file());
    let mut s = Scope::new(&mut net, weights);
    let x = config.waves.build(&mut s, batch, samples)?;
    let frames = config.waves.frames(samples);
    let x = match &config.layers {
        Layers::Plain(norms) => plain(&mut s, config, *norms, (batch, frames), x)?,
        Layers::Conformer(conformer) => {
            let heads = Heads { batch, ..conformer.heads };
            let conformer = Conformer { heads, ..*conformer };
            let mut s = s.inside("encoder", "");
            let x = conformer.layers(&mut s, config.n_layers, frames, x)?;
            s.norm("layer_norm", x, (config.hidden, config.epsilon), "last_hidden_state")?
        }
    };
    let mut outputs = vec![x];
    if whole.has("lm_head.weight") {
        let mut s = Scope::new(s.net, whole);
        let columns = (config.hidden, config.n_vocab);
        outputs = vec![s.linear("lm_head", x, columns, Bias::Present, "logits")?];
    }
    net.graph.set_outputs(outputs);
    Ok(net.graph)
}

fn plain(
    s: &mut Scope,
    config: &Config,
    norms: Norms,
    (batch, frames): (u64, u64),
    x: Value,
) -> Result<Value, Error> {
    let norm = (config.hidden, config.epsilon);
    let mut x = config.waves.placed(s, x)?;
    if norms == Norms::After {
        x = s.norm("encoder.layer_norm", x, norm, "embedded")?;
    }
    let sizes = LayerSizes {
        heads: Heads { batch, count: config.n_heads, dim: config.hidden / config.n_heads },
        length: frames,
        intermediate: config.intermediate,
        epsilon: config.epsilon,
        activation: config.activation,
    };
    let modules = Layer { norms, ..LAYER };
    for i in 0..config.n_layers {
        let mut s = s.inside(&format!("encoder.layers.{i}"), &format!("layer_{i}"));
        x = modules.build(&mut s, &sizes, x, &[])?;
    }
    match norms {
        Norms::Before => s.norm("encoder.layer_norm", x, norm, "last_hidden_state"),
        Norms::After => s.op(russet_ir::ops::Identity { x }, "last_hidden_state"),
    }
}
