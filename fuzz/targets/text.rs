//! The text form: whatever parses prints to a text that parses to what prints the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use russet_ir::{text, verify_program};

fuzz_target!(|data: &[u8]| {
    let Ok(source) = std::str::from_utf8(data) else { return };
    let Ok(program) = text::parse(source) else { return };
    let _ = verify_program(&program);
    let printed = text::print(&program, text::Weights::Inline);
    let again = text::parse(&printed).unwrap_or_else(|e| panic!("{e}\n{printed}"));
    assert_eq!(text::print(&again, text::Weights::Inline), printed);
    let mut store = text::Store::default();
    let stored = text::print(&program, text::Weights::Stored(&mut store));
    let again = text::parse_with(&stored, &store).unwrap_or_else(|e| panic!("{e}\n{stored}"));
    assert_eq!(text::print(&again, text::Weights::Inline), printed);
});
