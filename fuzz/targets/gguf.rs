//! GGUF files: what is read lies within the file, decodes, and makes a config or an error.
#![no_main]

#[path = "../allocation.rs"]
mod allocation;

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use russet_formats::{gguf, huggingface};

fuzz_target!(|data: &[u8]| {
    allocation::bounded(data);
    let path = Path::new("m.gguf");
    let Ok(file) = gguf::parse(data.to_vec().into(), path) else { return };
    for (name, t) in &file.tensors {
        // The tightest type has 84 bytes for 256 numbers.
        assert!(t.n_elements() <= 4 * data.len() as u64, "{name}");
        if t.n_elements() > 0 {
            let last = t.elements(t.n_elements() - 1, 1);
            assert_eq!(last.len(), 1);
        }
    }
    let _ = gguf::tokens(&file, path);
    if let Ok(config) = gguf::config(&file, path) {
        let _ = huggingface::check(&config, path);
    }
});
