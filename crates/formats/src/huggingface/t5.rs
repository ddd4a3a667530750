//! The encoder of T5, mT5 and UMT5: no positions but a bias by distance on the scores, which are not
//! scaled; root-mean-square norms; MLPs with or without a gate.

use russet_ir::{DType, Dim, Graph, Tensor, TensorType, Value};

use super::attention::{Heads, Projections, Reads, attention, padding_bias};
use super::family::{Built, Family, Folder};
use super::json::{Activation, Json};
use super::lengths::{self, Span};
use super::net::{Bias, Net};
use super::scope::Scope;
use super::usage::Usage;
use super::weights::Weights;
use super::{LENGTH_DEFAULT, Options, mpnet};
use crate::Error;

pub const T5: Family = Family {
    name: "t5",
    model_types: &["t5", "mt5"],
    architectures: &["T5", "MT5"],
    check: |json| Config::parse(json, Biases::Shared).map(drop),
    build: |folder, options| build(Biases::Shared, folder, options),
};

pub const UMT5: Family = Family {
    name: "umt5",
    model_types: &["umt5"],
    architectures: &["UMT5"],
    check: |json| Config::parse(json, Biases::OfLayer).map(drop),
    build: |folder, options| build(Biases::OfLayer, folder, options),
};

/// Whose table the biases of a layer come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Biases {
    /// The first layer's.
    Shared,
    /// Its own.
    OfLayer,
}

struct Config {
    biases: Biases,
    hidden: u64,
    heads: Heads,
    intermediate: u64,
    n_layers: u64,
    n_vocab: u64,
    n_buckets: u64,
    distance_max: u64,
    epsilon: f32,
    activation: Activation,
    gated: bool,
    pad_token_id: u64,
}

impl Config {
    fn parse(json: &Json, biases: Biases) -> Result<Config, Error> {
        let usual = if biases == Biases::OfLayer { "gated-gelu" } else { "relu" };
        let kind = match json.get("feed_forward_proj") {
            None => usual,
            Some(_) => json.text("feed_forward_proj").unwrap_or_default(),
        };
        let (gated, activation) = match kind {
            "relu" => (false, "relu"),
            "gelu" => (false, "gelu"),
            "silu" => (false, "silu"),
            "gated-relu" => (true, "relu"),
            // Older than the name of what it means.
            "gated-gelu" => (true, "gelu_new"),
            "gated-silu" => (true, "silu"),
            _ => {
                let expected = "relu, gelu, silu, gated-relu, gated-gelu or gated-silu";
                let found = json.found("feed_forward_proj");
                return Err(json.error("feed_forward_proj", found, expected));
            }
        };
        let n_buckets = json.count("relative_attention_num_buckets", Some(32))?;
        let distance_max = json.count("relative_attention_max_distance", Some(128))?;
        if !n_buckets.is_multiple_of(4) {
            let (found, expected) = (n_buckets.to_string(), "a multiple of 4");
            return Err(json.error("relative_attention_num_buckets", found, expected));
        }
        if distance_max <= n_buckets / 4 {
            let expected = format!("more than {}, where distances are exact", n_buckets / 4);
            let found = distance_max.to_string();
            return Err(json.error("relative_attention_max_distance", found, expected));
        }
        let (count, dim) = (json.count("num_heads", None)?, json.count("d_kv", None)?);
        if count > HEADS_MAX {
            let expected = format!("at most {HEADS_MAX}");
            return Err(json.error("num_heads", count.to_string(), expected));
        }
        if count.checked_mul(dim).is_none_or(|n| i32::try_from(n).is_err()) {
            let expected = "heads whose columns can be counted";
            return Err(json.error("d_kv", dim.to_string(), expected));
        }
        Ok(Config {
            biases,
            hidden: json.count("d_model", None)?,
            heads: Heads { batch: 1, count, dim },
            intermediate: json.count("d_ff", None)?,
            n_layers: json.count("num_layers", None)?,
            n_vocab: json.count("vocab_size", None)?,
            n_buckets,
            distance_max,
            epsilon: json.epsilon("layer_norm_epsilon", 1e-6)?,
            activation: json.activation("", activation)?,
            gated,
            pad_token_id: json.number("pad_token_id", Some(0))?,
        })
    }
}

/// Heads beyond which a config is a mistake: each has its own biases.
const HEADS_MAX: u64 = 1 << 10;

/// Tokens beyond which the biases by distance would be larger than the model.
const LENGTH_MAX: u64 = 1 << 12;

/// One function `main`: `input_ids` and `attention_mask` to `last_hidden_state`.
fn build(biases: Biases, folder: &Folder, options: &Options) -> Result<Built, Error> {
    let mut config = Config::parse(&folder.config, biases)?;
    let file = folder.config.file();
    let span = Span { unit: "token", default: LENGTH_DEFAULT, min: 1, max: LENGTH_MAX };
    let length = lengths::length(options, &span, file)?;
    config.heads.batch = lengths::batch(options, file)?;
    let weights = Weights::whole(&folder.path)?;
    let graph = graph(&config, &weights, length)?;
    Ok(Built {
        functions: vec![graph],
        usage: Usage::Text { pad_token_id: config.pad_token_id },
        n_parameters: weights.n_parameters(),
        n_bytes: weights.n_bytes(),
    })
}

fn graph(config: &Config, weights: &Weights, length: u64) -> Result<Graph, Error> {
    let mut net = Net::new("main", weights.file());
    let mut s = Scope::new(&mut net, weights);
    let shape = [config.heads.batch, length].map(Dim::Fixed);
    let ids = s.net.graph.add_input("input_ids", TensorType::new(DType::I32, shape.clone()));
    let mask = s.net.graph.add_input("attention_mask", TensorType::new(DType::I32, shape));
    let table = ["encoder.embed_tokens", "shared"];
    let table = table.iter().find(|t| s.has(&format!("{t}.weight"))).unwrap_or(&table[1]);
    let mut x = s.embedding(table, ids, [config.n_vocab, config.hidden], "words")?;
    let padding = padding_bias(&mut s, mask)?;
    let mut bias = None;
    for i in 0..config.n_layers {
        let mut s = s.inside(&format!("encoder.block.{i}"), &format!("layer_{i}"));
        let bias = match (config.biases, bias) {
            (Biases::Shared, Some(first)) => first,
            _ => *bias.insert(distance_bias(&mut s, config, length)?),
        };
        x = layer(&mut s, config, length, x, &[bias, padding])?;
    }
    let norm = (config.hidden, config.epsilon);
    let x = s.rms_norm("encoder.final_layer_norm", x, norm, "last_hidden_state")?;
    net.graph.set_outputs(vec![x]);
    Ok(net.graph)
}

fn distance_bias(s: &mut Scope, config: &Config, length: u64) -> Result<Value, Error> {
    let mut s = s.inside("layer.0.SelfAttention.relative_attention_bias", "");
    let heads = config.heads.count;
    let table = s.tensor("weight", &[config.n_buckets, heads])?.to_f32();
    let buckets = (config.n_buckets, config.distance_max);
    let biases = mpnet::biases(&table, buckets, heads, length);
    s.constant(Tensor::f32(vec![1, heads, length, length], &biases), "distance_bias")
}

const PROJECTIONS: Projections = Projections {
    query: ("q", Bias::Absent),
    key: ("k", Bias::Absent),
    value: ("v", Bias::Absent),
    output: ("o", Bias::Absent),
};

fn layer(
    s: &mut Scope,
    config: &Config,
    length: u64,
    x: Value,
    added: &[Value],
) -> Result<Value, Error> {
    let hidden = config.hidden;
    let norm = (hidden, config.epsilon);
    let normed = s.rms_norm("layer.0.layer_norm", x, norm, "normed")?;
    let mut attended = s.inside("layer.0.SelfAttention", "");
    let reads = Reads::itself(normed, length, hidden);
    let scores = (None, added);
    let a = &PROJECTIONS;
    let y = attention(&mut attended, a, config.heads, reads, scores, hidden, "attention")?;
    let sum = s.add(x, y, "attention_sum")?;
    let normed = s.rms_norm("layer.1.layer_norm", sum, norm, "attention_normed")?;
    let y = mlp(&mut s.inside("layer.1.DenseReluDense", ""), config, normed)?;
    s.add(sum, y, "output")
}

fn mlp(s: &mut Scope, config: &Config, x: Value) -> Result<Value, Error> {
    let (hidden, inner) = (config.hidden, config.intermediate);
    let none = Bias::Absent;
    let inner_value = match config.gated {
        false => {
            let up = s.linear("wi", x, (hidden, inner), none, "up")?;
            s.activation(config.activation, up, "active")?
        }
        true => {
            let gate = s.linear("wi_0", x, (hidden, inner), none, "gate")?;
            let gate = s.activation(config.activation, gate, "open_gate")?;
            let up = s.linear("wi_1", x, (hidden, inner), none, "up")?;
            s.mul(gate, up, "gated")?
        }
    };
    s.linear("wo", inner_value, (inner, hidden), none, "down")
}
