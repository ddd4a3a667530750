//! Models on disk, as programs of the ir and back.
//!
//! - [`huggingface`]: a folder with `config.json` and safetensors becomes a program in f32;
//! - [`mil_text`]: Apple's text of a program, there and back;
//! - [`mlpackage`]: Core ML packages, read and written;
//! - [`arrays`]: inputs and outputs as `.npy`, `.npz` and `.safetensors`;
//! - [`safetensors`]: weights as views of mapped files.
//!
//! Nothing here knows a chip or computes a tensor. Files are mapped, so weights stay on disk until
//! somebody reads them; every file is treated as if an enemy had made it: what is wrong with it is
//! an [`Error`], never a panic. Functions that take [`bytes::Bytes`] are for tests and fuzzing.

pub mod arrays;
mod error;
pub mod huggingface;
pub mod mapped;
pub mod mil_text;
pub mod mlpackage;
pub mod safetensors;
pub mod temporary;

pub use error::Error;
