//! What else one may be handed, named for what it is.

use std::path::Path;

use crate::Error;

/// Begins of files, what they are and what to do with them.
const MAGIC: &[(&[u8], &str, &str)] = &[
    (
        b"\xce\xfa\xef\xbe",
        "a program of the Neural Engine (`.hwx`), which Core ML makes for one chip when it loads a model",
        "take the package or the compiled model it was made from",
    ),
    (
        b"GGUF",
        "a GGUF file, as llama.cpp runs it",
        "compile it: `russet compile` reads it as it is",
    ),
    (
        b"PK\x03\x04",
        "a ZIP archive: PyTorch's `.pt` and zipped packages are such",
        "unpack a zipped package; of a PyTorch model take the Hugging Face folder with safetensors",
    ),
    (
        b"\x80\x02",
        "a pickle, as old PyTorch files are",
        "take the Hugging Face folder with safetensors",
    ),
    (b"\x1f\x8b", "a gzip archive", "unpack it"),
    (
        b"ML\xefR",
        "MLIR bytecode, as `.aimodel` folders hold it",
        "there is no reader for it; take the source it was made from",
    ),
    (b"bplist", "a property list, as keys of encrypted models (`.mlmodelkey`) are", KEY_ADVICE),
    (b"\xcf\xfa\xed\xfe", "a Mach-O program", "take the model that is inside the app"),
];

const KEY_ADVICE: &str = "a key opens no model here; take the package the model was made from";

/// Ends of names, for files whose contents do not tell.
const NAMES: &[(&str, &str, &str)] = &[
    ("onnx", "an ONNX model", "compile it to a package first"),
    ("safetensors", "a file of weights alone", "name the folder it lies in, with its config.json"),
    ("mlmodelkey", "the key of an encrypted model", KEY_ADVICE),
    ("gguf", "a GGUF file, as llama.cpp runs it", "compile it: `russet compile` reads it as it is"),
    (
        "bin",
        "a file of weights or of data without its model",
        "name the package or the folder it lies in",
    ),
    ("hwx", "a program of the Neural Engine", "take the package it was made from"),
];

/// What the file is, when it is surely no Core ML model.
pub fn file(path: &Path, bytes: &[u8]) -> Option<Error> {
    let error = |found, advice| Error::Foreign { file: path.to_owned(), found, advice };
    if let Some(&(_, found, advice)) = MAGIC.iter().find(|m| bytes.starts_with(m.0)) {
        return Some(error(found, advice));
    }
    let is_safetensors = bytes.get(8..10).is_some_and(|b| b == b"{\"");
    let name = path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
    let name = if is_safetensors { "safetensors" } else { &name };
    NAMES.iter().find(|n| n.0 == name).map(|&(_, found, advice)| error(found, advice))
}

/// The error about an encrypted model.
pub fn encrypted(path: &Path) -> Error {
    Error::Foreign {
        file: path.to_owned(),
        found: "an encrypted model",
        advice: "nobody reads it without its key; take the package it was made from",
    }
}

/// The error about a folder that is no container.
pub fn folder(path: &Path) -> Error {
    let holds = |name: &str| path.join(name).exists();
    let (found, advice) = match () {
        _ if holds("encryptionInfo") => return encrypted(path),
        _ if holds("main.mlirb") || path.extension().is_some_and(|e| e == "aimodel") => (
            "a model of Apple's Core AI (`.aimodel`)",
            "there is no reader for it; take the source it was made from",
        ),
        _ if holds("config.json") => {
            ("a Hugging Face folder", "name it where a model to be compiled is expected")
        }
        _ if holds("saved_model.pb") => {
            ("a TensorFlow model", "convert it to a package with coremltools")
        }
        _ => {
            let expected = "a package, a compiled model or a model file";
            return Error::WrongKind { file: path.to_owned(), found: "a folder", expected };
        }
    };
    Error::Foreign { file: path.to_owned(), found, advice }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_files_are_named() {
        for (name, bytes, wanted) in [
            ("x.hwx", &b"\xce\xfa\xef\xbe...."[..], "Neural Engine"),
            ("x.mlmodel", b"GGUF\x03", "GGUF"),
            ("x.zip", b"PK\x03\x04", "ZIP"),
            ("model", b"\x08\0\0\0\0\0\0\0{\"a\":", "weights alone"),
            ("x.ONNX", b"\x08\x07\x12\x07", "ONNX"),
        ] {
            let error = file(Path::new(name), bytes).unwrap();
            assert!(error.to_string().contains(wanted), "{name}: {error}");
            assert!(error.help().is_some());
        }
        assert!(file(Path::new("x.mlmodel"), b"\x08\x07\x12\x07").is_none());
    }
}
