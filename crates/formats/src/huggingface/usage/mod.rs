//! How a program made of a folder is used: what its inputs mean, in numbers a package can carry.
//!
//! A package keeps it as JSON in its metadata (under [`KEY`]), so that `run` feeds a package as it
//! feeds the folder it was made from.

pub mod audio;
mod decoder;
pub mod image;
pub mod transcript;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use decoder::CACHE_DTYPE;

/// The metadata's key.
pub const KEY: &str = "russet.usage";

/// What the inputs of a program mean.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Usage {
    /// `input_ids` and maybe `attention_mask`, padded on the right.
    Text { pad_token_id: u64 },
    /// Functions `prefill`, `decode` and `lm_head`, with a cache.
    Decoder(Decoder),
    /// Pictures, and maybe texts that they are compared with.
    Image(image::Images),
    /// Sound.
    Audio(audio::Audio),
    /// Arrays that only their maker understands.
    Arrays,
}

/// Whether what past tokens left behind is a state of the program or goes in and out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cache {
    /// One state `kv_cache`, written by the program.
    #[default]
    State,
    /// An input `kv_cache`; the output `kv_new` holds the rows of the new tokens, which the caller
    /// puts into the cache.
    Io,
}

/// How a decoder is run, one chunk of tokens after the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decoder {
    pub cache: Cache,
    /// Tokens the cache has room for.
    pub context: u64,
    /// Tokens that `prefill` takes; `decode` takes one.
    pub chunk: u64,
    /// Tables of cosines and sines that are inputs, by what their names begin with.
    pub rotary: BTreeMap<String, Rotary>,
    /// Masks that are inputs, by name.
    pub masks: BTreeMap<String, Mask>,
    /// Is there an input `position_ids`, and what is added to the token's place?
    pub position_ids: Option<u64>,
    /// The token a text begins with, if the tokenizer does not put it there.
    pub bos_token_id: Option<u64>,
    /// Tokens that end a text.
    pub eos_token_ids: Vec<u64>,
}

/// Rotary positions: token `p` has the angles `p * frequencies`, as inputs `NAME_cos` and `NAME_sin`
/// `[1, 1, S, 2 * frequencies]`, the angles twice side by side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rotary {
    /// Angle per token, in radians, computed in f32 as `transformers` does.
    pub frequencies: Vec<f32>,
    /// What cosines and sines are multiplied by.
    pub scale: f32,
}

/// A mask `[1, 1, S, context + S]` of what each new token sees: first the cache, then the new tokens.
/// What is seen has 0, the rest [`MASKED`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mask {
    /// Tokens back that are seen, the token itself counted; all when absent.
    pub window: Option<u64>,
}

/// What a mask adds to the score of a token that is not seen: within fp16, and far enough below any
/// score that nothing is left of it.
pub const MASKED: f32 = -40000.0;
