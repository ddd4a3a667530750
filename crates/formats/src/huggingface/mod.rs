//! Hugging Face folders of BERT-like encoders as programs in f32.
//!
//! The program computes what `transformers` does, op for op, in the order it does it; making it
//! fast is the passes' job. Weights stay in their mapped files. Each family is one file of facts
//! ([`Family`]): which fields of `config.json` it uses and what its modules are called.

mod bert;
mod config;
mod distilbert;
mod encoder;
mod head;
mod mpnet;
mod net;
mod roberta;
mod weights;

use std::path::{Path, PathBuf};

use russet_ir::{Opset, Program};

use crate::{Error, mapped};
use encoder::Lengths;
use head::Head;
use weights::Weights;

pub use config::{Activation, Config, Family};

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
}

impl Default for Options {
    fn default() -> Options {
        Options { lengths: Vec::new(), batch: 1, mask: Mask::Input, pooling: None }
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
    /// One function `main`: `input_ids` and maybe `attention_mask`, int32 `[batch, S]`, to
    /// `last_hidden_state`, fp32 `[batch, S, hidden]`, and maybe `sentence_embedding`.
    pub program: Program,
    /// `bert`, `roberta`, …
    pub family: &'static str,
    /// Weights the program uses.
    pub n_parameters: u64,
    /// Bytes of the weight files.
    pub n_bytes: u64,
    /// Tokens the position table has room for.
    pub length_max: u64,
    pub pad_token_id: u64,
    /// `tokenizer.json`, if there is one.
    pub tokenizer: Option<PathBuf>,
}

/// Reads the model in `folder`: `config.json`, safetensors, and what sentence-transformers put
/// beside them (`modules.json`), which says how tokens are pooled.
///
/// # Errors
/// Files that are missing or damaged, a family or an activation that is not known, a config that
/// does not fit the weights (both shapes are in the error), lengths the model has no room for.
pub fn load(folder: &Path, options: &Options) -> Result<Source, Error> {
    let modules = head::modules(folder)?;
    let folder = modules.transformer.as_path();
    let config_file = folder.join("config.json");
    let config = Config::parse(&mapped::text(&config_file)?, &config_file)?;
    let weights = Weights::open(folder, &config)?;
    let lengths = Lengths::choose(&config, &config_file, options)?;
    let head = Head::choose(&modules, options)?;
    let graph = encoder::build(&config, &weights, &lengths, options, &head)?;
    let (n_dense, dense_bytes) = head.size();
    let tokenizer = folder.join("tokenizer.json");
    Ok(Source {
        program: Program::new(Opset::Ios15, vec![graph]),
        family: config.family.name,
        n_parameters: weights.n_parameters() + n_dense,
        n_bytes: weights.n_bytes() + dense_bytes,
        length_max: config.length_max(),
        pad_token_id: config.pad_token_id,
        tokenizer: tokenizer.is_file().then_some(tokenizer),
    })
}
