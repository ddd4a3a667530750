//! Apple's text: what parses prints to a text that parses to the same message, in both syntaxes.
#![no_main]

#[path = "../allocation.rs"]
mod allocation;

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use russet_formats::mil_text::{self, Syntax};

fuzz_target!(|data: &[u8]| {
    allocation::bounded(data);
    let Ok(source) = std::str::from_utf8(data) else { return };
    let file = Path::new("model.mil");
    let Ok(text) = mil_text::parse(source, file) else { return };
    for syntax in [text.syntax, Syntax::FIRST, Syntax::SCALARS] {
        // Not everything that can be read can be said: elements of a shape that is unknown.
        let Ok(printed) = mil_text::print(&text.program, syntax) else { continue };
        let again = mil_text::parse(&printed, file).unwrap_or_else(|e| panic!("{e}\n{printed}"));
        let reprinted = mil_text::print(&again.program, syntax).expect("it was printed before");
        assert_eq!(reprinted, printed);
    }
});
