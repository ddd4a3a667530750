//! Compiled models, `.mlmodelc`: what a Mac makes of a package before it can be loaded.
//!
//! A folder: the program as text (`model.mil`), its weights, a description as message
//! (`coremldata.bin`) and as JSON (`metadata.json`). Of a pipeline, each stage is a folder of this
//! kind within, `model0`, `model1`, and so on.
//!
//! - `data`: `coremldata.bin`; `metadata`: `metadata.json`, written and, without the former, read;
//! - `lower`: the program as Apple's compiler leaves it;
//! - `write`: a model as such a folder, without Apple's compiler; `read`: back to a message.

pub mod data;
mod lower;
pub mod metadata;
mod read;
mod write;

pub(crate) use read::oldest_version;
pub use read::{Compiled, is_compiled, read};
pub(crate) use write::stage_names;
pub use write::{Written, check_output, files, write};
