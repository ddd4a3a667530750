//! `config.json`: the numbers of an encoder, and which family it is of.

use std::path::Path;

use russet_ir::ops::GeluMode;
use serde_json::{Map, Value};

use super::{bert, distilbert, mpnet, roberta};
use crate::Error;

/// What sets the encoders of one family apart from the others.
#[derive(Debug)]
pub struct Family {
    pub name: &'static str,
    /// Values of `model_type`.
    pub model_types: &'static [&'static str],
    /// What names in `architectures` begin with, for configs without `model_type`.
    pub architectures: &'static [&'static str],
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

const FAMILIES: &[&Family] =
    &[&bert::BERT, &roberta::ROBERTA, &distilbert::DISTILBERT, &mpnet::MPNET];

/// The function between the two linear layers of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    Gelu(GeluMode),
    Relu,
    Silu,
}

const ACTIVATIONS: &[(&str, Activation)] = &[
    ("gelu", Activation::Gelu(GeluMode::Exact)),
    ("gelu_python", Activation::Gelu(GeluMode::Exact)),
    ("gelu_new", Activation::Gelu(GeluMode::Tanh)),
    ("gelu_fast", Activation::Gelu(GeluMode::Tanh)),
    ("gelu_pytorch_tanh", Activation::Gelu(GeluMode::Tanh)),
    ("relu", Activation::Relu),
    ("silu", Activation::Silu),
    ("swish", Activation::Silu),
];

/// The numbers of an encoder.
#[derive(Debug, Clone)]
pub struct Config {
    pub family: &'static Family,
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
    /// Reads the text of a `config.json`; `file` is for errors.
    pub fn parse(text: &str, file: &Path) -> Result<Config, Error> {
        let json: Map<String, Value> =
            serde_json::from_str(text).map_err(|e| Error::malformed(file, None, e.to_string()))?;
        let json = Json { json, file };
        let family = json.family()?;
        json.require("position_embedding_type", "absolute")?;
        json.require("is_decoder", false)?;
        json.require("add_cross_attention", false)?;
        let f = &family.fields;
        let has_bias = family.modules.relative_bias.is_some();
        let config = Config {
            family,
            hidden: json.count(f.hidden, None)?,
            n_layers: json.count(f.n_layers, None)?,
            n_heads: json.count(f.n_heads, None)?,
            intermediate: json.count(f.intermediate, None)?,
            n_vocab: json.count("vocab_size", None)?,
            n_positions: json.count("max_position_embeddings", None)?,
            n_token_types: match family.has_token_types {
                true => json.count("type_vocab_size", Some(2))?,
                false => 0,
            },
            norm_epsilon: json.epsilon("layer_norm_eps", 1e-12)?,
            activation: json.activation(f.activation)?,
            pad_token_id: json.number("pad_token_id", Some(family.pad_token_id_default))?,
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
        match self.family.positions {
            Positions::FromZero => 0,
            Positions::AfterPadding => self.pad_token_id.saturating_add(1),
        }
    }

    /// Tokens the position table has room for.
    pub fn length_max(&self) -> u64 {
        self.n_positions.saturating_sub(self.first_position())
    }
}

struct Json<'a> {
    json: Map<String, Value>,
    file: &'a Path,
}

impl Json<'_> {
    fn error(&self, field: &str, found: String, expected: String) -> Error {
        Error::Config { file: self.file.to_owned(), field: field.to_owned(), found, expected }
    }

    fn found(&self, field: &str) -> String {
        self.json.get(field).map_or("absent".into(), Value::to_string)
    }

    fn family(&self) -> Result<&'static Family, Error> {
        let text = |v: &Value| v.as_str().map(str::to_owned);
        let architectures = self.json.get("architectures");
        let architecture = architectures.and_then(|a| a.get(0)).and_then(text);
        let model_type = self.json.get("model_type").and_then(text);
        let family = match (&model_type, &architecture) {
            (Some(t), _) => FAMILIES.iter().find(|f| f.model_types.contains(&t.as_str())),
            (None, Some(a)) => {
                FAMILIES.iter().find(|f| f.architectures.iter().any(|b| a.starts_with(b)))
            }
            (None, None) => {
                let expected = "the name of a family".to_owned();
                return Err(self.error("model_type", self.found("model_type"), expected));
            }
        };
        let known: Vec<&str> = FAMILIES.iter().flat_map(|f| f.model_types).copied().collect();
        family.copied().ok_or_else(|| Error::Family {
            file: self.file.to_owned(),
            found: model_type.or(architecture).unwrap_or_default(),
            known: known.join(", "),
        })
    }

    /// A field that, where it is present, must have this value.
    fn require(&self, field: &str, value: impl Into<Value>) -> Result<(), Error> {
        let value = value.into();
        match self.json.get(field) {
            None | Some(Value::Null) => Ok(()),
            Some(found) if *found == value => Ok(()),
            Some(found) => Err(self.error(field, found.to_string(), value.to_string())),
        }
    }

    fn number(&self, field: &str, default: Option<u64>) -> Result<u64, Error> {
        let number = match self.json.get(field) {
            None | Some(Value::Null) => default,
            // Kept within what an int32 of a program can hold.
            Some(v) => v.as_u64().filter(|&n| i32::try_from(n).is_ok()),
        };
        number.ok_or_else(|| self.error(field, self.found(field), "a whole number".to_owned()))
    }

    fn count(&self, field: &str, default: Option<u64>) -> Result<u64, Error> {
        match self.number(field, default)? {
            0 => Err(self.error(field, "0".to_owned(), "at least 1".to_owned())),
            n => Ok(n),
        }
    }

    fn epsilon(&self, field: &str, default: f64) -> Result<f32, Error> {
        let number = match self.json.get(field) {
            None | Some(Value::Null) => Some(default),
            Some(v) => v.as_f64().filter(|x| (0.0..1.0).contains(x)),
        };
        let expected = || "a number from 0 to 1".to_owned();
        number.map(|x| x as f32).ok_or_else(|| self.error(field, self.found(field), expected()))
    }

    fn activation(&self, field: &str) -> Result<Activation, Error> {
        let name = self.json.get(field).map_or(Some("gelu"), Value::as_str);
        let known = ACTIVATIONS.iter().find(|a| Some(a.0) == name);
        known.map(|a| a.1).ok_or_else(|| {
            let names: Vec<&str> = ACTIVATIONS.iter().map(|a| a.0).collect();
            self.error(field, self.found(field), format!("one of {}", names.join(", ")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TINY: &str = r#"{"model_type": "bert", "hidden_size": 8, "num_hidden_layers": 1,
        "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 10,
        "max_position_embeddings": 12, "hidden_act": "gelu"}"#;

    #[test]
    fn what_does_not_add_up_is_refused_by_field() {
        let parse = |text: &str| Config::parse(text, Path::new("config.json"));
        assert_eq!(parse(TINY).unwrap().head_dim(), 4);
        for (from, to, field) in [
            (r#""hidden_size": 8"#, r#""hidden_size": 9"#, "hidden_size"),
            (r#""num_hidden_layers": 1"#, r#""num_hidden_layers": 0"#, "num_hidden_layers"),
            (r#""num_attention_heads": 2"#, r#""num_attention_heads": -2"#, "num_attention_heads"),
            (r#""vocab_size": 10,"#, "", "vocab_size"),
            (r#""gelu""#, r#""snake""#, "hidden_act"),
            (r#""vocab_size": 10"#, r#""vocab_size": 1e300"#, "vocab_size"),
            (r#"{"model"#, r#"{"is_decoder": true, "model"#, "is_decoder"),
            (r#""model_type": "bert","#, "", "model_type"),
        ] {
            let e = parse(&TINY.replace(from, to)).unwrap_err();
            assert_eq!((e.code(), e.at()), ("bad-config", Some(field)));
        }
        let e = parse(&TINY.replace("bert", "albert")).unwrap_err();
        assert_eq!(e.code(), "unknown-family");
        let by_architecture = r#""architectures": ["XLMRobertaModel"]"#;
        let c = parse(&TINY.replace(r#""model_type": "bert""#, by_architecture)).unwrap();
        assert_eq!((c.family.name, c.first_position(), c.length_max()), ("roberta", 2, 10));
        assert_eq!(parse("[]").unwrap_err().code(), "malformed");
    }
}
