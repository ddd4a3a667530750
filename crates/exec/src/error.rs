//! What stops a run.

use russet_ir::DType;

/// Why a function cannot be run, or not on these inputs.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ExecError {
    #[error("input `{name}` is missing")]
    MissingInput { name: String },
    #[error("there is no input `{name}`; there are: {}", .known.join(", "))]
    UnknownInput { name: String, known: Vec<String> },
    #[error("input `{name}` is {found}, {expected} is expected")]
    InputType { name: String, found: String, expected: String },
    #[error("input `{name}` has shape {found:?}: {why}")]
    InputShape { name: String, found: Vec<usize>, why: String },
    #[error("`{op}` cannot be run here: {why}")]
    Unsupported { op: String, why: String },
    #[error("`{op}` of `{value}`: {why}")]
    Op { op: String, value: String, why: String },
    #[error("a value of {bytes} bytes is more than this machine should hold ({limit} bytes)")]
    TooLarge { bytes: u64, limit: u64 },
    #[error("{dtype} values cannot be run on")]
    DType { dtype: DType },
}

impl ExecError {
    pub(crate) fn unsupported(op: &str, why: impl Into<String>) -> ExecError {
        ExecError::Unsupported { op: op.into(), why: why.into() }
    }
}
