//! GGUF files, made by `bench/golden_gguf.py` with the `gguf` package.

use std::path::{Path, PathBuf};

use russet_formats::{arrays, gguf};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testing/data/gguf").join(name)
}

#[test]
fn every_type_reads_as_its_own_package_reads_it() {
    let file = gguf::read(&data("types.gguf")).unwrap();
    let expected = arrays::read(&data("types.npz")).unwrap();
    assert_eq!(expected.len(), 10);
    for (name, expected) in expected {
        let found = &file.tensors[&name];
        assert_eq!(found.shape, expected.shape, "{name}");
        let (a, b) = (found.to_f32(), expected.to_f32());
        let largest = b.iter().fold(0f32, |m, x| m.max(x.abs()));
        for (i, (x, y)) in a.iter().zip(&b).enumerate() {
            assert!((x - y).abs() <= 1e-6 * largest, "{name}[{i}]: {x} for {y}");
        }
        // Any part of it is the same numbers.
        assert_eq!(found.elements(37, 600), a[37..637], "{name}");
        assert_eq!(found.rows(1, 2).to_f32(), a[512..], "{name}");
    }
}

#[test]
fn damaged_files_are_errors() {
    let whole = std::fs::read(data("types.gguf")).unwrap();
    let parse = |bytes: Vec<u8>| gguf::parse(bytes.into(), Path::new("x.gguf"));
    assert!(parse(whole.clone()).is_ok());
    for n in (0..whole.len()).step_by(97).chain(0..400) {
        assert!(parse(whole[..n].to_vec()).is_err(), "{n} bytes");
    }
    // Any byte of the header may be anything.
    for at in 0..600 {
        for value in [0, 1, 0x7f, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            let _ = parse(bytes);
        }
    }
    let mut future = whole;
    future[4] = 9;
    assert_eq!(parse(future).err().unwrap().code(), "unsupported-version");
}
