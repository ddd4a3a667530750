//! For tests only: case files, and where they and the test data lie.

mod case;
mod random;

pub use case::{Case, CaseFile, bless};
pub use random::{Random, random_graph};

use std::path::PathBuf;

/// A path within the repository.
pub fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}
