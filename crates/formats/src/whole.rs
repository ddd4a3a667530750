//! A folder that appears whole or not at all.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use crate::temporary::Folder;
use crate::{Error, mapped, temporary};

/// Fills a new folder beside `out` and puts it in the place of `out` when `fill` succeeded. What
/// was at `out` is gone then; when anything fails it is as it was, and nothing else remains.
pub fn write<T>(out: &Path, fill: impl FnOnce(&Path) -> Result<T, Error>) -> Result<T, Error> {
    let name = out.file_name().unwrap_or_default();
    let mut prefix = OsString::from(".");
    prefix.push(name);
    let failed = |e| Error::io(out, "make a folder beside it", e);
    let temp = Folder::new(&mapped::folder_of(out), &prefix).map_err(failed)?;
    let made = temp.path().join(name);
    let filled = fill(&made)?;
    // The old folder lies in the temporary one for a moment, which an interrupt must not see.
    temporary::uninterrupted(|| put_in_place(&made, &temp.path().join("replaced"), out))?;
    Ok(filled)
}

/// Is something at `out` that is not to be replaced? A folder that holds `mark` is.
pub fn in_the_way(out: &Path, mark: &str) -> Option<&'static str> {
    let at = fs::symlink_metadata(out).ok()?;
    let is_replaced = at.is_dir() && out.join(mark).is_file();
    let is_empty = || fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_none());
    match () {
        _ if is_replaced => None,
        _ if at.is_dir() && is_empty() => None,
        _ if at.is_dir() => Some("a folder that is no package"),
        _ if at.is_symlink() => Some("a link"),
        _ => Some("a file"),
    }
}

/// Moves the finished folder to `out`; what is there moves to `replaced`, and back on failure.
fn put_in_place(made: &Path, replaced: &Path, out: &Path) -> Result<(), Error> {
    let failed = |e| Error::io(out, "put it in place", e);
    let had_one = out.exists();
    if had_one {
        fs::rename(out, replaced).map_err(failed)?;
    }
    fs::rename(made, out).map_err(|e| {
        if had_one {
            // Both lie in one folder; if this fails too, the error below still tells the user.
            let _ = fs::rename(replaced, out);
        }
        failed(e)
    })
}
