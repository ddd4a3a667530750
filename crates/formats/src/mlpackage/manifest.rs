//! `Manifest.json`: which file of a package is the model and which folder holds its weights.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{Error, mapped};

pub const MANIFEST: &str = "Manifest.json";
/// Paths in a manifest are relative to this folder.
pub const DATA: &str = "Data";
pub const MODEL: &str = "com.apple.CoreML/model.mlmodel";
pub const WEIGHTS: &str = "com.apple.CoreML/weights";
const VERSION: [u32; 3] = [1, 0, 0];

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    file_format_version: String,
    item_info_entries: BTreeMap<String, Item>,
    root_model_identifier: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Item {
    author: String,
    description: String,
    name: String,
    path: String,
}

/// The manifest of a package we write. Identifiers are made of `content`, what is in the package.
pub fn render(content: &[u8; 32], has_weights: bool) -> String {
    let item = |name: &str, path: &str, description: &str| Item {
        author: "com.apple.CoreML".into(),
        description: description.into(),
        name: name.into(),
        path: path.into(),
    };
    let root = identifier(content, "model");
    let model = item("model.mlmodel", MODEL, "CoreML Model Specification");
    let mut entries = BTreeMap::from([(root.clone(), model)]);
    if has_weights {
        let weights = item("weights", WEIGHTS, "CoreML Model Weights");
        entries.insert(identifier(content, "weights"), weights);
    }
    let manifest = Manifest {
        file_format_version: "1.0.0".into(),
        item_info_entries: entries,
        root_model_identifier: root,
    };
    serde_json::to_string_pretty(&manifest).expect("strings and maps of them are always JSON")
        + "\n"
}

/// A UUID that depends on nothing but its arguments (version 8: made by our own rule).
fn identifier(content: &[u8; 32], item: &str) -> String {
    let hash = Sha256::new().chain_update(content).chain_update(item).finalize();
    let mut b: [u8; 16] = hash[..16].try_into().expect("a hash of 32 bytes");
    b[6] = b[6] & 0x0f | 0x80;
    b[8] = b[8] & 0x3f | 0x80;
    let hex: String = b.iter().map(|b| format!("{b:02X}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// The model file of the package at `root`, according to its manifest.
///
/// # Errors
/// No manifest, one newer than 1.0.0, one without a root model, one that leads out of the package.
pub fn model_file(root: &Path) -> Result<PathBuf, Error> {
    let file = root.join(MANIFEST);
    let text = mapped::text(&file)?;
    let manifest: Manifest =
        serde_json::from_str(&text).map_err(|e| Error::malformed(&file, None, e.to_string()))?;
    let parts = manifest.file_format_version.split('.').map(|p| p.parse::<u32>().ok());
    let version: Option<Vec<u32>> = parts.collect();
    if version.is_none_or(|v| v.as_slice() > VERSION.as_slice()) {
        return Err(Error::Version {
            file,
            what: "fileFormatVersion",
            found: format!("{:?}", manifest.file_format_version),
            supported: "1.0.0".into(),
        });
    }
    let id = &manifest.root_model_identifier;
    let Some(item) = manifest.item_info_entries.get(id) else {
        let why = format!("the root model {id:?} is not among its items");
        return Err(Error::malformed(&file, None, why));
    };
    inside(root, &root.join(DATA), &item.path, &file)
}

/// The file `path` names below `folder`, which must lie within the package at `root` even when
/// links are followed. `by` is the file that names it.
pub fn inside(root: &Path, folder: &Path, path: &str, by: &Path) -> Result<PathBuf, Error> {
    let unsafe_path = |why| Error::UnsafePath { file: by.to_owned(), path: path.to_owned(), why };
    let relative = Path::new(path);
    let plain = |c: Component<'_>| matches!(c, Component::Normal(_) | Component::CurDir);
    if path.is_empty() || path.contains(['\\', '\0']) || !relative.components().all(plain) {
        return Err(unsafe_path("is not one below the package"));
    }
    let full = folder.join(relative);
    let real = |p: &Path| match p.canonicalize() {
        Ok(real) => Ok(real),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Err(Error::NotFound { file: by.to_owned(), wanted: format!("the file {path:?}") })
        }
        Err(e) => Err(Error::io(p, "look at it", e)),
    };
    if !real(&full)?.starts_with(real(root)?) {
        return Err(unsafe_path("leads out of the package"));
    }
    Ok(full)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_depend_on_contents() {
        let a = render(&[1; 32], true);
        assert_eq!(a, render(&[1; 32], true));
        assert_ne!(a, render(&[2; 32], true));
        assert!(!render(&[1; 32], false).contains("weights"));
        let id = identifier(&[1; 32], "model");
        assert_eq!((id.len(), &id[14..15]), (36, "8"));
    }
}
