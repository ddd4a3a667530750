//! The text form: what a program looks like to people, in cases, diffs and errors.
//!
//! ```text
//! program ios18
//! func main(%x: fp16[1, 8, 1, S]) where S in [64, 128] {
//!   %w = const(val=fp16[4, 8, 1, 1] #9f86d081884c7d659a2feaa0c55ad015)
//!   %y = conv(x=%x, weight=%w, groups=1) from "encoder.proj" by linear-to-conv
//! } -> %y
//! ```
//!
//! Printing and parsing lose nothing: floats are printed exactly, strings escaped, and weights
//! either inline (`hex"…"` when long) or as the hash of their bytes, to be looked up again.

mod parse;
mod print;

use std::collections::HashMap;

use crate::Tensor;

pub use parse::{ParseError, parse, parse_with};
pub use print::{Weights, attr, node, print, print_graph};

/// Tensors by the hash the text form names them by.
#[derive(Debug, Default)]
pub struct Store(HashMap<String, Tensor>);

impl Store {
    /// Keeps `tensor` and returns the name it is printed by.
    pub fn add(&mut self, tensor: &Tensor) -> String {
        let name = content_name(tensor);
        self.0.entry(name.clone()).or_insert_with(|| tensor.clone());
        name
    }

    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.0.get(name)
    }
}

/// A name for people and diffs, not a proof of equality.
fn content_name(tensor: &Tensor) -> String {
    if tensor.is_absent() {
        return "absent".into();
    }
    let mut hash = Hash::new();
    hash.add(tensor.ty().to_string().as_bytes());
    match tensor.as_strings() {
        Some(strings) => strings.iter().for_each(|s| hash.add(s.as_bytes())),
        None => {
            let done: Result<(), std::convert::Infallible> = tensor.read(&mut |piece| {
                hash.add(piece);
                Ok(())
            });
            let Ok(()) = done;
        }
    }
    hash.name()
}

/// The hash of pieces of text, as hexadecimal digits.
pub(crate) fn hash<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Hash::new();
    pieces.into_iter().for_each(|p| hash.add(p));
    hash.name()
}

/// 128 bits of FNV-1a.
struct Hash(u128);

impl Hash {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

    fn new() -> Hash {
        Hash(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    fn add(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.0 = (self.0 ^ u128::from(b)).wrapping_mul(Hash::PRIME);
        }
    }

    fn name(&self) -> String {
        format!("{:032x}", self.0)
    }
}

/// The shortest decimal for which `same` holds after parsing; `nan` and `inf` by name.
pub(crate) fn float(x: f64, same: impl Fn(&str) -> bool) -> String {
    if x.is_nan() {
        return "nan".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "inf" } else { "-inf" }.into();
    }
    let digits = (0..17).map(|n| format!("{x:.n$e}")).find(|s| same(s));
    let short: Option<f64> = digits.and_then(|s| s.parse().ok());
    format!("{:?}", short.unwrap_or(x))
}
