//! The families that are known, by what `config.json` calls itself.

use std::path::{Path, PathBuf};

use russet_ir::Graph;

use super::audio::{parakeet, wav2vec2, whisper};
use super::diffusion::{dit, flux, pixart, sd3};
use super::json::Json;
use super::usage::Usage;
use super::vision::{clip, siglip, vit};
use super::{Options, bert, distilbert, gemma, gpt2, llama, mpnet, phi, qwen, roberta, t5};
use crate::Error;

/// One kind of model: how to recognise it and how to make a program of it.
pub struct Family {
    pub name: &'static str,
    /// Values of `model_type`.
    pub model_types: &'static [&'static str],
    /// What names in `architectures` begin with, for configs without `model_type`.
    pub architectures: &'static [&'static str],
    /// Does the config add up?
    pub check: fn(&Json) -> Result<(), Error>,
    pub build: fn(&Folder, &Options) -> Result<Built, Error>,
}

/// A folder whose `config.json` has been read.
pub struct Folder {
    /// Where `config.json` and the weights are.
    pub path: PathBuf,
    pub config: Json,
    /// The folder that was asked for, which the former may lie in.
    pub root: PathBuf,
}

/// What a family makes of a folder.
pub struct Built {
    /// The default one first.
    pub functions: Vec<Graph>,
    pub usage: Usage,
    /// Weights the program uses.
    pub n_parameters: u64,
    /// Bytes of the weight files.
    pub n_bytes: u64,
}

const FAMILIES: &[&Family] = &[
    &bert::BERT,
    &roberta::ROBERTA,
    &distilbert::DISTILBERT,
    &mpnet::MPNET,
    &t5::T5,
    &t5::UMT5,
    &vit::VIT,
    &vit::DEIT,
    &vit::DINOV2,
    &clip::CLIP,
    &siglip::SIGLIP,
    &whisper::WHISPER,
    &wav2vec2::WAV2VEC2,
    &wav2vec2::HUBERT,
    &wav2vec2::CONFORMER,
    &parakeet::PARAKEET,
    &dit::DIT,
    &pixart::PIXART,
    &sd3::SD3,
    &flux::FLUX,
    &gpt2::GPT2,
    &llama::LLAMA,
    &llama::MISTRAL,
    &qwen::QWEN2,
    &qwen::QWEN3,
    &gemma::GEMMA,
    &gemma::GEMMA2,
    &gemma::GEMMA3,
    &phi::PHI,
    &phi::PHI3,
];

/// The family that a config says it is of.
pub fn family(json: &Json) -> Result<&'static Family, Error> {
    let architecture = json.get("architectures").and_then(|a| a.get(0)).and_then(|a| a.as_str());
    // Diffusers calls the same thing by the name of a class.
    let model_type = json.text("model_type").or(json.text("_class_name"));
    let found = match (model_type, architecture) {
        (Some(t), _) => FAMILIES.iter().find(|f| f.model_types.contains(&t)),
        (None, Some(a)) => {
            FAMILIES.iter().find(|f| f.architectures.iter().any(|b| a.starts_with(b)))
        }
        (None, None) => {
            let found = json.found("model_type");
            return Err(json.error("model_type", found, "the name of a family"));
        }
    };
    let known: Vec<&str> = FAMILIES.iter().flat_map(|f| f.model_types).copied().collect();
    found.copied().ok_or_else(|| Error::Family {
        file: json.file().to_owned(),
        found: model_type.or(architecture).unwrap_or_default().to_owned(),
        known: known.join(", "),
    })
}

/// The family that the text of a `config.json` names, if what it says adds up; `file` is for errors.
pub fn check(text: &str, file: &Path) -> Result<&'static str, Error> {
    let json = Json::parse(text, file)?;
    let family = family(&json)?;
    (family.check)(&json)?;
    Ok(family.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TINY: &str = r#"{"model_type": "bert", "hidden_size": 8, "num_hidden_layers": 1,
        "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 10,
        "max_position_embeddings": 12, "hidden_act": "gelu"}"#;

    #[test]
    fn what_does_not_add_up_is_refused_by_field() {
        let parse = |text: &str| check(text, Path::new("config.json"));
        assert_eq!(parse(TINY).unwrap(), "bert");
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
        assert_eq!(
            parse(&TINY.replace(r#""model_type": "bert""#, by_architecture)).unwrap(),
            "roberta"
        );
        assert_eq!(parse("[]").unwrap_err().code(), "malformed");
    }
}
