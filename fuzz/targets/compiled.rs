//! The other files of a compiled model, one after another from the same bytes; and all of them as
//! the folder they are in.
#![no_main]

#[path = "../allocation.rs"]
mod allocation;

use std::fs;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use russet_formats::mlmodelc::{data, metadata};
use russet_formats::{container, mil_text};

/// A program whose description is what the input says.
const TEXT: &str = "program(1.3)\n{\n func main<ios17>(tensor<fp32, [?, 4]> x) {\n \
                    tensor<fp32, [?, 4]> y = relu(x = x);\n } -> (y);\n}";

fuzz_target!(|input: &[u8]| {
    allocation::bounded(input);
    let path = Path::new("x.mlmodelc");
    let is_data = data::parse(input.to_vec().into(), path).is_ok();
    let _ = data::parse_names(input, path);
    let text = std::str::from_utf8(input).ok();
    let is_metadata = text.is_some_and(|t| metadata::parse(t, path).is_ok());
    if !is_data && !is_metadata {
        return;
    }
    assert!(mil_text::parse(TEXT, path).is_ok());
    let folder = tempfile::tempdir().expect("a folder");
    let model = folder.path().join("x.mlmodelc");
    fs::create_dir(&model).expect("a folder");
    fs::write(model.join("model.mil"), TEXT).expect("a file");
    let name = if is_data { "coremldata.bin" } else { "metadata.json" };
    fs::write(model.join(name), input).expect("a file");
    if let Ok(opened) = container::open(&model) {
        let _ = opened.text();
    }
});
