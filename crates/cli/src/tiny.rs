//! The encoder of last resort: two small layers with made-up weights, so that the demo shows the
//! whole way even where no real model can be had.

use std::path::Path;

use russet_formats::safetensors;
use russet_ir::Tensor;
use serde_json::{Map, Value, json};

use crate::diagnostic::{Failure, Outcome};
use crate::fetch::{Fetched, cache_folder};

const HIDDEN: u64 = 64;
const INTERMEDIATE: u64 = 128;
const N_LAYERS: u64 = 2;
const N_HEADS: u64 = 4;
const N_POSITIONS: u64 = 256;
const SPECIAL: [&str; 5] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];

/// Writes the small encoder to the cache and says what it is.
pub fn tiny_encoder() -> Outcome<Fetched> {
    let folder = cache_folder().join("tiny-encoder");
    let failed = |e: std::io::Error| Failure::new("io", e.to_string()).in_file(&folder);
    std::fs::create_dir_all(folder.join("1_Pooling")).map_err(failed)?;
    let vocabulary = vocabulary();
    let write = |name: &str, value: Value| -> Outcome<()> {
        std::fs::write(folder.join(name), value.to_string()).map_err(failed)
    };
    write("config.json", config(vocabulary.len()))?;
    write("tokenizer.json", tokenizer(&vocabulary))?;
    write(
        "modules.json",
        json!([
            { "idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer" },
            { "idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling" },
            { "idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize" },
        ]),
    )?;
    write(
        "1_Pooling/config.json",
        json!({ "word_embedding_dimension": HIDDEN, "pooling_mode_mean_tokens": true }),
    )?;
    write_weights(&folder.join("model.safetensors"), vocabulary.len() as u64)?;
    let from = "russet itself: a small encoder with made-up weights, its similarities mean little";
    Ok(Fetched { folder, from: from.into() })
}

fn config(n_words: usize) -> Value {
    json!({
        "model_type": "bert", "architectures": ["BertModel"], "hidden_act": "gelu",
        "hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE, "layer_norm_eps": 1e-12,
        "max_position_embeddings": N_POSITIONS, "num_attention_heads": N_HEADS,
        "num_hidden_layers": N_LAYERS, "pad_token_id": 0, "type_vocab_size": 2,
        "vocab_size": n_words,
    })
}

/// Every letter and digit, at the start of a word and within one.
fn vocabulary() -> Vec<String> {
    let characters = ('a'..='z').chain('0'..='9').chain(".,;:!?'\"()-".chars());
    let pieces = characters.flat_map(|c| [c.to_string(), format!("##{c}")]);
    SPECIAL.iter().map(ToString::to_string).chain(pieces).collect()
}

fn tokenizer(vocabulary: &[String]) -> Value {
    let ids: Map<String, Value> =
        vocabulary.iter().enumerate().map(|(i, w)| (w.clone(), json!(i))).collect();
    let special = |name: &str| json!({ "SpecialToken": { "id": name, "type_id": 0 } });
    let entry = |name: &str, id: u32| json!({ "id": name, "ids": [id], "tokens": [name] });
    let added: Vec<Value> = SPECIAL
        .iter()
        .enumerate()
        .map(|(i, w)| {
            json!({ "id": i, "content": w, "special": true, "single_word": false,
                    "lstrip": false, "rstrip": false, "normalized": false })
        })
        .collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": { "type": "BertNormalizer", "clean_text": true,
            "handle_chinese_chars": true, "strip_accents": null, "lowercase": true },
        "pre_tokenizer": { "type": "BertPreTokenizer" },
        "post_processor": { "type": "TemplateProcessing",
            "single": [special("[CLS]"), { "Sequence": { "id": "A", "type_id": 0 } }, special("[SEP]")],
            "pair": [special("[CLS]"), { "Sequence": { "id": "A", "type_id": 0 } }, special("[SEP]"),
                { "Sequence": { "id": "B", "type_id": 1 } }, special("[SEP]")],
            "special_tokens": { "[CLS]": entry("[CLS]", 2), "[SEP]": entry("[SEP]", 3) } },
        "decoder": { "type": "WordPiece", "prefix": "##", "cleanup": true },
        "model": { "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": ids },
    })
}

fn write_weights(file: &Path, n_words: u64) -> Outcome<()> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = |shape: &[u64], size: f32| {
        let n: u64 = shape.iter().product();
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            ((state >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * size
        };
        let values: Vec<f32> = (0..n).map(|_| next()).collect();
        Tensor::f32(shape.to_vec(), &values)
    };
    let ones = |n: u64| Tensor::f32(vec![n], &vec![1.0; n as usize]);
    let mut all: Vec<(String, Tensor)> = vec![
        ("embeddings.word_embeddings.weight".into(), random(&[n_words, HIDDEN], 0.5)),
        ("embeddings.position_embeddings.weight".into(), random(&[N_POSITIONS, HIDDEN], 0.05)),
        ("embeddings.token_type_embeddings.weight".into(), random(&[2, HIDDEN], 0.05)),
    ];
    let norm = |all: &mut Vec<(String, Tensor)>, name: &str, bias: Tensor| {
        all.push((format!("{name}.weight"), ones(HIDDEN)));
        all.push((format!("{name}.bias"), bias));
    };
    norm(&mut all, "embeddings.LayerNorm", random(&[HIDDEN], 0.02));
    for i in 0..N_LAYERS {
        let layer = format!("encoder.layer.{i}");
        for (name, n_out, n_in) in [
            ("attention.self.query", HIDDEN, HIDDEN),
            ("attention.self.key", HIDDEN, HIDDEN),
            ("attention.self.value", HIDDEN, HIDDEN),
            ("attention.output.dense", HIDDEN, HIDDEN),
            ("intermediate.dense", INTERMEDIATE, HIDDEN),
            ("output.dense", HIDDEN, INTERMEDIATE),
        ] {
            all.push((format!("{layer}.{name}.weight"), random(&[n_out, n_in], 0.15)));
            all.push((format!("{layer}.{name}.bias"), random(&[n_out], 0.02)));
        }
        for name in ["attention.output.LayerNorm", "output.LayerNorm"] {
            norm(&mut all, &format!("{layer}.{name}"), random(&[HIDDEN], 0.02));
        }
    }
    Ok(safetensors::write(file, &all)?)
}
