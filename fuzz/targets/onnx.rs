//! ONNX models. What is imported verifies, but for opset findings, and prints as what reads again.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use russet_formats::onnx;
use russet_ir::{text, verify_program};

fuzz_target!(|data: &[u8]| {
    let _ = onnx::is_onnx(data);
    let options = onnx::Options::default();
    let Ok(source) = onnx::parse(data.to_vec().into(), Path::new("x.onnx"), &options) else {
        return;
    };
    let findings = verify_program(&source.program);
    assert_eq!(findings, [], "{}", text::print(&source.program, text::Weights::Inline));
    let printed = text::print(&source.program, text::Weights::Inline);
    let parsed = text::parse(&printed).unwrap_or_else(|e| panic!("{e}\n{printed}"));
    assert_eq!(text::print(&parsed, text::Weights::Inline), printed);
});
