//! Weight files: what is read lies within the file, and reads back when written again. The first
//! byte chooses between a file and an index of shards.
#![no_main]

#[path = "../allocation.rs"]
mod allocation;

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use russet_formats::safetensors;

fuzz_target!(|data: &[u8]| {
    allocation::bounded(data);
    let Some((&kind, rest)) = data.split_first() else { return };
    if kind == b'i' {
        return index(rest);
    }
    let Ok(tensors) = safetensors::parse(rest.to_vec().into(), Path::new("m.safetensors")) else {
        return;
    };
    for (name, t) in &tensors {
        assert_eq!(t.to_bytes().len() as u64, t.n_bytes(), "{name}");
        assert!(t.n_bytes() <= rest.len() as u64, "{name}");
    }
});

fn index(text: &[u8]) {
    if text.is_empty() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("model.safetensors.index.json");
    std::fs::write(&file, text).expect("a file");
    let empty = b"\x02\0\0\0\0\0\0\0{}";
    std::fs::write(folder.path().join("a.safetensors"), empty).expect("a file");
    if let Ok(tensors) = safetensors::read_index(&file) {
        assert_eq!(tensors.iter().count(), 0);
    }
}
