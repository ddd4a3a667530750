//! Running the program and looking at what it leaves.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// What a run of the program said.
pub struct Done {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// The program with these arguments, not yet run.
pub fn command<A: AsRef<OsStr>>(arguments: &[A]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_russet"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs the program.
pub fn russet<A: AsRef<OsStr>>(arguments: &[A]) -> Done {
    finish(&mut command(arguments))
}

pub fn finish(command: &mut Command) -> Done {
    let done = command.output().expect("the program runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is text");
    let (stdout, stderr) = (text(done.stdout), text(done.stderr));
    assert!(!stderr.contains("panicked"), "{stderr}");
    Done { code: done.status.code(), stdout, stderr }
}

/// Runs the program, which must succeed, and returns what it printed.
#[allow(dead_code)] // not every test file asks for text
pub fn text<A: AsRef<OsStr>>(arguments: &[A]) -> String {
    let done = russet(arguments);
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    done.stdout
}

/// Runs the program with `--json`, which must succeed, and returns the object it printed.
#[allow(dead_code)] // nor for JSON
pub fn json<A: AsRef<OsStr>>(arguments: &[A]) -> Value {
    let mut command = command(arguments);
    let done = finish(command.arg("--json"));
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    serde_json::from_str(&done.stdout).expect("one JSON object")
}

/// The folder of a tiny model of this family.
#[allow(dead_code)] // nor for models
pub fn family(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testing/data/families").join(name)
}

/// Every file and folder below `folder` with its size, sorted.
#[allow(dead_code)] // nor for files
pub fn listing(folder: &Path) -> Vec<(PathBuf, u64)> {
    let mut all = Vec::new();
    let mut work = vec![folder.to_owned()];
    while let Some(folder) = work.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let metadata = fs::symlink_metadata(&path).expect("an entry");
            if metadata.is_dir() {
                work.push(path.clone());
            }
            all.push((path, if metadata.is_file() { metadata.len() } else { 0 }));
        }
    }
    all.sort();
    all
}

/// A copy of a folder.
#[allow(dead_code)] // nor for copies
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a new folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        match path.is_dir() {
            true => copy(&path, &target),
            false => drop(fs::copy(&path, &target).expect("a copy")),
        }
    }
}
