//! Decoders: three functions, `prefill` for a chunk of tokens, `decode` for one, `lm_head`.
//!
//! `prefill` and `decode` are the same trunk ([`trunk`]) for different numbers of new tokens. What
//! past tokens left behind, keys and values of every layer, is one tensor `kv_cache`
//! `[2 * layers, kv_heads, context, head_dim]`: of layer `i` the keys are at `2 * i`, the values
//! after them. The trunk never changes it within a run: each layer reads its part of the past, puts
//! its own keys and values behind it, and all new ones are written at once at the end. Masks and
//! rotary tables are inputs, so that nothing in the program depends on where a token stands.

mod attention;
pub mod cache;
pub mod config;
pub mod rotary;
mod trunk;

use std::path::Path;

use russet_ir::{DType, Graph, TensorType, Value};

use super::Options;
use super::family::{Built, Folder};
use super::json::Json;
use super::net::Net;
use super::usage::{self, Cache, Usage};
use super::weights::Weights;
use crate::Error;
use config::{Config, Positions};

/// How a family reads its config; the second is how many tokens there will be, if that is known.
pub type Read = fn(&Json, Option<u64>) -> Result<Config, Error>;

/// Tokens that `prefill` takes when nothing is said about it.
const CHUNK_DEFAULT: u64 = 64;
/// Tokens the cache has room for when nothing is said about it and the model has no less.
const CONTEXT_DEFAULT: u64 = 2048;

/// Does the config add up?
pub fn check(read: Read, json: &Json) -> Result<(), Error> {
    read(json, None)?.checked(json).map(|_| ())
}

/// The functions of the decoder in `folder`.
pub fn build(read: Read, folder: &Folder, options: &Options) -> Result<Built, Error> {
    let json = &folder.config;
    let most = read(json, None)?.length_max;
    let sizes = Sizes::choose(most, json.file(), options)?;
    let mut config = read(json, Some(sizes.context))?.checked(json)?;
    if let Some(ids) = ends(folder)? {
        config.eos_token_ids = ids;
    }
    let table = format!("{}.weight", config.names.embeddings);
    let weights = Weights::open(&folder.path, &(&table, vec![config.n_vocab, config.hidden]))?;
    let mut functions = Vec::new();
    for (name, n_new) in [("prefill", sizes.chunk), ("decode", 1)] {
        functions.push(trunk::build(name, &config, &weights, &sizes, n_new)?);
    }
    let n_parameters = weights.n_parameters() / 2;
    functions.push(head(&config, &weights)?);
    let head_parameters = weights.n_parameters() - 2 * n_parameters;
    Ok(Built {
        functions,
        usage: Usage::Decoder(sizes.usage(&config)),
        n_parameters: n_parameters + if config.tied { 0 } else { head_parameters },
        n_bytes: weights.n_bytes(),
    })
}

/// The tokens that end a text as `generation_config.json` has them, which counts for more than the
/// config: chat models have several.
fn ends(folder: &Folder) -> Result<Option<Vec<u64>>, Error> {
    let file = folder.path.join("generation_config.json");
    if !file.is_file() {
        return Ok(None);
    }
    let ids = Json::read(&file)?.numbers("eos_token_id")?;
    Ok(Some(ids).filter(|ids| !ids.is_empty()))
}

/// How many tokens a program is for, and where the past is kept.
pub struct Sizes {
    pub context: u64,
    pub chunk: u64,
    pub cache: Cache,
}

impl Sizes {
    fn choose(length_max: u64, file: &Path, options: &Options) -> Result<Sizes, Error> {
        let refused = |option, found: u64, why: String| {
            Err(Error::Choice { file: file.to_owned(), option, found: found.to_string(), why })
        };
        if options.batch != 1 {
            let why = "a decoder's cache is of one sequence".into();
            return refused("batch", options.batch, why);
        }
        if options.pooling.is_some() {
            return refused("pooling", 1, "a decoder has nothing to pool".into());
        }
        let context = options.context.unwrap_or(CONTEXT_DEFAULT.min(length_max));
        if context == 0 || context > length_max {
            return refused(
                "context",
                context,
                format!("the model is for 1 to {length_max} tokens"),
            );
        }
        let chunk = match options.lengths[..] {
            [] => CHUNK_DEFAULT.min(context),
            [one] => one,
            [_, second, ..] => {
                return refused("length", second, "prefill has one number of tokens".into());
            }
        };
        if chunk == 0 || chunk > context {
            return refused("length", chunk, format!("there is room for 1 to {context} tokens"));
        }
        Ok(Sizes { context, chunk, cache: options.cache })
    }

    fn usage(&self, config: &Config) -> usage::Decoder {
        let (rotary, position_ids) = match &config.positions {
            Positions::Learned => (Default::default(), Some(0)),
            Positions::Rotary { tables, .. } => (tables.clone(), None),
        };
        usage::Decoder {
            cache: self.cache,
            context: self.context,
            chunk: self.chunk,
            rotary,
            masks: config.masks.clone(),
            position_ids,
            bos_token_id: config.bos_token_id,
            eos_token_ids: config.eos_token_ids.clone(),
        }
    }
}

/// `lm_head`: `hidden_state` `[1, 1, hidden]` of one token to `logits` `[1, 1, vocab]`.
fn head(config: &Config, weights: &Weights) -> Result<Graph, Error> {
    let mut net = Net::new("lm_head", weights.file());
    let x = net.graph.add_input("hidden_state", TensorType::new(DType::F32, [1, 1, config.hidden]));
    let (hidden, n_vocab) = (config.hidden, config.n_vocab);
    let name = if config.logit_cap.is_some() { "uncapped_logits" } else { "logits" };
    // The table may be shared, a bias is the head's own.
    let beside = weights.outside();
    let (weights, module) = match config.tied {
        true => (weights, config.names.embeddings),
        false => (&beside, "lm_head"),
    };
    net.enter(module);
    let weight = weights.get(&format!("{module}.weight"), &[n_vocab, hidden])?;
    let bias = match config.biases.head {
        true => Some(beside.get("lm_head.bias", &[n_vocab])?),
        false => None,
    };
    let mut y = net.linear_of(x, weight, bias, name)?;
    if let Some(cap) = config.logit_cap {
        y = capped(&mut net, y, cap, "logits")?;
    }
    net.graph.set_outputs(vec![y]);
    Ok(net.graph)
}

/// `cap * tanh(x / cap)`.
fn capped(net: &mut Net, x: Value, cap: f32, name: &str) -> Result<Value, Error> {
    use russet_ir::ops::{Mul, Tanh};
    let inverse = net.scalar(1.0 / cap, &format!("{name}_cap_inverse"))?;
    let small = net.op(Mul { x, y: inverse }, &format!("{name}_small"))?;
    let bent = net.op(Tanh { x: small }, &format!("{name}_bent"))?;
    let cap = net.scalar(cap, &format!("{name}_cap"))?;
    net.op(Mul { x: bent, y: cap }, name)
}
