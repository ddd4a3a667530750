//! Decoders through the program: text in, text out, from folders and from packages.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{json, russet, text};
use serde_json::Value;

fn decoders() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testing/data/decoders")
}

fn s(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

fn tokenizer() -> String {
    format!("--tokenizer={}", s(&decoders().join("tokenizer.json")))
}

/// Integers of a decoder's golden file.
fn golden(folder: &Path, name: &str) -> Vec<i64> {
    let arrays = russet_formats::arrays::read(&folder.join("golden.npz")).expect("golden values");
    let found = arrays.iter().find(|a| a.0 == name).expect("it is there");
    found.1.to_i64().expect("integers")
}

fn words(ids: &[i64]) -> String {
    ids.iter().map(|i| format!("t{i}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn greedy_text_is_what_transformers_makes() {
    let mut n = 0;
    for entry in fs::read_dir(decoders()).expect("a folder").map(|e| e.expect("an entry").path()) {
        if !entry.is_dir() {
            continue;
        }
        n += 1;
        let prompt = words(&golden(&entry, "input_ids")[..4]);
        let mut expected = golden(&entry, "greedy");
        expected.retain(|&id| id != 2); // the end of the text
        let dir = tempfile::tempdir().expect("a folder");
        for cache in ["--cache=state", "--cache=io"] {
            let shapes = ["--context=16", "--seq=4", cache];
            let package = dir.path().join(format!("{cache}.mlpackage"));
            text(&[&["compile", s(&entry), "-o", s(&package)], &shapes[..]].concat());
            for (model, shapes) in [(&entry, &shapes[..]), (&package, &[])] {
                let tokenizer = tokenizer();
                let more = ["--text", &prompt, &tokenizer, "--max-tokens=8"];
                let made: Value = json(&[&["run", s(model)], shapes, &more].concat());
                let made = &made["generated"][0];
                let ids = made["ids"].as_array().expect("ids").iter();
                let ids: Vec<i64> = ids.map(|i| i.as_i64().expect("an id")).collect();
                assert_eq!(ids, expected, "{} {cache}", model.display());
                assert_eq!(made["text"], format!(" {}", words(&expected)));
            }
        }
    }
    assert_eq!(n, 12);
}

#[test]
fn what_cannot_be_generated_is_said() {
    let llama = decoders().join("llama");
    let tokenizer = tokenizer();
    let cases: [(&[&str], &str); 7] = [
        (&["--context=4", "--text=t3 t4 t5 t6"], "bad-text"),
        (&["--context=65", "--text=t3"], "bad-choice"),
        (&["--context=0", "--text=t3"], "bad-choice"),
        (&["--context=8", "--seq=9", "--text=t3"], "bad-choice"),
        (&["--seq=2,4", "--text=t3"], "bad-choice"),
        (&["--shapes=input_ids=2x4", "--text=t3"], "bad-choice"),
        (&["--pooling=mean", "--text=t3"], "bad-choice"),
    ];
    for (arguments, code) in cases {
        let done = russet(&[&["run", s(&llama), &tokenizer, "--json"], arguments].concat());
        assert_eq!(done.code, Some(2), "{arguments:?}");
        let error: Value = serde_json::from_str(&done.stdout).expect("JSON");
        assert_eq!(error["errors"][0]["code"], code, "{arguments:?}: {error}");
    }
}

#[test]
fn text_appears_with_its_speed() {
    let llama = decoders().join("llama");
    let arguments = ["run", s(&llama), &tokenizer(), "--context=16", "--text=t5 t6 t7"];
    let made = text(&arguments);
    assert!(made.starts_with("t5 t6 t7 t"), "{made}");
    assert!(made.contains("tokens/s"), "{made}");
    assert!(made.contains("context full"), "{made}");
}
