//! `russet run` on pictures and sounds, on small random models.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{copy, family, json, russet};
use russet_formats::huggingface;

/// A copy of a tiny model with further files beside it.
fn model(name: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    copy(&family(name), folder.path());
    for (file, text) in files {
        fs::write(folder.path().join(file), text).expect("written");
    }
    folder
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testing/data/processors").join(name)
}

fn run(folder: &Path, arguments: &[&str]) -> serde_json::Value {
    let folder = folder.to_str().expect("a path in Unicode");
    json(&[&["run", folder], arguments].concat())
}

const PICTURES: (&str, &str) = (
    "preprocessor_config.json",
    r#"{"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 16}, "crop_size": 16}"#,
);
/// Words as tokens, and one at the end.
const WORDS: (&str, &str) = (
    "tokenizer.json",
    r#"{"version": "1.0", "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"}, "decoder": null,
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "end", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"end": {"id": "end", "ids": [49], "tokens": ["end"]}}},
        "model": {"type": "WordLevel", "vocab": {"red": 4, "a": 5, "cat": 6, "what": 7, "end": 49}, "unk_token": "what"}}"#,
);

#[test]
fn a_classifier_names_the_likeliest_classes() {
    let folder = model("vit", &[PICTURES]);
    let picture = data("picture.png");
    let said = run(folder.path(), &["--image", picture.to_str().expect("a path")]);
    let classes = said["runs"][0]["said"]["classes"].as_array().expect("classes");
    assert_eq!(classes.len(), 3);
    let p: Vec<f64> =
        classes.iter().map(|c| c["probability"].as_f64().expect("a number")).collect();
    assert!(p.is_sorted_by(|a, b| a >= b) && (p.iter().sum::<f64>() - 1.0).abs() < 1e-6, "{p:?}");
    let logits = &said["runs"][0]["outputs"][0]["values"];
    let logits: Vec<f64> = serde_json::from_value(logits.clone()).expect("numbers");
    let best = (0..3).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).expect("three");
    assert_eq!(classes[0]["label"], format!("LABEL_{best}"));
    // A package made of it knows the same.
    let package = folder.path().join("vit.mlpackage");
    common::text(&[
        "compile".as_ref(),
        folder.path().as_os_str(),
        "-o".as_ref(),
        package.as_os_str(),
    ]);
    let again = run(&package, &["--image", picture.to_str().expect("a path")]);
    assert_eq!(again["runs"][0]["said"]["classes"][0]["label"], classes[0]["label"]);
}

#[test]
fn texts_are_compared_with_pictures() {
    for name in ["clip", "siglip"] {
        let folder = model(name, &[PICTURES, WORDS]);
        let picture = data("picture.png");
        let picture = picture.to_str().expect("a path");
        let said = run(
            folder.path(),
            &["--image", picture, "--text", "a red cat", "--text", "a cat", "--text", "a red cat"],
        );
        let row = |field: &str| -> Vec<f64> {
            serde_json::from_value(said[field][0].clone()).expect("numbers")
        };
        let (cosines, p) = (row("cosines"), row("probabilities"));
        assert_eq!((cosines.len(), p.len()), (3, 3), "{name}");
        assert_eq!(cosines[0], cosines[2], "{name}");
        assert_ne!(cosines[0], cosines[1], "{name}");
        assert!(cosines.iter().all(|c| c.abs() <= 1.0 + 1e-6), "{name}: {cosines:?}");
        assert_eq!(cosines[0] > cosines[1], p[0] > p[1], "{name}");
        let sums_to_one = (p.iter().sum::<f64>() - 1.0).abs() < 1e-6;
        assert_eq!(sums_to_one, name == "clip", "{p:?}");
    }
}

#[test]
fn what_is_heard_is_said_in_words() {
    let vocabulary = r#"{"<pad>": 0, "<s>": 1, "</s>": 2, "|": 3, "A": 4, "B": 5, "C": 6, "D": 7, "E": 8, "F": 9, "G": 10, "H": 11}"#;
    let folder = model("wav2vec2", &[("vocab.json", vocabulary)]);
    let sound = data("sound.wav");
    let said = run(folder.path(), &["--audio", sound.to_str().expect("a path")]);
    let output = &said["runs"][0]["outputs"][0];
    // As long as the sound: 14400 samples are 719 frames of this stack.
    assert_eq!(output["shape"], serde_json::json!([1, 719, 12]));
    let words = said["runs"][0]["said"]["text"].as_str().expect("words");
    assert!(!words.is_empty() && words.chars().all(|c| "ABCDEFGH ".contains(c)), "{words}");
}

#[test]
fn what_cannot_be_seen_or_heard_is_refused() {
    let (picture, sound) = (data("picture.png"), data("sound.wav"));
    let path = |p: &Path| p.to_str().expect("a path").to_owned();
    let plain = path(&family("vit"));
    for (arguments, code) in [
        // Nothing says how pictures are made numbers.
        (vec!["--image".to_owned(), path(&picture)], "no-image"),
        (vec!["--audio".to_owned(), path(&sound)], "no-audio"),
    ] {
        let all: Vec<String> =
            ["run".to_owned(), plain.clone()].into_iter().chain(arguments).collect();
        let done = russet(&all);
        assert_eq!(done.code, Some(2));
        assert!(done.stderr.contains(code), "{}", done.stderr);
    }
    let hears = model("wav2vec2", &[]);
    let all = ["run", &path(hears.path()), "--audio", &path(&sound), "--seq", "400"];
    let done = russet(&all);
    assert!(done.stderr.contains("audio-too-long"), "{}", done.stderr);
    let done = russet(&["run", &path(hears.path()), "--audio", &path(&picture)]);
    assert!(done.stderr.contains("bad-audio"), "{}", done.stderr);
}

#[test]
fn configs_that_do_not_add_up_are_refused_by_field() {
    for (name, from, to, field) in [
        ("vit", r#""hidden_size": 16"#, r#""hidden_size": 15"#, "hidden_size"),
        ("vit", r#""image_size": 16"#, r#""image_size": 1e9"#, "image_size"),
        ("vit", r#""patch_size": 4"#, r#""patch_size": 0"#, "patch_size"),
        ("dinov2", r#""mlp_ratio": 2"#, r#""mlp_ratio": -2"#, "mlp_ratio"),
        ("clip", r#""vision_config""#, r#""visions""#, "vision_config"),
        ("clip", r#""quick_gelu""#, r#""snake""#, "vision_config.hidden_act"),
        (
            "siglip",
            r#""projection_size": 16"#,
            r#""projection_size": 8"#,
            "text_config.projection_size",
        ),
        ("t5", r#""d_kv": 6"#, r#""d_kv": 0"#, "d_kv"),
        (
            "t5",
            r#""feed_forward_proj": "relu""#,
            r#""feed_forward_proj": "bent""#,
            "feed_forward_proj",
        ),
        ("t5", r#"num_buckets": 8"#, r#"num_buckets": 7"#, "relative_attention_num_buckets"),
        ("whisper", r#""d_model": 16"#, r#""d_model": 17"#, "d_model"),
        (
            "whisper",
            r#""max_source_positions": 20"#,
            r#""max_source_positions": 99999999"#,
            "max_source_positions",
        ),
        (
            "wav2vec2",
            r#""feat_extract_norm": "group""#,
            r#""feat_extract_norm": "batch""#,
            "feat_extract_norm",
        ),
        ("wav2vec2", r#""add_adapter": false"#, r#""add_adapter": true"#, "add_adapter"),
        (
            "wav2vec2",
            r#"embedding_groups": 4"#,
            r#"embedding_groups": 3"#,
            "num_conv_pos_embedding_groups",
        ),
        ("conformer_rotary", r#""rotary""#, r#""spiral""#, "position_embeddings_type"),
        (
            "conformer_rotary",
            r#"kernel_size": 5"#,
            r#"kernel_size": 4"#,
            "conv_depthwise_kernel_size",
        ),
        (
            "parakeet_ctc",
            r#"subsampling_factor": 8"#,
            r#"subsampling_factor": 6"#,
            "encoder_config.subsampling_factor",
        ),
        ("dit", r#""sample_size": 8"#, r#""sample_size": 7"#, "sample_size"),
        ("dit", r#""ada_norm_zero""#, r#""ada_norm""#, "norm_type"),
        (
            "pixart",
            r#""cross_attention_dim": 16"#,
            r#""cross_attention_dim": 12"#,
            "cross_attention_dim",
        ),
        ("sd3", r#""pos_embed_max_size": 6"#, r#""pos_embed_max_size": 2"#, "pos_embed_max_size"),
        ("flux", r#""attention_head_dim": 8"#, r#""attention_head_dim": 10"#, "axes_dims_rope"),
    ] {
        let text = fs::read_to_string(family(name).join("config.json")).expect("a config");
        assert!(text.contains(from), "{name}: {from}");
        huggingface::check(&text, Path::new("config.json")).expect("a sound config");
        let bad = text.replace(from, to);
        let e = huggingface::check(&bad, Path::new("config.json")).expect_err(field);
        assert_eq!((e.code(), e.at()), ("bad-config", Some(field)), "{name}");
    }
}
