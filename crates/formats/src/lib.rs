//! Models on disk, as programs of the ir and back.
//!
//! - [`huggingface`]: a folder with `config.json` and safetensors becomes a program in f32;
//! - [`onnx`]: an ONNX file becomes a program;
//! - [`container`]: whatever holds a Core ML model, opened;
//! - [`network`]: neural networks of the format before ML Programs, described;
//! - [`mil_text`]: Apple's text of a program, there and back;
//! - [`mlpackage`]: Core ML packages, read and written;
//! - [`mlmodelc`]: what Core ML makes of a package before it loads it, read and written;
//! - [`arrays`]: inputs and outputs as `.npy`, `.npz` and `.safetensors`;
//! - [`safetensors`]: weights as views of mapped files.
//!
//! Nothing here knows a chip or computes a tensor. Files are mapped, so weights stay on disk until
//! somebody reads them; every file is treated as if an enemy had made it: what is wrong with it is
//! an [`Error`], never a panic. Functions that take [`bytes::Bytes`] are for tests and fuzzing.

pub mod arrays;
pub mod container;
mod error;
mod foreign;
pub mod gguf;
pub mod huggingface;
pub mod mapped;
pub mod mil_text;
pub mod mlmodelc;
pub mod mlpackage;
pub mod network;
pub mod onnx;
pub mod safetensors;
pub mod temporary;
mod whole;

pub use error::Error;
