//! How a decoder is asked to write down what was said.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::json::Json;
use super::super::weights::json;
use super::Decoder;
use crate::Error;

/// Functions `encoder`, then `prefill`, `decode` and `lm_head`, which are also given the encoder's
/// `cross_cache`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Transcript {
    pub decoder: Decoder,
    /// The token a transcript begins with.
    pub start: u64,
    /// Tokens of languages by their short names; empty when there is one only.
    pub languages: BTreeMap<String, u64>,
    /// Tokens of what is asked for: `transcribe`, `translate`.
    pub tasks: BTreeMap<String, u64>,
    /// The token that asks for text without times.
    pub no_timestamps: Option<u64>,
    /// Tokens that are never taken, and those that are not taken first.
    pub suppressed: BTreeSet<u64>,
    pub suppressed_first: BTreeSet<u64>,
}

impl Transcript {
    /// By `generation_config.json`, or where it does not say by `config.json` and `tokenizer.json`.
    pub fn read(folder: &Path, config: &Json, decoder: Decoder) -> Result<Transcript, Error> {
        let file = folder.join("generation_config.json");
        let generation = match file.is_file() {
            true => Json::read(&file)?,
            false => config.clone(),
        };
        let named = special_tokens(&folder.join("tokenizer.json"))?;
        let list = |field: &str| {
            let of = if generation.has(field) { &generation } else { config };
            // -1 stands for none in some.
            match of.has(field) {
                true => Ok::<_, Error>(of.numbers(field)?.into_iter().collect()),
                false => Ok(BTreeSet::new()),
            }
        };
        let start = match named.get("<|startoftranscript|>") {
            Some(&id) => id,
            None => config.number("decoder_start_token_id", Some(50258))?,
        };
        let bare = |token: &str| {
            let name = token.strip_prefix("<|")?.strip_suffix("|>")?;
            Some(name.to_owned())
        };
        let is_multilingual = match generation.has("is_multilingual") {
            true => generation.flag("is_multilingual", true)?,
            false => config.number("vocab_size", Some(0))? >= FIRST_MULTILINGUAL_SIZE,
        };
        let (mut languages, mut tasks) = (BTreeMap::new(), BTreeMap::new());
        if is_multilingual {
            for (token, &id) in &named {
                let Some(name) = bare(token) else { continue };
                if matches!(name.as_str(), "transcribe" | "translate") {
                    tasks.insert(name, id);
                } else if is_language(&name) {
                    languages.insert(name, id);
                }
            }
        }
        let no_timestamps = match generation.has("no_timestamps_token_id") {
            true => Some(generation.number("no_timestamps_token_id", None)?),
            false => named.get("<|notimestamps|>").copied(),
        };
        Ok(Transcript {
            decoder,
            start,
            languages,
            tasks,
            no_timestamps,
            suppressed: list("suppress_tokens")?,
            suppressed_first: list("begin_suppress_tokens")?,
        })
    }

    /// What follows the first token, for a language if there is a choice.
    pub fn prompt(&self, language: Option<u64>, task: &str) -> Vec<u64> {
        let task = language.and_then(|_| self.tasks.get(task).copied());
        language.into_iter().chain(task).chain(self.no_timestamps).collect()
    }
}

/// Vocabularies from here on are of many languages.
const FIRST_MULTILINGUAL_SIZE: u64 = 51865;

/// `en`, `haw`: what tokens of languages are called.
fn is_language(name: &str) -> bool {
    (2..=3).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_lowercase())
}

/// Tokens a tokenizer treats apart, by their text; none when there is no tokenizer.
fn special_tokens(file: &Path) -> Result<BTreeMap<String, u64>, Error> {
    if !file.is_file() {
        return Ok(BTreeMap::new());
    }
    let tokenizer: Value = json(file)?;
    let tokens = tokenizer.get("added_tokens").and_then(Value::as_array);
    let one = |token: &Value| {
        let id = token.get("id")?.as_u64().filter(|&id| i32::try_from(id).is_ok())?;
        Some((token.get("content")?.as_str()?.to_owned(), id))
    };
    Ok(tokens.into_iter().flatten().filter_map(one).collect())
}
