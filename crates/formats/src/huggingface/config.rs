//! The numbers of a BERT-like encoder, and what sets one family of them apart from the others.

use super::json::{Activation, Json};
use crate::Error;

/// What sets the encoders of one family apart from the others.
#[derive(Debug)]
pub struct Facts {
    pub fields: Fields,
    pub positions: Positions,
    /// Has it a table of token types? All tokens are taken to be of type 0.
    pub has_token_types: bool,
    /// Modules of layer `i`, below [`LayerModules::layers`]`.{i}`.
    pub modules: LayerModules,
    pub pad_token_id_default: u64,
}

/// Names of the fields of `config.json`.
#[derive(Debug)]
pub struct Fields {
    pub hidden: &'static str,
    pub n_layers: &'static str,
    pub n_heads: &'static str,
    pub intermediate: &'static str,
    pub activation: &'static str,
}

/// The names most families use.
pub const USUAL_FIELDS: Fields = Fields {
    hidden: "hidden_size",
    n_layers: "num_hidden_layers",
    n_heads: "num_attention_heads",
    intermediate: "intermediate_size",
    activation: "hidden_act",
};

/// Which row of the position table the first token has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Positions {
    FromZero,
    /// One after the padding id. Exact when padding is on the right: padding itself gets other
    /// positions than in `transformers`, which nothing that is no padding ever sees.
    AfterPadding,
}

/// Names of the modules of one layer.
#[derive(Debug)]
pub struct LayerModules {
    pub layers: &'static str,
    pub query: &'static str,
    pub key: &'static str,
    pub value: &'static str,
    pub attention_output: &'static str,
    pub attention_norm: &'static str,
    pub up: &'static str,
    pub down: &'static str,
    pub output_norm: &'static str,
    /// Table of relative position biases shared by all layers.
    pub relative_bias: Option<&'static str>,
}

/// The numbers of an encoder.
#[derive(Debug, Clone)]
pub struct Config {
    pub facts: &'static Facts,
    pub hidden: u64,
    pub n_layers: u64,
    pub n_heads: u64,
    pub intermediate: u64,
    pub n_vocab: u64,
    /// Rows of the position table.
    pub n_positions: u64,
    /// Rows of the token type table; 0 for families without one.
    pub n_token_types: u64,
    pub norm_epsilon: f32,
    pub activation: Activation,
    pub pad_token_id: u64,
    /// Rows of the relative bias table; 0 for families without one.
    pub n_buckets: u64,
}

impl Config {
    /// Reads what `facts` name.
    pub fn parse(facts: &'static Facts, json: &Json) -> Result<Config, Error> {
        json.require("position_embedding_type", "absolute")?;
        json.require("is_decoder", false)?;
        json.require("add_cross_attention", false)?;
        let f = &facts.fields;
        let has_bias = facts.modules.relative_bias.is_some();
        let config = Config {
            facts,
            hidden: json.count(f.hidden, None)?,
            n_layers: json.count(f.n_layers, None)?,
            n_heads: json.count(f.n_heads, None)?,
            intermediate: json.count(f.intermediate, None)?,
            n_vocab: json.count("vocab_size", None)?,
            n_positions: json.count("max_position_embeddings", None)?,
            n_token_types: match facts.has_token_types {
                true => json.count("type_vocab_size", Some(2))?,
                false => 0,
            },
            norm_epsilon: json.epsilon("layer_norm_eps", 1e-12)?,
            activation: json.activation(f.activation, "gelu")?,
            pad_token_id: json.number("pad_token_id", Some(facts.pad_token_id_default))?,
            n_buckets: match has_bias {
                true => json.count("relative_attention_num_buckets", Some(32))?,
                false => 0,
            },
        };
        if !config.hidden.is_multiple_of(config.n_heads) {
            let expected = format!("a multiple of `{}`, {}", f.n_heads, config.n_heads);
            return Err(json.error(f.hidden, config.hidden.to_string(), expected));
        }
        if !config.n_buckets.is_multiple_of(4) {
            let (found, expected) = (config.n_buckets.to_string(), "a multiple of 4".to_owned());
            return Err(json.error("relative_attention_num_buckets", found, expected));
        }
        if config.length_max() == 0 {
            let expected = "more rows than those before the first token".to_owned();
            let found = config.n_positions.to_string();
            return Err(json.error("max_position_embeddings", found, expected));
        }
        Ok(config)
    }

    /// Columns of one attention head.
    pub fn head_dim(&self) -> u64 {
        self.hidden / self.n_heads
    }

    /// The row of the position table that the first token has.
    pub fn first_position(&self) -> u64 {
        match self.facts.positions {
            Positions::FromZero => 0,
            Positions::AfterPadding => self.pad_token_id.saturating_add(1),
        }
    }

    /// Tokens the position table has room for.
    pub fn length_max(&self) -> u64 {
        self.n_positions.saturating_sub(self.first_position())
    }
}
