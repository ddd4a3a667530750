//! Apple's text of a MIL program, `model.mil`, as messages and back.
//!
//! A compiled model (`.mlmodelc`) holds its program as text, not as a message. The text says the
//! same as [`proto::Program`], except for two things Core ML's compilers for one machine add,
//! which messages have no field for; they are kept where they disturb nobody:
//!
//! - `tensor_buffer<fp16, shape=[2], strides=[1], interleave_factors=[1]>`, a tensor with its place
//!   in memory: a tensor type whose attributes are `strides` and `interleave_factors`;
//! - `cast<ios17>(..)`, an op of another opset than its function's: the attribute [`OPSET`].
//!
//! [`parse`] and [`print`] are inverses of each other on what Apple prints: the same bytes.
//! [`print`] shows any program so, whether it came from text or not.

mod lex;
mod literal;
mod number;
mod parse;
mod print;
mod types;

use std::path::Path;

use crate::Error;
use crate::mlpackage::proto;

pub use print::print;

/// The attribute that holds the opset of an op which states its own. No attribute in a text can
/// have this name.
pub const OPSET: &str = "@opset";

/// Nesting of types and of values beyond which a text is refused.
const DEPTH_MAX: usize = 32;
/// Nesting of blocks beyond which a text is refused; that of `body`.
const BLOCKS_MAX: usize = 24;

/// How a text is written: `program(1.0)` or a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Syntax {
    /// The number after the point.
    pub minor: u32,
}

impl Syntax {
    /// Until iOS 17: a scalar is a tensor without dimensions, `tensor<int32, []>(3)`.
    pub const FIRST: Syntax = Syntax { minor: 0 };
    /// From iOS 18 on: scalars have types of their own, `int32(3)`.
    pub const SCALARS: Syntax = Syntax { minor: 3 };

    /// What Apple's compiler writes for a model of this specification version.
    pub fn of_spec_version(version: i32) -> Syntax {
        if version >= 9 { Syntax::SCALARS } else { Syntax::FIRST }
    }

    fn has_scalars(self) -> bool {
        self > Syntax::FIRST
    }
}

/// A text and how it was written.
#[derive(Debug, Clone, PartialEq)]
pub struct MilText {
    pub program: proto::Program,
    pub syntax: Syntax,
}

/// Reads a text; `file` is for errors, which name line and column.
///
/// # Errors
/// What does not follow the syntax, values that do not fit their types, types or blocks that are
/// nested absurdly.
pub fn parse(text: &str, file: &Path) -> Result<MilText, Error> {
    parse::Parser::new(text).program().map_err(|wrong| {
        let (line, column) = lex::line_and_column(text, wrong.at);
        Error::malformed(file, Some(&format!("{line}:{column}")), wrong.why)
    })
}

#[cfg(test)]
mod tests;
