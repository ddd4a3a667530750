//! The one length, and the batch, of programs with fixed shapes.

use std::path::Path;

use super::Options;
use crate::Error;

/// What a sequence is made of, and how long it may be.
pub struct Span {
    /// `token`, `sample`, `frame`: for errors.
    pub unit: &'static str,
    pub default: u64,
    pub min: u64,
    pub max: u64,
}

/// The length that is asked for, or the default one.
pub fn length(options: &Options, span: &Span, file: &Path) -> Result<u64, Error> {
    let refuse = |found: String, why: String| {
        Err(Error::Choice { file: file.to_owned(), option: "length", found, why })
    };
    let length = match options.lengths[..] {
        [] => span.default,
        [one] => one,
        _ => {
            let all: Vec<String> = options.lengths.iter().map(u64::to_string).collect();
            return refuse(all.join(","), "models of this family have one length".into());
        }
    };
    let unit = span.unit;
    if length < span.min {
        return refuse(length.to_string(), format!("at least {} {unit}s are needed", span.min));
    }
    if length > span.max {
        return refuse(length.to_string(), format!("the model has room for {} {unit}s", span.max));
    }
    Ok(length)
}

/// Inputs at once, from 1 to [`BATCH_MAX`].
pub fn batch(options: &Options, file: &Path) -> Result<u64, Error> {
    match options.batch {
        1..=BATCH_MAX => Ok(options.batch),
        found => Err(Error::Choice {
            file: file.to_owned(),
            option: "batch",
            found: found.to_string(),
            why: format!("it is from 1 to {BATCH_MAX}"),
        }),
    }
}

const BATCH_MAX: u64 = 1 << 12;

/// A family whose inputs have the shapes its config says.
pub fn none(options: &Options, file: &Path) -> Result<(), Error> {
    match options.lengths.first() {
        None => Ok(()),
        Some(found) => Err(Error::Choice {
            file: file.to_owned(),
            option: "length",
            found: found.to_string(),
            why: "the config says how large the model's inputs are".into(),
        }),
    }
}
