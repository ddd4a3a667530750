//! The arithmetic behind the ops, on plain slices of f32.
//!
//! A kernel comes as a definition (short, scalar, obviously right) and, where it matters, as a fast
//! function beside it whose distance from the definition a test bounds. The `ane` arithmetic uses
//! the same kernels on buffers whose values are all representable in fp16: see [`half`].

#[macro_use]
mod isa;

pub mod attention;
pub mod binary;
pub mod conv;
pub mod gemm;
pub mod half;
pub mod layer_norm;
pub mod math;
pub mod reduce;
pub mod rounding;
pub mod softmax;
pub mod strided;
pub mod unary;

pub(crate) mod lanes;
mod parallel;

pub use isa::Isa;
