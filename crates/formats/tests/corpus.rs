//! Over real Core ML models: those below the folder that `RUSSET_CORPUS` names.
//!
//! Without the variable these tests pass without looking; the same facts are tested on small
//! models elsewhere. Each prints what it counted (`cargo test -- --nocapture`).

use std::fs;
use std::path::{Path, PathBuf};

use prost::Message;
use russet_formats::mil_text;
use russet_formats::mlpackage::proto;

/// Files below the corpus for which `wanted` holds, in order.
fn corpus(wanted: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    fn walk(folder: &Path, wanted: &dyn Fn(&Path) -> bool, found: &mut Vec<PathBuf>) {
        let mut entries: Vec<PathBuf> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            if wanted(&path) {
                found.push(path);
            } else if path.is_dir() {
                walk(&path, wanted, found);
            }
        }
    }
    let mut found = Vec::new();
    if let Some(folder) = std::env::var_os("RUSSET_CORPUS") {
        walk(Path::new(&folder), &wanted, &mut found);
        assert!(!found.is_empty(), "the corpus has none");
    }
    found
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|e| e == extension)
}

/// The models that are not messages of the published kind: see the corpus' index.
fn is_odd(path: &Path) -> bool {
    let path = path.to_string_lossy();
    path.contains("simple_layer") || path.contains("too-deep")
}

#[test]
fn messages_are_written_as_they_were_read() {
    let files = corpus(|p| has_extension(p, "mlmodel") && p.is_file() && !is_odd(p));
    let mut same = 0;
    for file in &files {
        let bytes = fs::read(file).unwrap();
        let model = proto::Model::decode(bytes.as_slice()).unwrap();
        let again = model.encode_to_vec();
        assert_eq!(proto::Model::decode(again.as_slice()).unwrap(), model, "{}", file.display());
        match again == bytes {
            true => same += 1,
            false => println!("other bytes: {}", file.display()),
        }
    }
    println!("{same} of {} models have the same bytes", files.len());
}

#[test]
fn apples_text_is_printed_as_it_was_read() {
    let files = corpus(|p| has_extension(p, "mil"));
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        let parsed = mil_text::parse(&text, file).unwrap_or_else(|e| panic!("{}: {e}", e.place()));
        let printed = mil_text::print(&parsed.program, parsed.syntax).unwrap();
        let text = text.strip_suffix('\n').unwrap_or(&text);
        if let Some(i) = text.bytes().zip(printed.bytes()).position(|(a, b)| a != b) {
            let (from, to) = (i.saturating_sub(80), i + 80);
            let cut = |s: &str| s.get(from..to.min(s.len())).unwrap_or_default().to_owned();
            panic!("{}:\nApple {}\nours  {}", file.display(), cut(text), cut(&printed));
        }
        assert_eq!(text.len(), printed.len(), "{}", file.display());
        // The message of the text says the same.
        let bytes = parsed.program.encode_to_vec();
        assert_eq!(proto::Program::decode(bytes.as_slice()).unwrap(), parsed.program);
    }
    println!("{} texts are printed as they were read", files.len());
}
