//! `config.json` of Hugging Face folders: what is accepted adds up.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use russet_formats::huggingface::Config;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(config) = Config::parse(text, Path::new("config.json")) else { return };
    assert_eq!(config.head_dim() * config.n_heads, config.hidden);
    assert!(config.length_max() > 0 && config.length_max() <= config.n_positions);
});
