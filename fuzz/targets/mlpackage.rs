//! Model files of packages. What can be written again reads as the same program.
#![no_main]

#[path = "../allocation.rs"]
mod allocation;

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use russet_formats::mlpackage::{self, Description};
use russet_ir::{text, verify_program};

fuzz_target!(|data: &[u8]| {
    allocation::bounded(data);
    let root = Path::new("/nonexistent/x.mlpackage");
    let Ok(package) = mlpackage::parse(data.to_vec().into(), &root.join("m.mlmodel"), root) else {
        return;
    };
    let printed = text::print(&package.program, text::Weights::Inline);
    if !verify_program(&package.program).is_empty() {
        return;
    }
    let parsed = text::parse(&printed).unwrap_or_else(|e| panic!("{e}\n{printed}"));
    assert_eq!(text::print(&parsed, text::Weights::Inline), printed);
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("x.mlpackage");
    if mlpackage::write(&package.program, &package.description, &out).is_err() {
        let left = std::fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(left, 0, "something half-written is left");
        return;
    }
    let again = mlpackage::read(&out).unwrap_or_else(|e| panic!("{e}\n{printed}"));
    assert_eq!(verify_program(&again.program), [], "{printed}");
    // Written as it was read, it is the same program.
    let (program, none) = (&package.program, Description::default());
    if mlpackage::rewrite(program, &none, &package.source, &out).is_ok() {
        let again = mlpackage::read(&out).unwrap_or_else(|e| panic!("{e}\n{printed}"));
        assert_eq!(text::print(&again.program, text::Weights::Inline), printed);
    }
});
