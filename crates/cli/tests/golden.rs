//! The real sentence encoder against PyTorch's embeddings of a hundred sentences.
//!
//! The weights come from where `russet demo` finds them; where they are not to be had, the test says
//! so and passes. The golden values are made by `bench/golden_minilm.py`.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testing/data").join(name)
}

fn russet(arguments: &[&str], cache: &Path) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_russet"));
    let done = command.args(arguments).args(["--json", "--quiet"]).env("RUSSET_CACHE", cache);
    let done = done.output().expect("the program runs");
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{arguments:?}: {error}");
    serde_json::from_slice(&done.stdout).expect("one JSON object")
}

/// Embeddings of the golden file, a row for each sentence.
fn golden() -> Vec<Vec<f64>> {
    let arrays = russet_formats::arrays::read(&data("minilm.npz")).expect("golden values");
    let (_, embedding) = &arrays[0];
    let width = embedding.shape[1] as usize;
    let floats = embedding.to_f32();
    floats.chunks(width).map(|row| row.iter().map(|&x| x.into()).collect()).collect()
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// The smallest cosine between the golden embeddings and those of `model` in `arithmetic`.
fn worst(model: &str, arithmetic: &str, tokenizer: &str, cache: &Path) -> f64 {
    let sentences = std::fs::read_to_string(data("sentences.txt")).expect("sentences");
    let mut arguments = vec!["run", model, "--arithmetic", arithmetic, "--tokenizer", tokenizer];
    sentences.lines().for_each(|s| arguments.extend(["--text", s]));
    let made = russet(&arguments, cache);
    let runs = made["runs"].as_array().expect("runs");
    let golden = golden();
    assert_eq!((runs.len(), golden.len()), (100, 100));
    let embedding = |run: &Value| -> Vec<f64> {
        let outputs = run["outputs"].as_array().expect("outputs");
        let found = outputs.iter().find(|o| o["name"] == "sentence_embedding");
        let values = found.expect("an embedding")["values"].as_array().expect("numbers");
        values.iter().map(|x| x.as_f64().expect("a finite number")).collect()
    };
    runs.iter().zip(&golden).map(|(r, g)| cosine(&embedding(r), g)).fold(1.0, f64::min)
}

#[test]
fn a_hundred_sentences_agree_with_pytorch() {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("models");
    let package = Path::new(env!("CARGO_TARGET_TMPDIR")).join("golden.mlpackage");
    let package = package.to_str().expect("a path of text");
    let demo = russet(&["demo", "-o", package], &cache);
    let folder = demo["model"].as_str().expect("a folder");
    if !folder.ends_with("all-MiniLM-L6-v2") {
        eprintln!("skipped: the weights are not to be had here: {}", demo["notes"]);
        return;
    }
    let source = worst(folder, "f32", folder, &cache);
    assert!(source >= 0.999_999, "the source in f32: {source}");
    let compiled = worst(package, "f32", folder, &cache);
    assert!(compiled >= 0.999_99, "the package in f32: {compiled}");
    let ane = worst(package, "ane", folder, &cache);
    assert!(ane >= 0.999, "the package in ane arithmetic: {ane}");
    eprintln!("worst cosines: source {source:.7}, package {compiled:.7}, ane {ane:.7}");
}
