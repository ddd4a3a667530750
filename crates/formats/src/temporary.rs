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
pub struct Folder(tempfile::TempDir);

impl Folder {
    /// A new folder in `parent` whose name begins with `prefix`.
    pub fn new(parent: &Path, prefix: &std::ffi::OsStr) -> io::Result<Folder> {
        let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(parent)?;
        open().insert(folder.path().to_owned());
        Ok(Folder(folder))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Leaves the folder to its drop alone: [`remove_all`] passes it over.
    pub(crate) fn keep_when_interrupted(&mut self) {
        open().remove(self.path());
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        open().remove(self.0.path());
    }
}

/// Removes every temporary folder that is still there. For signal handlers, right before the end.
pub fn remove_all() {
    for folder in open().iter() {
        // It may be gone already; nothing can be done about what cannot be removed.
        let _ = std::fs::remove_dir_all(folder);
    }
}
