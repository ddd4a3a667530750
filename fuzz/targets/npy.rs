//! `.npy` files: what is read has the size its header says.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use russet_exec::Array;
use russet_formats::arrays::npy;

fuzz_target!(|data: &[u8]| {
    let Ok(t) = npy::parse(data.to_vec().into(), Path::new("x.npy")) else { return };
    assert_eq!(t.to_bytes().len() as u64, t.n_bytes());
    assert!(t.n_bytes() <= data.len() as u64);
    let array = Array::from_tensor(&t).expect("numbers");
    assert_eq!(array.n_elements() as u64, t.n_elements());
});
