//! `config.json` of Hugging Face folders: one is of a family or refused.
#![no_main]

#[path = "../allocation.rs"]
mod allocation;

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use russet_formats::huggingface::check;

fuzz_target!(|data: &[u8]| {
    allocation::bounded(data);
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = check(text, Path::new("config.json"));
});
