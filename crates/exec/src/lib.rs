//! What an op computes: plain kernels on slices, fast beside plain, and the same in emulated fp16.
//!
//! This crate knows no chip and no file. Every result is the same on every machine and for every
//! number of threads, so two runs are compared bit for bit.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod ane;
mod array;
mod env;
mod error;
pub mod kernels;
mod ops;
mod session;

pub use array::{Array, Numbers};
pub use env::{Env, evaluate, evaluate_node};
pub use error::ExecError;
pub use session::{Arithmetic, Packs, Profile, ProfileEntry, Session};
