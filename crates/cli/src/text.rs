//! Sentences as token ids.

use std::path::Path;

use russet_formats::{gguf, mapped};
use tokenizers::{Tokenizer, TruncationParams};

use crate::diagnostic::{Failure, Outcome};
use crate::vocabulary;

/// A tokenizer that leaves padding to us: how long a row is depends on the model's lengths.
pub struct Sentences {
    tokenizer: Tokenizer,
}

impl Sentences {
    /// The tokenizer in `file` (a `tokenizer.json`), cutting at `length_max` tokens.
    pub fn open(file: &Path, length_max: usize) -> Outcome<Sentences> {
        let failed =
            |e: tokenizers::Error| Failure::new("bad-tokenizer", e.to_string()).in_file(file);
        let mut tokenizer = read(file)?;
        tokenizer.with_padding(None);
        let truncation = TruncationParams { max_length: length_max, ..Default::default() };
        let truncation = (length_max < usize::MAX).then_some(truncation);
        tokenizer.with_truncation(truncation).map_err(failed)?;
        Ok(Sentences { tokenizer })
    }

    /// The ids of a sentence, with the tokens the model wants around it.
    pub fn ids(&self, sentence: &str) -> Outcome<Vec<i32>> {
        let encoding = self.tokenizer.encode(sentence, true);
        let encoding = encoding.map_err(|e| Failure::new("bad-text", e.to_string()))?;
        encoding
            .get_ids()
            .iter()
            .map(|&id| {
                i32::try_from(id)
                    .map_err(|_| Failure::new("bad-tokenizer", format!("a token id of {id}")))
            })
            .collect()
    }

    /// The text that ids stand for, without the tokens that are no text.
    pub fn text(&self, ids: &[i32]) -> Outcome<String> {
        let ids: Vec<u32> = ids.iter().filter_map(|&id| id.try_into().ok()).collect();
        self.tokenizer.decode(&ids, true).map_err(|e| Failure::new("bad-text", e.to_string()))
    }
}

/// The tokenizer in a `tokenizer.json`, or in a GGUF file.
fn read(file: &Path) -> Outcome<Tokenizer> {
    let failed = |e: tokenizers::Error| Failure::new("bad-tokenizer", e.to_string()).in_file(file);
    let bytes = mapped::open(file)?;
    if !gguf::is_gguf(&bytes) {
        return Tokenizer::from_bytes(&bytes).map_err(failed);
    }
    let tokens = gguf::tokens(&gguf::parse(bytes, file)?, file)?;
    let made = vocabulary::tokenizer(&tokens)
        .map_err(|why| Failure::new("bad-tokenizer", why).in_file(file))?;
    Tokenizer::from_bytes(made.to_string()).map_err(failed)
}

/// The smallest of `lengths` that holds `n` tokens, else the largest.
pub fn fitting(lengths: &[u64], n: usize) -> u64 {
    let enough = lengths.iter().copied().filter(|&l| l >= n as u64).min();
    enough.or_else(|| lengths.iter().copied().max()).unwrap_or(n as u64)
}

/// Cosines of all pairs, for vectors of any length.
pub fn similarities(vectors: &[Vec<f32>]) -> Vec<Vec<f64>> {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum()
    };
    let cosine = |a: &[f32], b: &[f32]| dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
    vectors.iter().map(|a| vectors.iter().map(|b| cosine(a, b)).collect()).collect()
}
