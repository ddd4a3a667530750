//! Arrays written and read again, and archives that lie.

use std::fs;
use std::io::Write;

use russet_formats::arrays::{read, write};
use russet_ir::{DType, Tensor};
use zip::write::SimpleFileOptions;

fn some() -> Vec<(String, Tensor)> {
    let make = |name: &str, dtype: DType, shape: Vec<u64>| {
        let n = dtype.bytes(shape.iter().product()).unwrap();
        let bytes: Vec<u8> = (0..n).map(|i| (i % 2) as u8).collect();
        (name.to_owned(), Tensor::new(dtype, shape, bytes.into()).unwrap())
    };
    vec![
        make("half", DType::F16, vec![2, 3]),
        make("ids", DType::I32, vec![1, 7]),
        make("mask", DType::Bool, vec![5]),
        make("scalar", DType::F64, vec![]),
        make("single", DType::F32, vec![4]),
        make("wide", DType::I64, vec![0, 3]),
    ]
}

#[test]
fn arrays_read_back() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a.npz", "a.safetensors"] {
        let file = dir.path().join(name);
        write(&file, &some()).unwrap();
        let mut found = read(&file).unwrap();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(found, some());
        let first = fs::read(&file).unwrap();
        write(&file, &some()).unwrap();
        assert_eq!(fs::read(&file).unwrap(), first);
    }
    let file = dir.path().join("half.npy");
    write(&file, &some()[..1]).unwrap();
    assert_eq!(read(&file).unwrap(), some()[..1]);
    assert_eq!(write(&file, &some()).unwrap_err().code(), "unwritable");
    assert_eq!(write(&dir.path().join("x.csv"), &some()).unwrap_err().code(), "wrong-kind");
    let brain = Tensor::new(DType::BF16, vec![1], vec![0, 0].into()).unwrap();
    let file = dir.path().join("b.npz");
    assert_eq!(write(&file, &[("b".into(), brain)]).unwrap_err().code(), "unwritable");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3, "something half-written remains");
}

#[test]
fn a_small_archive_cannot_fill_the_memory() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bomb.npz");
    let header = |shape: &str| {
        let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.bytes());
        bytes
    };
    let archive = |shape: &str, zeros: usize| {
        let mut zip = zip::ZipWriter::new(fs::File::create(&file).unwrap());
        let deflated =
            SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
        zip.start_file("x.npy", deflated).unwrap();
        zip.write_all(&header(shape)).unwrap();
        zip.write_all(&vec![0; zeros]).unwrap();
        zip.finish().unwrap();
    };
    archive("(25000,)", 100_000);
    let arrays = read(&file).unwrap();
    assert_eq!((arrays[0].0.as_str(), arrays[0].1.n_elements()), ("x", 25_000));
    // More than its header says, less than its header says, more than there can be.
    for (shape, zeros) in [("(3,)", 10_000_000), ("(1000000,)", 8), ("(4611686018427387904,)", 8)] {
        archive(shape, zeros);
        let e = read(&file).unwrap_err();
        assert!(e.code() == "malformed" && e.place().ends_with("x.npy"), "{e}");
    }
    let whole = fs::read(&file).unwrap();
    for n in 0..whole.len() {
        fs::write(&file, &whole[..n]).unwrap();
        assert!(read(&file).is_err());
    }
}
