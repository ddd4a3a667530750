//! Half-written output, so that an interrupted program can tidy up.
//!
//! Everything is written into a hidden temporary place beside its destination and then renamed.
//! Rust removes such places when a function returns; a signal does not return.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

static OPEN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn open() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A temporary folder that goes when this is dropped, or with [`remove_all`].
pub struct Folder(Option<tempfile::TempDir>);

impl Folder {
    /// A new folder in `parent` whose name begins with `prefix`.
    pub fn new(parent: &Path, prefix: &std::ffi::OsStr) -> io::Result<Folder> {
        // Locked while it is made, so that no signal falls between making and noting it.
        let mut open = open();
        let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(parent)?;
        open.insert(folder.path().to_owned());
        Ok(Folder(Some(folder)))
    }

    pub fn path(&self) -> &Path {
        self.0.as_ref().map_or(Path::new(""), tempfile::TempDir::path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let mut open = open();
        if let Some(folder) = self.0.take() {
            open.remove(folder.path());
            drop(folder);
        }
    }
}

/// Does something that an interrupt must not cut in half: [`remove_all`] waits for it.
pub(crate) fn uninterrupted<T>(f: impl FnOnce() -> T) -> T {
    let _open = open();
    f()
}

/// Removes every temporary folder that is still there. For signal handlers, right before the end:
/// from here on nobody can make a new one, nor finish what is under way.
pub fn remove_all() {
    let open = open();
    for folder in open.iter() {
        // Another thread may still be writing into it; what cannot be removed at all stays.
        for _ in 0..100 {
            let _ = std::fs::remove_dir_all(folder);
            if !folder.exists() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
    std::mem::forget(open);
}
