//! Files as bytes: mapped, never copied; and written whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;

use crate::Error;
use crate::temporary::Folder;

/// The contents of a regular file, mapped into memory and read as they are needed.
///
/// Directories, FIFOs and devices are refused before they are opened (opening a FIFO would wait
/// for a writer), and so are empty files: no format here has one.
///
/// A file that is shortened by another program while it is mapped ends the process with SIGBUS
/// when the lost part is read; no program that maps files can prevent it. Writers that replace a
/// file instead of overwriting it, as ours do, leave the mapped one alone.
pub fn open(path: &Path) -> Result<Bytes, Error> {
    let metadata = fs::metadata(path).map_err(|e| not_there(path, e))?;
    let expected = "a file";
    let wrong = |found| Error::WrongKind { file: path.to_owned(), found, expected };
    if metadata.is_dir() {
        return Err(wrong("a folder"));
    }
    if !metadata.is_file() {
        return Err(wrong("neither a file nor a folder"));
    }
    if metadata.len() == 0 {
        return Err(wrong("empty"));
    }
    let file = File::open(path).map_err(|e| Error::io(path, "open it", e))?;
    // SAFETY: the map is private to this process and only ever read, through a `Bytes` that owns
    // it. Rust asks that nobody changes the file meanwhile; see the caveat above. Every reader
    // here checks its bounds against the length of the map, not against numbers in the file.
    let map = unsafe { memmap2::Mmap::map(&file) }.map_err(|e| Error::io(path, "map it", e))?;
    let map = Arc::new(map);
    let mut maps = lock();
    maps.retain(|m| m.strong_count() > 0);
    maps.push(Arc::downgrade(&map));
    Ok(Bytes::from_owner(Map(map)))
}

/// A mapped file that others can look up while it is mapped.
struct Map(Arc<memmap2::Mmap>);

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Every file that is mapped.
static MAPS: Mutex<Vec<Weak<memmap2::Mmap>>> = Mutex::new(Vec::new());

fn lock() -> MutexGuard<'static, Vec<Weak<memmap2::Mmap>>> {
    MAPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets the system take back the memory of `bytes` if they are of a mapped file, until they are read
/// again: whoever goes through a large file once need not hold all of it.
pub(crate) fn release(bytes: &[u8]) {
    let start = bytes.as_ptr() as usize;
    let maps: Vec<Arc<memmap2::Mmap>> = lock().iter().filter_map(Weak::upgrade).collect();
    for map in maps {
        let Some(offset) = start.checked_sub(map.as_ptr() as usize) else { continue };
        if offset < map.len() && bytes.len() <= map.len() - offset {
            #[cfg(unix)]
            // SAFETY: the map is of a file, private and only ever read, so that its pages hold nothing
            // but what is in the file: one that is dropped is read from there again when it is needed.
            let _ = unsafe {
                map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, offset, bytes.len())
            };
            return;
        }
    }
}

/// The contents of a text file such as `config.json`.
pub(crate) fn text(path: &Path) -> Result<String, Error> {
    let bytes = open(path)?;
    let text = std::str::from_utf8(&bytes);
    text.map(str::to_owned).map_err(|e| Error::malformed(path, None, format!("it is no text: {e}")))
}

fn not_there(path: &Path, e: io::Error) -> Error {
    match e.kind() {
        io::ErrorKind::NotFound => {
            let wanted = path.file_name().map_or("it".into(), |n| n.to_string_lossy().into_owned());
            Error::NotFound { file: path.to_owned(), wanted }
        }
        _ => Error::io(path, "look at it", e),
    }
}

/// The folder `path` is in, `.` when it names none.
pub(crate) fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(p) if p != Path::new("") => p.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Writes a file beside `path` and puts it in its place only when `fill` succeeded.
pub fn write_whole(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
) -> Result<(), Error> {
    if path.is_dir() {
        return Err(Error::Exists { file: path.to_owned(), found: "a folder" });
    }
    let failed = |e| Error::io(path, "write it", e);
    let folder = Folder::new(&folder_of(path), ".russet-".as_ref()).map_err(failed)?;
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // As any file one writes (the umask still applies); temporary files are private otherwise.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    let temp = builder.tempfile_in(folder.path()).map_err(failed)?;
    let mut out = BufWriter::with_capacity(1 << 20, temp.as_file());
    fill(&mut out).and_then(|()| out.flush()).map_err(failed)?;
    drop(out);
    temp.persist(path).map_err(|e| failed(e.error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_with_contents_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x");
        assert_eq!(open(&file).unwrap_err().code(), "not-found");
        assert_eq!(open(dir.path()).unwrap_err().code(), "wrong-kind");
        fs::write(&file, b"").unwrap();
        assert_eq!(open(&file).unwrap_err().code(), "wrong-kind");
        fs::write(&file, b"abc").unwrap();
        assert_eq!(open(&file).unwrap(), "abc");
        #[cfg(unix)]
        assert_eq!(open(Path::new("/dev/null")).unwrap_err().code(), "wrong-kind");
    }

    #[test]
    fn what_is_released_can_be_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x");
        let contents: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
        fs::write(&file, &contents).unwrap();
        let bytes = open(&file).unwrap();
        assert_eq!(bytes, contents);
        for part in [&bytes[..], &bytes[5..], &bytes[4096..8192], &bytes[99_999..], &bytes[..0]] {
            release(part);
            assert_eq!(bytes, contents);
        }
        // Memory of another kind stays as it is.
        let heap = contents.clone();
        release(&heap);
        assert_eq!(heap, contents);
    }

    #[test]
    fn a_failed_write_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x");
        let fill = |out: &mut BufWriter<&File>| {
            out.write_all(b"half")?;
            Err(io::Error::other("stop"))
        };
        assert!(write_whole(&file, fill).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
