//! Tokenizers of the vocabulary in a GGUF file, by way of the `tokenizer.json` it stands for.

use std::collections::HashMap;

use russet_formats::gguf::{Model, TokenKind, Tokens};
use serde_json::{Map, Value, json};

/// What sentencepiece writes for a space.
const SPACE: &str = "\u{2581}";

/// How text is cut into words before pairs of bytes are joined, by the name GGUF has for it.
/// Source: the `pre_tokenizer` of the models' own tokenizer.json.
const CUTS: &[(&str, &str)] = &[
    ("gpt-2", GPT2),
    ("default", GPT2),
    (
        "llama-bpe",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    (
        "qwen2",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
];
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// The text of a `tokenizer.json`; `Err` says in words what is missing.
pub fn tokenizer(tokens: &Tokens) -> Result<Value, String> {
    let vocabulary: Map<String, Value> =
        tokens.pieces.iter().enumerate().map(|(id, piece)| (piece.clone(), json!(id))).collect();
    let whole = |(id, _): &(usize, &String)| tokens.kinds[*id] != TokenKind::Piece;
    let added: Vec<Value> = tokens
        .pieces
        .iter()
        .enumerate()
        .filter(whole)
        .map(|(id, piece)| {
            let special = tokens.kinds[id] == TokenKind::Control;
            json!({ "id": id, "content": piece, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": special })
        })
        .collect();
    let mut made = match &tokens.model {
        Model::Scores { scores, unknown, space_in_front } => {
            let unknown = unknown.and_then(|id| tokens.pieces.get(id as usize));
            let merges = by_scores(tokens, scores);
            let model = json!({ "type": "BPE", "vocab": vocabulary, "merges": merges,
                "unk_token": unknown, "fuse_unk": true, "byte_fallback": true });
            spaced(model, *space_in_front)
        }
        Model::Merges { merges, cut } => {
            let Some((_, pattern)) = CUTS.iter().find(|c| c.0 == cut) else {
                let known: Vec<&str> = CUTS.iter().map(|c| c.0).collect();
                return Err(format!(
                    "its text is cut as {cut:?} says; known are {}",
                    known.join(", ")
                ));
            };
            let pairs: Option<Vec<(&str, &str)>> =
                merges.iter().map(|m| m.split_once(' ')).collect();
            let pairs = pairs.ok_or("a merge is no pair")?;
            let model = json!({ "type": "BPE", "vocab": vocabulary, "merges": pairs });
            of_bytes(model, pattern)
        }
    };
    made["version"] = json!("1.0");
    made["added_tokens"] = json!(added);
    made["post_processor"] = around(tokens);
    Ok(made)
}

/// Sentencepiece's pairs: of all ways to cut a piece into two pieces, those of the piece that scores
/// highest come first.
fn by_scores<'t>(tokens: &'t Tokens, scores: &[f32]) -> Vec<(&'t str, &'t str)> {
    let ids: HashMap<&str, usize> =
        tokens.pieces.iter().enumerate().map(|(id, piece)| (piece.as_str(), id)).collect();
    let mut pairs: Vec<(f32, usize, usize)> = Vec::new();
    for (id, piece) in
        tokens.pieces.iter().enumerate().filter(|(id, _)| tokens.kinds[*id] == TokenKind::Piece)
    {
        for (at, _) in piece.char_indices().skip(1) {
            let (a, b) = piece.split_at(at);
            if let (Some(&x), Some(&y)) = (ids.get(a), ids.get(b)) {
                pairs.push((scores[id], x, y));
            }
        }
    }
    pairs.sort_by(|p, q| q.0.total_cmp(&p.0).then((p.1, p.2).cmp(&(q.1, q.2))));
    let piece = |id: usize| tokens.pieces[id].as_str();
    pairs.into_iter().map(|(_, x, y)| (piece(x), piece(y))).collect()
}

/// Spaces are a letter of their own, and what is no piece is written as its bytes.
fn spaced(model: Value, space_in_front: bool) -> Value {
    let replace = |from: &str, to: &str| json!({ "type": "Replace", "pattern": { "String": from }, "content": to });
    let mut there = vec![replace(" ", SPACE)];
    let mut back =
        vec![replace(SPACE, " "), json!({ "type": "ByteFallback" }), json!({ "type": "Fuse" })];
    if space_in_front {
        there.insert(0, json!({ "type": "Prepend", "prepend": SPACE }));
        back.push(json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
    }
    json!({
        "model": model,
        "normalizer": { "type": "Sequence", "normalizers": there },
        "decoder": { "type": "Sequence", "decoders": back },
    })
}

/// Words are written as their bytes, each byte as a letter.
fn of_bytes(model: Value, pattern: &str) -> Value {
    let cut = json!({ "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated",
        "invert": false });
    let bytes = |type_name: &str| {
        json!({ "type": type_name, "add_prefix_space": false, "trim_offsets": false,
            "use_regex": false })
    };
    json!({
        "model": model,
        "pre_tokenizer": { "type": "Sequence", "pretokenizers": [cut, bytes("ByteLevel")] },
        "decoder": bytes("ByteLevel"),
    })
}

/// Tokens in front of a text and behind it.
fn around(tokens: &Tokens) -> Value {
    let piece = |id: u32| tokens.pieces[id as usize].as_str();
    let mut template = vec![json!({ "Sequence": { "id": "A", "type_id": 0 } })];
    let mut known = Map::new();
    let mut add = |id: u32, at: usize| {
        let name = piece(id);
        template.insert(at, json!({ "SpecialToken": { "id": name, "type_id": 0 } }));
        known.insert(name.into(), json!({ "id": name, "ids": [id], "tokens": [name] }));
    };
    if let Some(id) = tokens.before {
        add(id, 0);
    }
    if let Some(id) = tokens.after {
        add(id, 1 + usize::from(tokens.before.is_some()));
    }
    json!({ "type": "TemplateProcessing", "single": template, "pair": template,
        "special_tokens": known })
}
