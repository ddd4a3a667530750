//! `russet compile` as a whole process: reading, rewriting, proving, writing.
//!
//! all-MiniLM-L6-v2 when `russet demo` has put it into the cache (or `RUSSET_MODEL` names a folder),
//! and the small BERT of the tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use divan::Bencher;

fn main() {
    divan::main();
}

fn minilm() -> Option<PathBuf> {
    let named = std::env::var_os("RUSSET_MODEL").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cache = std::env::var_os("RUSSET_CACHE").map(PathBuf::from);
    let caches =
        [cache, Some(home.join(".cache/russet")), Some(home.join("Library/Caches/russet"))];
    let cached = caches.into_iter().flatten().map(|c| c.join("all-MiniLM-L6-v2"));
    named.into_iter().chain(cached).find(|f| f.join("model.safetensors").exists())
}

fn tiny() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testing/data/families/bert")
}

fn compile(bencher: Bencher, model: &Path, more: &[&str]) {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench.mlpackage");
    bencher.bench_local(|| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_russet"));
        command.arg("compile").arg(model).arg("-o").arg(&out).arg("--quiet").args(more);
        let done = command.stdout(Stdio::null()).status().expect("the program runs");
        assert!(done.success());
    });
}

fn minilm_with(bencher: Bencher, more: &[&str]) {
    match minilm() {
        Some(model) => compile(bencher, &model, more),
        None => eprintln!("no all-MiniLM-L6-v2 in the cache: run `russet demo` first"),
    }
}

#[divan::bench(sample_count = 10, sample_size = 1)]
fn minilm_with_proof(bencher: Bencher) {
    minilm_with(bencher, &["--seq", "128"]);
}

#[divan::bench(sample_count = 10, sample_size = 1)]
fn minilm_without_proof(bencher: Bencher) {
    minilm_with(bencher, &["--seq", "128", "--no-proof"]);
}

#[divan::bench(sample_count = 10, sample_size = 1)]
fn tiny_bert_with_proof(bencher: Bencher) {
    compile(bencher, &tiny(), &["--seq", "16"]);
}

#[divan::bench(sample_count = 10, sample_size = 1)]
fn tiny_bert_without_proof(bencher: Bencher) {
    compile(bencher, &tiny(), &["--seq", "16", "--no-proof"]);
}
