//! What stops reading or writing a model, with the place and what was expected there.

use std::io;
use std::path::{Path, PathBuf};

use russet_ir::{DType, Finding, OpError};

/// Why a file cannot be read or written. Every variant names the file it is about.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {doing}: {source}")]
    Io { file: PathBuf, doing: &'static str, source: io::Error },
    #[error("{wanted} is not there")]
    NotFound { file: PathBuf, wanted: String },
    #[error("it is {found}, {expected} is expected")]
    WrongKind { file: PathBuf, found: &'static str, expected: &'static str },
    #[error("it ends after {found} bytes, {needed} are needed")]
    Truncated { file: PathBuf, at: Option<String>, needed: u64, found: u64 },
    /// The bytes do not follow the format.
    #[error("{why}")]
    Malformed { file: PathBuf, at: Option<String>, why: String },
    #[error("{what} is {found}, {supported} is supported")]
    Version { file: PathBuf, what: &'static str, found: String, supported: String },
    /// A path inside a package or an index that leads out of it.
    #[error("the path {path:?} {why}")]
    UnsafePath { file: PathBuf, path: String, why: &'static str },
    #[error("there is no tensor of shape {expected:?} here; the config asks for it")]
    MissingTensor { file: PathBuf, tensor: String, expected: Vec<u64> },
    #[error("it has shape {found:?}, the config makes it {expected:?}")]
    Shape { file: PathBuf, tensor: String, found: Vec<u64>, expected: Vec<u64> },
    #[error("it holds {found}, {expected} is expected")]
    TensorDType { file: PathBuf, tensor: String, found: DType, expected: &'static str },
    #[error("it is also in {}", .other.display())]
    DuplicateTensor { file: PathBuf, tensor: String, other: PathBuf },
    /// A field of a `config.json` (or of one beside it) that is absent or makes no sense.
    #[error("`{field}` is {found}, {expected} is expected")]
    Config { file: PathBuf, field: String, found: String, expected: String },
    #[error("the model is a {found}; known are {known}")]
    Family { file: PathBuf, found: String, known: String },
    /// What the user asked for does not fit the model.
    #[error("{option} {found} cannot be: {why}")]
    Choice { file: PathBuf, option: &'static str, found: String, why: String },
    #[error("the model is a {found}, an ML Program is expected")]
    NotMlProgram { file: PathBuf, found: &'static str },
    /// Something else than what is read here, by what it is and what to do with it.
    #[error("it is {found}")]
    Foreign { file: PathBuf, found: &'static str, advice: &'static str },
    /// Nodes of a source that have no place in a program: all of them.
    #[error("{} of its nodes cannot be expressed", .findings.len())]
    Nodes { file: PathBuf, findings: Vec<Finding> },
    #[error("{error}")]
    Op { file: PathBuf, at: String, error: Box<OpError> },
    /// A program that the format cannot hold.
    #[error("{why}")]
    Unwritable { file: PathBuf, at: String, why: String, help: Option<&'static str> },
    #[error("{found} is in the way; only a package is replaced")]
    Exists { file: PathBuf, found: &'static str },
}

impl Error {
    /// Stable and short, as in `error[shape-mismatch]`.
    pub fn code(&self) -> &'static str {
        use Error::*;
        match self {
            Io { .. } => "io",
            NotFound { .. } => "not-found",
            WrongKind { .. } => "wrong-kind",
            Truncated { .. } => "truncated",
            Malformed { .. } => "malformed",
            Version { .. } => "unsupported-version",
            UnsafePath { .. } => "unsafe-path",
            MissingTensor { .. } => "missing-tensor",
            Shape { .. } => "shape-mismatch",
            TensorDType { .. } => "dtype-mismatch",
            DuplicateTensor { .. } => "duplicate-tensor",
            Config { .. } => "bad-config",
            Family { .. } => "unknown-family",
            Choice { .. } => "bad-choice",
            NotMlProgram { .. } => "not-an-ml-program",
            Foreign { .. } => "foreign-format",
            Nodes { .. } => "unsupported-node",
            Op { .. } => "type-mismatch",
            Unwritable { .. } => "unwritable",
            Exists { .. } => "output-exists",
        }
    }

    /// The file, then the tensor, op or field where there is one: `model.safetensors: pooler`.
    pub fn place(&self) -> String {
        let file = self.file().display();
        match self.at() {
            Some(at) => format!("{file}: {at}"),
            None => file.to_string(),
        }
    }

    /// The file the error is about.
    pub fn file(&self) -> &Path {
        use Error::*;
        match self {
            Io { file, .. }
            | NotFound { file, .. }
            | WrongKind { file, .. }
            | Truncated { file, .. }
            | Malformed { file, .. }
            | Version { file, .. }
            | UnsafePath { file, .. }
            | MissingTensor { file, .. }
            | Shape { file, .. }
            | TensorDType { file, .. }
            | DuplicateTensor { file, .. }
            | Config { file, .. }
            | Family { file, .. }
            | Choice { file, .. }
            | NotMlProgram { file, .. }
            | Foreign { file, .. }
            | Nodes { file, .. }
            | Op { file, .. }
            | Unwritable { file, .. }
            | Exists { file, .. } => file,
        }
    }

    /// The tensor, op or field within the file.
    pub fn at(&self) -> Option<&str> {
        use Error::*;
        match self {
            Truncated { at, .. } | Malformed { at, .. } => at.as_deref(),
            MissingTensor { tensor, .. }
            | Shape { tensor, .. }
            | TensorDType { tensor, .. }
            | DuplicateTensor { tensor, .. } => Some(tensor),
            Config { field, .. } => Some(field),
            Op { at, .. } | Unwritable { at, .. } => Some(at),
            _ => None,
        }
    }

    /// What to do about it, where there is something to say.
    pub fn help(&self) -> Option<String> {
        use Error::*;
        let text = match self {
            Truncated { .. } => "the file was not copied or downloaded completely",
            Shape { found, expected, .. } if found.iter().rev().eq(expected) => {
                "the weight looks transposed"
            }
            Shape { .. } | MissingTensor { .. } => "config.json and the weights are of two models",
            DuplicateTensor { .. } => "every tensor is in one shard; one of the two files is stale",
            NotMlProgram { .. } => "convert the source again, to an ML Program",
            Exists { .. } => "choose another output, or move what is there away",
            Foreign { advice, .. } => advice,
            Unwritable { help, .. } => return help.map(str::to_owned),
            _ => return None,
        };
        Some(text.to_owned())
    }

    pub(crate) fn io(file: &Path, doing: &'static str, source: io::Error) -> Error {
        Error::Io { file: file.to_owned(), doing, source }
    }

    pub(crate) fn malformed(file: &Path, at: Option<&str>, why: impl Into<String>) -> Error {
        Error::Malformed { file: file.to_owned(), at: at.map(str::to_owned), why: why.into() }
    }

    pub(crate) fn unwritable(
        file: &Path,
        at: impl Into<String>,
        why: impl Into<String>,
        help: Option<&'static str>,
    ) -> Error {
        Error::Unwritable { file: file.to_owned(), at: at.into(), why: why.into(), help }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_where_what_and_what_to_do() {
        let (found, expected) = (vec![2048, 3072], vec![3072, 2048]);
        let (file, tensor) = (PathBuf::from("m.safetensors"), "up.weight".to_owned());
        let e = Error::Shape { file, tensor, found, expected };
        assert_eq!(e.code(), "shape-mismatch");
        assert_eq!(e.place(), "m.safetensors: up.weight");
        assert_eq!(e.to_string(), "it has shape [2048, 3072], the config makes it [3072, 2048]");
        assert_eq!(e.help().as_deref(), Some("the weight looks transposed"));
    }
}
