//! Hugging Face folders as programs in f32.
//!
//! The program computes what `transformers` does, in the order it does it; making it fast is the
//! passes' job. Weights stay in their mapped files. Each family is one file: which fields of
//! `config.json` it uses, what its modules are called and how they are put together
//! ([`Family`](family::Family)), from blocks that families share ([`net`]).

mod attention;
mod audio;
mod bert;
mod config;
mod decoder;
mod diffusion;
mod distilbert;
mod encoder;
mod family;
mod gemma;
mod gpt2;
mod head;
mod json;
mod lengths;
mod llama;
mod mpnet;
mod net;
mod phi;
mod qwen;
mod roberta;
mod scope;
mod t5;
pub mod usage;
mod vision;
mod weights;

use std::path::{Path, PathBuf};

use russet_ir::{Opset, Program};

use crate::{Error, gguf};
use family::Folder;
use json::Json;
use usage::{Cache, Usage};

pub use family::check;

/// Tokens when nothing is said about them.
pub const LENGTH_DEFAULT: u64 = 128;

/// What the program is to be made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Numbers of tokens; the first is the default. None means [`LENGTH_DEFAULT`].
    pub lengths: Vec<u64>,
    /// Sequences at once.
    pub batch: u64,
    pub mask: Mask,
    /// Instead of what the folder says about pooling.
    pub pooling: Option<Pooling>,
    /// Of decoders: where past tokens are kept.
    pub cache: Cache,
    /// Of decoders: how many tokens there are at most, past ones and new ones.
    pub context: Option<u64>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            lengths: Vec::new(),
            batch: 1,
            mask: Mask::Input,
            pooling: None,
            cache: Cache::State,
            context: None,
        }
    }
}

/// Where the attention mask comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mask {
    /// An input `attention_mask`: 1 for tokens, 0 for padding.
    Input,
    /// Tokens are the ids that are not the padding id. The program has one input only, which is
    /// what several lengths need before iOS 18.
    FromIds,
}

/// How the vectors of all tokens become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// The mean over tokens that are no padding.
    Mean,
    /// The vector of the first token.
    Cls,
    /// The largest of each component over tokens that are no padding.
    Max,
}

/// A model as it was found, and its program.
#[derive(Debug, Clone)]
pub struct Source {
    pub program: Program,
    /// `bert`, `roberta`, …
    pub family: &'static str,
    /// How its inputs are made.
    pub usage: Usage,
    /// Weights the program uses.
    pub n_parameters: u64,
    /// Bytes of the weight files.
    pub n_bytes: u64,
    /// `tokenizer.json`, if there is one.
    pub tokenizer: Option<PathBuf>,
}

/// Reads the model in `folder`: `config.json`, safetensors, and what sentence-transformers put
/// beside them (`modules.json`), which says how tokens are pooled. A GGUF file is such a folder in one
/// piece.
///
/// # Errors
/// Files that are missing or damaged, a family or an activation that is not known, a config that
/// does not fit the weights (both shapes are in the error), lengths the model has no room for.
pub fn load(folder: &Path, options: &Options) -> Result<Source, Error> {
    let (path, config, tokenizer) = if folder.is_file() {
        let config = gguf::config(&gguf::read(folder)?, folder)?;
        (folder.to_owned(), Json::parse(&config, folder)?, folder.to_owned())
    } else {
        let path = head::modules(folder)?.transformer;
        let config = Json::read(&path.join("config.json"))?;
        let tokenizer = path.join("tokenizer.json");
        (path, config, tokenizer)
    };
    let family = family::family(&config)?;
    let folder = Folder { path, config, root: folder.to_owned() };
    let built = (family.build)(&folder, options)?;
    let mut program = Program::new(Opset::Ios15, built.functions);
    let usage = serde_json::to_string(&built.usage).expect("plain numbers and names");
    program.metadata.insert(usage::KEY.to_owned(), usage);
    Ok(Source {
        program,
        family: family.name,
        usage: built.usage,
        n_parameters: built.n_parameters,
        n_bytes: built.n_bytes,
        tokenizer: tokenizer.is_file().then_some(tokenizer),
    })
}
