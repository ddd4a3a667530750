//! Core ML packages of ML Programs: [`write`] makes one of a program, [`read`] a program of one.
//!
//! A package is a folder: `Manifest.json`, a protobuf message (the model: descriptions and the
//! MIL program) and a file of weights. The modules, from the outside in: `manifest`, `features`
//! (inputs and outputs as callers see them), `write` and `read` (functions, ops), `value` (types
//! and constants), `blob` (the weight file), `proto` (the messages).

pub mod blob;
mod features;
mod hints;
mod manifest;
pub mod proto;
mod read;
mod symbols;
mod value;
mod write;

pub use features::{
    Array, Color, Description, Feature, FunctionDescription, Image, ImageSizes, Kind, Shapes, Span,
};
pub use read::{Package, decode_model, read};
pub use write::{Written, write};
