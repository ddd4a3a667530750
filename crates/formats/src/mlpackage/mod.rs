//! Core ML packages of ML Programs: [`write`] makes one of a program, [`read`] a program of one.
//!
//! A package is a folder: `Manifest.json`, a protobuf message (the model: descriptions and the
//! MIL program) and a file of weights. The modules, from the outside in:
//!
//! - `write` and `read`: the folder; `manifest`: which file is what;
//! - `features`: inputs and outputs as callers see them; `symbols`, `hints`: their unknown extents;
//! - `encode`, and `body` with `fit`: functions, blocks, operations, there and back;
//! - `value`: types and constants; `blob`, `weights`: the file of weights; `proto`: the messages.

pub mod blob;
mod body;
mod encode;
mod features;
mod fit;
mod hints;
mod manifest;
mod names;
pub mod proto;
mod read;
mod symbols;
pub(crate) mod value;
mod weights;
mod write;

pub use features::{
    Array, Color, Description, Feature, FunctionDescription, Image, ImageSizes, Kind, Shapes, Span,
};
pub use read::{Package, decode_model, parse, read};
pub use write::{Written, check_output, write};
