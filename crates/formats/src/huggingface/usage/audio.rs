//! How sound becomes what a model hears, and what it says becomes text.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::json::Json;
use super::super::weights::json;
use super::transcript::Transcript;
use crate::Error;

/// What a program that hears takes and gives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Audio {
    pub features: Features,
    pub says: Says,
}

/// What sound becomes. Rates are in samples per second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Features {
    /// `input_values`: the samples, of mean 0 and variance 1 when `normalize`.
    Wave { rate: u32, normalize: bool },
    /// `input_features` `[1, mels, frames]`: logarithms of a mel spectrum, within 8 of the loudest in
    /// base 10, padded with silence to so many frames.
    WhisperMel { rate: u32, n_fft: u32, hop: u32, n_mels: u32, frames: u32 },
    /// `input_features` `[1, frames, mels]`: logarithms of a mel spectrum of mean 0 and variance 1 by
    /// mel.
    NormedMel { rate: u32, n_fft: u32, window: u32, hop: u32, n_mels: u32, preemphasis: f32 },
}

/// What the numbers a model gives stand for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Says {
    /// Nothing in words.
    Nothing,
    /// `logits` of one piece of text, or none, for each frame.
    Ctc(Ctc),
    /// What a decoder writes down.
    Transcript(Box<Transcript>),
}

/// Pieces of text by class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ctc {
    /// The class that stands for nothing.
    pub blank: u64,
    /// By class. Words are apart where `space` is, or at its beginning.
    pub pieces: Vec<String>,
    /// What stands for a space in pieces.
    pub space: String,
    /// Pieces that are no text.
    pub silent: Vec<u64>,
}

/// Numbers of a spectrum beyond which a file is a mistake.
const SIZE_MAX: u64 = 1 << 16;

fn size(json: &Json, field: &str, default: u64) -> Result<u32, Error> {
    match json.count(field, Some(default))? {
        n if n <= SIZE_MAX.max(default) => Ok(n as u32),
        n => Err(json.error(field, n.to_string(), format!("at most {SIZE_MAX}"))),
    }
}

/// Rates from a telephone's to a studio's.
fn rate(json: &Json) -> Result<u32, Error> {
    match json.count("sampling_rate", Some(16000))? {
        n @ 1000..=768_000 => Ok(n as u32),
        n => Err(json.error("sampling_rate", n.to_string(), "from 1000 to 768000")),
    }
}

/// `preprocessor_config.json`, or its part in the file newer folders have; empty when there is none.
fn preprocessor(folder: &Path) -> Result<Json, Error> {
    for name in ["preprocessor_config.json", "processor_config.json"] {
        let file = folder.join(name);
        if file.is_file() {
            let json = Json::read(&file)?;
            return Ok(json.section("feature_extractor")?.unwrap_or(json));
        }
    }
    Json::parse("{}", &folder.join("preprocessor_config.json"))
}

impl Features {
    pub fn wave(folder: &Path) -> Result<Features, Error> {
        let json = preprocessor(folder)?;
        Ok(Features::Wave { rate: rate(&json)?, normalize: json.flag("do_normalize", true)? })
    }

    pub fn whisper_mel(folder: &Path, n_mels: u64, frames: u64) -> Result<Features, Error> {
        let json = preprocessor(folder)?;
        json.require("feature_size", n_mels)?;
        Ok(Features::WhisperMel {
            rate: rate(&json)?,
            n_fft: size(&json, "n_fft", 400)?,
            hop: size(&json, "hop_length", 160)?,
            n_mels: n_mels as u32,
            frames: frames as u32,
        })
    }

    pub fn normed_mel(folder: &Path, n_mels: u64) -> Result<Features, Error> {
        let json = preprocessor(folder)?;
        json.require("feature_size", n_mels)?;
        let n_fft = size(&json, "n_fft", 512)?;
        let window = size(&json, "win_length", 400)?;
        if window > n_fft {
            let expected = format!("at most `n_fft`, {n_fft}");
            return Err(json.error("win_length", window.to_string(), expected));
        }
        Ok(Features::NormedMel {
            rate: rate(&json)?,
            n_fft,
            window,
            hop: size(&json, "hop_length", 160)?,
            n_mels: n_mels as u32,
            preemphasis: json.float("preemphasis", Some(0.97))? as f32,
        })
    }

    /// Samples per second of what it takes.
    pub fn rate(&self) -> u32 {
        match self {
            Features::Wave { rate, .. }
            | Features::WhisperMel { rate, .. }
            | Features::NormedMel { rate, .. } => *rate,
        }
    }
}

/// Pieces beyond which a vocabulary is a mistake.
const PIECES_MAX: u64 = 1 << 20;

impl Ctc {
    /// From `vocab.json`, or from `tokenizer.json`; none when the folder has neither.
    pub fn read(folder: &Path, blank: u64) -> Result<Option<Ctc>, Error> {
        let (plain, whole) = (folder.join("vocab.json"), folder.join("tokenizer.json"));
        let file = if plain.is_file() { &plain } else { &whole };
        if !file.is_file() {
            return Ok(None);
        }
        let read: Value = json(file)?;
        let vocabulary = match plain.is_file() {
            true => Some(&read),
            false => read.get("model").and_then(|m| m.get("vocab")),
        };
        let malformed = |why: &str| Error::malformed(file, None, why);
        let mut pieces = match vocabulary {
            Some(Value::Object(by_piece)) => {
                let one = |(piece, id): (&String, &Value)| Some((id.as_u64()?, piece.clone()));
                let all: Option<Vec<(u64, String)>> = by_piece.iter().map(one).collect();
                all.ok_or_else(|| malformed("the vocabulary gives a piece something but a number"))?
            }
            Some(Value::Array(list)) => {
                let one = |(id, v): (usize, &Value)| {
                    Some((id as u64, v.get(0).unwrap_or(v).as_str()?.to_owned()))
                };
                let all: Option<Vec<(u64, String)>> = list.iter().enumerate().map(one).collect();
                all.ok_or_else(|| malformed("the vocabulary holds something but pieces"))?
            }
            _ => return Err(malformed("there is no vocabulary in it")),
        };
        let mut silent = Vec::new();
        for token in read.get("added_tokens").and_then(Value::as_array).into_iter().flatten() {
            let (id, content) = (token.get("id"), token.get("content"));
            let Some(id) = id.and_then(Value::as_u64) else { continue };
            let content = content.and_then(Value::as_str).unwrap_or_default();
            pieces.push((id, content.to_owned()));
            if token.get("special").and_then(Value::as_bool) == Some(true) {
                silent.push(id);
            }
        }
        let n = pieces.iter().map(|p| p.0).max().unwrap_or(0) + 1;
        if n > PIECES_MAX {
            return Err(malformed("it numbers more pieces than there could be"));
        }
        let mut by_class = vec![String::new(); n as usize];
        for (id, piece) in pieces {
            if piece.starts_with('<') && piece.ends_with('>') {
                silent.push(id);
            }
            by_class[id as usize] = piece;
        }
        silent.sort_unstable();
        silent.dedup();
        let space = if plain.is_file() { delimiter(folder)? } else { "\u{2581}".to_owned() };
        Ok(Some(Ctc { blank, pieces: by_class, space, silent }))
    }

    /// The text of the class of each frame: repetitions are one, then blanks go.
    pub fn text(&self, classes: impl IntoIterator<Item = u64>) -> String {
        let mut text = String::new();
        let mut last = None;
        for class in classes {
            if last.replace(class) == Some(class) || class == self.blank {
                continue;
            }
            let piece = usize::try_from(class).ok().and_then(|i| self.pieces.get(i));
            if let Some(piece) = piece.filter(|_| !self.silent.contains(&class)) {
                text += &piece.replace(&self.space, " ");
            }
        }
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// What is between words, by `tokenizer_config.json`.
fn delimiter(folder: &Path) -> Result<String, Error> {
    let file = folder.join("tokenizer_config.json");
    let usual = "|".to_owned();
    match file.is_file() {
        false => Ok(usual),
        true => Ok(Json::read(&file)?.text("word_delimiter_token").map_or(usual, str::to_owned)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_one_unless_a_blank_is_between() {
        let pieces = ["<pad>", "<s>", "|", "A", "B"].map(str::to_owned).to_vec();
        let ctc = Ctc { blank: 0, pieces, space: "|".into(), silent: vec![0, 1] };
        assert_eq!(ctc.text([2, 3, 3, 0, 3, 1, 4, 2, 2, 0, 2, 4, 9]), "AAB B");
    }
}
