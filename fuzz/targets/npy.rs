//! `.npy` files: what is read has the size its header says.
#![no_main]

#[path = "../allocation.rs"]
mod allocation;

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use russet_exec::Array;
use russet_formats::arrays::npy;

fuzz_target!(|data: &[u8]| {
    allocation::bounded(data);
    let Ok(t) = npy::parse(data.to_vec().into(), Path::new("x.npy")) else { return };
    assert_eq!(t.to_bytes().len() as u64, t.n_bytes());
    assert!(t.n_bytes() <= data.len() as u64);
    // A shape without elements whose other extents are absurd has no array.
    let Some(array) = Array::from_tensor(&t) else {
        return assert_eq!(t.n_elements(), 0);
    };
    assert_eq!(array.n_elements() as u64, t.n_elements());
});
