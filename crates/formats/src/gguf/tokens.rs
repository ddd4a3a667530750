//! The vocabulary in a GGUF file, as what a tokenizer is made of.

use std::path::Path;

use super::{Gguf, Value};
use crate::Error;

/// A vocabulary and how text is cut into it.
#[derive(Debug, Clone, PartialEq)]
pub struct Tokens {
    pub model: Model,
    /// By id.
    pub pieces: Vec<String>,
    pub kinds: Vec<Kind>,
    /// Tokens put in front of every text, and behind it.
    pub before: Option<u32>,
    pub after: Option<u32>,
}

/// What a token is, by id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A piece of text like any other.
    Piece,
    /// Text that is found before anything is cut: lines, runs of spaces.
    Whole,
    /// No text: the end of one, a turn of a chat.
    Control,
}

/// How pieces are joined.
#[derive(Debug, Clone, PartialEq)]
pub enum Model {
    /// The pair whose union scores highest first; spaces are `▁`, what is no piece is bytes.
    Scores { scores: Vec<f32>, unknown: Option<u32>, space_in_front: bool },
    /// The pair listed first, `a b`; on bytes written as letters. The name says how text is cut into
    /// words before that.
    Merges { merges: Vec<String>, cut: String },
}

/// Reads it; `path` is for errors.
pub fn tokens(gguf: &Gguf, path: &Path) -> Result<Tokens, Error> {
    let get = |name: &str| gguf.metadata.get(&format!("tokenizer.ggml.{name}"));
    let wrong = |name: &str, why: &str| {
        Error::malformed(path, Some(&format!("tokenizer.ggml.{name}")), why)
    };
    let Some(Value::Strings(pieces)) = get("tokens") else {
        return Err(wrong("tokens", "there is no list of tokens"));
    };
    let n = pieces.len();
    let kinds = match get("token_type") {
        Some(Value::Ints(kinds)) if kinds.len() == n => kinds.clone(),
        None => vec![1; n],
        Some(_) => return Err(wrong("token_type", "there is not one for each token")),
    };
    let id = |name: &str| match get(name) {
        Some(Value::Int(id)) => u32::try_from(*id).ok().filter(|&id| (id as usize) < n),
        _ => None,
    };
    let flag = |name: &str, default| match get(name) {
        Some(Value::Bool(b)) => *b,
        _ => default,
    };
    let model = match get("model") {
        Some(Value::String(name)) if name == "llama" => {
            let Some(Value::Floats(scores)) = get("scores").filter(|_| n > 0) else {
                return Err(wrong("scores", "there is no list of scores"));
            };
            if scores.len() != n {
                return Err(wrong("scores", "there is not one for each token"));
            }
            let space_in_front = flag("add_space_prefix", true);
            let unknown = id("unknown_token_id");
            Model::Scores { scores: scores.clone(), unknown, space_in_front }
        }
        Some(Value::String(name)) if name == "gpt2" => {
            let Some(Value::Strings(merges)) = get("merges") else {
                return Err(wrong("merges", "there is no list of merges"));
            };
            let cut = match get("pre") {
                Some(Value::String(cut)) => cut.clone(),
                _ => "default".to_owned(),
            };
            Model::Merges { merges: merges.clone(), cut }
        }
        _ => return Err(wrong("model", "it is neither `llama` nor `gpt2`")),
    };
    let adds_first = flag("add_bos_token", matches!(model, Model::Scores { .. }));
    Ok(Tokens {
        model,
        pieces: pieces.clone(),
        kinds: kinds.iter().map(|&k| kind(k)).collect(),
        before: id("bos_token_id").filter(|_| adds_first),
        after: id("eos_token_id").filter(|_| flag("add_eos_token", false)),
    })
}

/// What GGUF's number of a kind of token stands for.
fn kind(number: i64) -> Kind {
    match number {
        3 => Kind::Control,
        4 => Kind::Whole,
        _ => Kind::Piece,
    }
}
