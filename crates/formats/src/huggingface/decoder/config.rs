//! The numbers of a decoder, and the choices in which families of decoders differ.

use std::collections::BTreeMap;

use super::super::json::{Activation, Json};
use super::super::usage::{Mask, Rotary};
use super::rotary::{self, Table};
use crate::Error;

/// A decoder: layers of attention over the past and a block of linear layers.
#[derive(Debug, Clone)]
pub struct Config {
    pub hidden: u64,
    pub n_layers: u64,
    pub n_heads: u64,
    /// Heads of keys and values; several query heads share one.
    pub n_kv_heads: u64,
    pub head_dim: u64,
    pub intermediate: u64,
    pub n_vocab: u64,
    /// Tokens the model was made for.
    pub length_max: u64,
    pub norm: Norm,
    pub epsilon: f32,
    pub activation: Activation,
    pub mlp: Mlp,
    pub projections: Projections,
    pub biases: Biases,
    pub residual: Residual,
    /// Of each head's queries and keys.
    pub head_norm: Option<Norm>,
    pub positions: Positions,
    pub layers: Vec<Layer>,
    pub masks: BTreeMap<String, Mask>,
    /// What scores are multiplied by.
    pub score_scale: f32,
    /// `c * tanh(x / c)` of scores, of logits.
    pub score_cap: Option<f32>,
    pub logit_cap: Option<f32>,
    /// What the vectors of tokens are multiplied by.
    pub embedding_scale: Option<f32>,
    /// Is the LM head the table of embeddings?
    pub tied: bool,
    pub names: Names,
    pub bos_token_id: Option<u64>,
    pub eos_token_ids: Vec<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Norm {
    Layer,
    Rms,
    /// Root mean square, scaled by one plus the weight.
    RmsPlusOne,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mlp {
    /// up, activation, down.
    Plain,
    /// down(activation(gate) * up).
    Gated,
    /// The same; gate and up are the rows of one weight.
    GatedFused,
}

/// How queries, keys and values are projected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Projections {
    Separate,
    /// They are the rows of one weight, one after another.
    Fused,
    /// The same; and every weight of a layer is stored transposed, `[inputs, outputs]`.
    FusedTransposed,
}

/// Which linear layers have a bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Biases {
    pub qkv: bool,
    pub output: bool,
    pub mlp: bool,
    pub head: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residual {
    /// x + attention(norm(x)), then x + mlp(norm(x)).
    Sequential,
    /// x + attention(norm(x)) + mlp(norm(x)), of one norm.
    Parallel,
    /// Like sequential, with a norm before and after either part.
    Sandwich,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Positions {
    /// A table of vectors.
    Learned,
    /// The first columns of each head are rotated, by tables of these names.
    Rotary { n_columns: u64, tables: BTreeMap<String, Rotary> },
}

/// What differs from layer to layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// The name of its mask.
    pub mask: &'static str,
    /// The name of its rotary table; none in layers without positions.
    pub rotary: Option<&'static str>,
}

/// What modules are called; those of a layer are below `layers.{i}`.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    pub embeddings: &'static str,
    pub positions: &'static str,
    pub layers: &'static str,
    pub query: &'static str,
    pub key: &'static str,
    pub value: &'static str,
    /// All three, when they are one.
    pub qkv: &'static str,
    pub output: &'static str,
    pub query_norm: &'static str,
    pub key_norm: &'static str,
    pub gate: &'static str,
    pub up: &'static str,
    pub gate_up: &'static str,
    pub down: &'static str,
    pub attention_norm: &'static str,
    pub after_attention_norm: &'static str,
    pub mlp_norm: &'static str,
    pub after_mlp_norm: &'static str,
    pub norm: &'static str,
}

/// The names of Llama and most that came after it.
pub const LLAMA_NAMES: Names = Names {
    embeddings: "embed_tokens",
    positions: "",
    layers: "layers",
    query: "self_attn.q_proj",
    key: "self_attn.k_proj",
    value: "self_attn.v_proj",
    qkv: "self_attn.qkv_proj",
    output: "self_attn.o_proj",
    query_norm: "self_attn.q_norm",
    key_norm: "self_attn.k_norm",
    gate: "mlp.gate_proj",
    up: "mlp.up_proj",
    gate_up: "mlp.gate_up_proj",
    down: "mlp.down_proj",
    attention_norm: "input_layernorm",
    after_attention_norm: "post_attention_layernorm",
    mlp_norm: "post_attention_layernorm",
    after_mlp_norm: "post_feedforward_layernorm",
    norm: "norm",
};

/// The mask of layers that see all of the past.
pub const FULL: &str = "attention_mask";
/// The mask of layers that see some tokens back, in models that have both kinds.
pub const SLIDING: &str = "sliding_attention_mask";
/// The rotary table, and that of sliding layers where they have their own.
pub const ROTARY: &str = "rotary";
pub const ROTARY_LOCAL: &str = "rotary_local";

impl Config {
    /// What Llama's config says, which most others also say in the same words: root-mean-square
    /// norms, a gated MLP, separate projections, one rotary table, full attention. `context` is
    /// how many tokens there will be, or else as many as the model was made for.
    pub fn llama(json: &Json, context: Option<u64>) -> Result<Config, Error> {
        let hidden = json.count("hidden_size", None)?;
        let n_heads = json.count("num_attention_heads", None)?;
        let head_dim = match json.has("head_dim") {
            true => json.count("head_dim", None)?,
            false if hidden.is_multiple_of(n_heads) => hidden / n_heads,
            false => {
                let expected = format!("a multiple of `num_attention_heads`, {n_heads}");
                return Err(json.error("hidden_size", hidden.to_string(), expected));
            }
        };
        if head_dim > HEAD_DIM_MAX {
            let expected = format!("at most {HEAD_DIM_MAX} columns of a head");
            return Err(json.error("head_dim", head_dim.to_string(), expected));
        }
        let length_max = json.count("max_position_embeddings", None)?;
        let partial = rotary::partial(json)?;
        let n_columns = (head_dim as f64 * partial) as u64;
        let table = Table { n_columns, length_max, context: context.unwrap_or(length_max) };
        let tables = BTreeMap::from([(ROTARY.to_owned(), rotary::read(json, None, &table)?)]);
        let n_layers = json.count("num_hidden_layers", None)?;
        if n_layers > LAYERS_MAX {
            let expected = format!("at most {LAYERS_MAX}");
            return Err(json.error("num_hidden_layers", n_layers.to_string(), expected));
        }
        let layer = Layer { mask: FULL, rotary: Some(ROTARY) };
        Ok(Config {
            hidden,
            n_layers,
            n_heads,
            n_kv_heads: json.count("num_key_value_heads", Some(n_heads))?,
            head_dim,
            intermediate: json.count("intermediate_size", None)?,
            n_vocab: json.count("vocab_size", None)?,
            length_max,
            norm: Norm::Rms,
            epsilon: json.epsilon("rms_norm_eps", 1e-6)?,
            activation: json.activation("hidden_act", "silu")?,
            mlp: Mlp::Gated,
            projections: Projections::Separate,
            biases: Biases::default(),
            residual: Residual::Sequential,
            head_norm: None,
            positions: Positions::Rotary { n_columns, tables },
            layers: vec![layer; n_layers as usize],
            masks: BTreeMap::from([(FULL.to_owned(), Mask { window: None })]),
            score_scale: (1.0 / (head_dim as f64).sqrt()) as f32,
            score_cap: None,
            logit_cap: None,
            embedding_scale: None,
            tied: json.flag("tie_word_embeddings", false)?,
            names: LLAMA_NAMES,
            bos_token_id: json.numbers("bos_token_id")?.first().copied(),
            eos_token_ids: json.numbers("eos_token_id")?,
        })
    }

    /// Every layer sees `sliding_window` tokens back, if the config has such a number.
    pub fn with_window(mut self, json: &Json) -> Result<Config, Error> {
        if json.has("sliding_window") {
            let window = Some(json.count("sliding_window", None)?);
            self.masks = BTreeMap::from([(FULL.to_owned(), Mask { window })]);
        }
        Ok(self)
    }

    /// Layers see all of the past or `sliding_window` tokens of it, as `layer_types` says; when the
    /// config has no such list, those for which `slides` holds.
    pub fn with_layer_types(
        mut self,
        json: &Json,
        slides: impl Fn(u64) -> bool,
    ) -> Result<Config, Error> {
        let n = self.n_layers;
        let sliding: Vec<bool> = match json.get("layer_types").and_then(|v| v.as_array()) {
            None => (0..n).map(slides).collect(),
            Some(types) => {
                let slides = |t: &serde_json::Value| match t.as_str() {
                    Some("full_attention") => Some(false),
                    Some("sliding_attention") => Some(true),
                    _ => None,
                };
                let all: Option<Vec<bool>> = types.iter().map(slides).collect();
                all.filter(|all| all.len() as u64 == n).ok_or_else(|| {
                    let expected = format!("{n} times full_attention or sliding_attention");
                    json.error("layer_types", json.found("layer_types"), expected)
                })?
            }
        };
        if !sliding.contains(&true) {
            return Ok(self);
        }
        let window = Some(json.count("sliding_window", None)?);
        self.masks = BTreeMap::new();
        for (layer, slides) in self.layers.iter_mut().zip(sliding) {
            layer.mask = if slides { SLIDING } else { FULL };
            let window = window.filter(|_| slides);
            self.masks.insert(layer.mask.to_owned(), Mask { window });
        }
        Ok(self)
    }

    /// What must hold between the numbers, whatever the family.
    pub fn checked(self, json: &Json) -> Result<Config, Error> {
        if !self.n_heads.is_multiple_of(self.n_kv_heads) {
            let found = self.n_kv_heads.to_string();
            let expected = format!("a divisor of `num_attention_heads`, {}", self.n_heads);
            return Err(json.error("num_key_value_heads", found, expected));
        }
        if let Positions::Rotary { n_columns, .. } = self.positions
            && (n_columns == 0 || n_columns % 2 == 1 || n_columns > self.head_dim)
        {
            let expected = format!("an even number of columns to rotate, {n_columns} are not");
            return Err(json.error("head_dim", self.head_dim.to_string(), expected));
        }
        let sizes = [self.hidden, self.intermediate, self.n_vocab, self.n_heads, self.head_dim];
        let widths = [self.n_heads.checked_mul(self.head_dim), self.intermediate.checked_mul(2)];
        let fits = |n: u64| i32::try_from(n).is_ok();
        if !sizes.into_iter().all(fits) || !widths.into_iter().all(|n| n.is_some_and(fits)) {
            let found = self.head_dim.to_string();
            return Err(json.error("head_dim", found, "sizes that an int32 can hold"));
        }
        Ok(self)
    }

    /// Columns of all query heads, and of all key heads.
    pub fn widths(&self) -> (u64, u64) {
        (self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim)
    }
}

/// More columns than any head has: tables are made for each.
const HEAD_DIM_MAX: u64 = 1 << 14;
/// More layers than any decoder has: a config beyond it is a mistake.
const LAYERS_MAX: u64 = 4096;
