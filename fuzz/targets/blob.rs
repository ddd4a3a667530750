//! Weight files of packages: a record leads to bytes within the file, or nowhere.
#![no_main]

#[path = "../allocation.rs"]
mod allocation;

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use russet_formats::mlpackage::blob;
use russet_ir::DType;

fuzz_target!(|data: &[u8]| {
    allocation::bounded(data);
    let Ok(blob) = blob::parse(data.to_vec().into(), Path::new("weight.bin")) else { return };
    for offset in (0..data.len() as u64).step_by(64).chain([1, u64::MAX]) {
        for &dtype in DType::ALL {
            for shape in [vec![], vec![3], vec![2, 2], vec![u64::MAX, 2], vec![0, u64::MAX]] {
                if let Ok(t) = blob.tensor(offset, dtype, shape) {
                    assert!(t.to_bytes().len() <= data.len());
                }
            }
        }
    }
});
