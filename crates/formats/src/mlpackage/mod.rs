//! Core ML packages of ML Programs: [`write`] makes one of a program, [`read`] a program of one.
//!
//! A package is a folder: `Manifest.json`, a protobuf message (the model: descriptions and the
//! MIL program) and a file of weights. The modules, from the outside in:
//!
//! - `write` and `read`: the folder; `manifest`: which file is what;
//! - `features`: inputs and outputs as callers see them; `symbols`, `hints`: their unknown extents;
//! - `encode`, and `body` with `fit`: functions, blocks, operations, there and back;
//! - `links`: which operation became which node, so that what is not changed is written as it was;
//! - `template`: what of a program is still as it was read;
//! - `references`: where a message speaks of the file of weights;
//! - `value`: types and constants; `blob`, `weights`: the file of weights; `proto`: the messages.

pub mod blob;
mod body;
mod encode;
pub(crate) mod features;
mod fit;
mod hints;
mod links;
pub(crate) mod manifest;
mod names;
pub mod proto;
mod read;
pub mod references;
mod symbols;
mod template;
pub(crate) mod value;
pub(crate) mod weights;
mod write;

pub use features::{
    Array, Color, Description, Feature, FunctionDescription, Image, ImageSizes, Kind, Shapes, Span,
};
pub use read::{Package, Source, decode_model, parse, read};
pub(crate) use read::{decode_any, description, kind_of_tag, locate, metadata};
pub use write::{Overflow, Written, check_output, rewrite, write};
