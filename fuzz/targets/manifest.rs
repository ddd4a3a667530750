//! Manifests of packages: whatever they say, nothing outside of the package is opened.
#![no_main]

#[path = "../allocation.rs"]
mod allocation;

use std::fs;

use libfuzzer_sys::fuzz_target;
use russet_formats::{Error, mlpackage};

fuzz_target!(|data: &[u8]| {
    allocation::bounded(data);
    let folder = tempfile::tempdir().expect("a folder");
    let package = folder.path().join("x.mlpackage");
    let inside = package.join("Data/com.apple.CoreML");
    fs::create_dir_all(&inside).expect("folders");
    fs::write(package.join("Manifest.json"), data).expect("a file");
    // Beside the package lies what would read as a model of another kind.
    fs::write(folder.path().join("outside.mlmodel"), [8, 1, 0xa2, 0x1f, 0]).expect("a file");
    fs::write(inside.join("model.mlmodel"), b"not a model").expect("a file");
    let error = mlpackage::read(&package).expect_err("there is no model inside");
    assert!(!matches!(error, Error::NotMlProgram { .. }), "read what is outside: {error}");
});
