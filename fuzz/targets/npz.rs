//! `.npz` archives; and members made of the bytes, since a fuzzer seldom finds a checksum.
#![no_main]

#[path = "../allocation.rs"]
mod allocation;

use std::io::{Cursor, Write};
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use russet_formats::arrays::npz;
use zip::write::SimpleFileOptions;

fuzz_target!(|data: &[u8]| {
    allocation::bounded(data);
    read(data);
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (i, member) in data.split(|&b| b == 0xff).enumerate() {
        archive.start_file(format!("{i}.npy"), stored).expect("a member");
        archive.write_all(member).expect("memory");
    }
    read(archive.finish().expect("an archive").get_ref());
});

fn read(bytes: &[u8]) {
    let Ok(arrays) = npz::parse(bytes.to_vec().into(), Path::new("x.npz")) else { return };
    for (name, t) in &arrays {
        assert_eq!(t.to_bytes().len() as u64, t.n_bytes(), "{name}");
    }
}
