//! What cannot be done is refused: exit code 2, the file and the place in it, and nothing is left.

mod common;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;

use common::{command, copy, family, finish, listing, russet, text};
use russet_formats::arrays;
use russet_ir::Tensor;

fn s(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

/// Runs the program, which must refuse with `code`, naming every one of `names`; as text and as
/// JSON. Nothing below `folder` may change.
#[track_caller]
fn refused(folder: &Path, arguments: &[&str], code: &str, names: &[&str]) {
    let before = listing(folder);
    let done = russet(arguments);
    assert_eq!(done.code, Some(2), "{arguments:?}: {}{}", done.stdout, done.stderr);
    assert_eq!(done.stdout, "", "{arguments:?}");
    let is_usage = done.stderr.starts_with("error: ");
    assert!(is_usage || done.stderr.contains(&format!("error[{code}]: ")), "{}", done.stderr);
    for name in names {
        assert!(done.stderr.contains(name), "`{name}` is not in {}", done.stderr);
    }
    let done = finish(command(arguments).arg("--json"));
    assert_eq!((done.code, done.stderr.as_str()), (Some(2), ""), "{arguments:?}");
    let json: serde_json::Value = serde_json::from_str(&done.stdout).expect("one JSON object");
    assert_eq!(json["schema"], "russet.error/1");
    let error = &json["errors"][0];
    assert_eq!(error["code"], code, "{error}");
    for name in names {
        let fields = ["message", "place", "help"].map(|f| error[f].as_str().unwrap_or_default());
        assert!(fields.iter().any(|f| f.contains(name)), "`{name}` is not in {error}");
    }
    assert_eq!(listing(folder), before, "{arguments:?} left something");
}

/// A tiny package of fixed length 16, made once.
fn package() -> &'static Path {
    static MADE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = MADE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("tiny.mlpackage");
        text(&["compile", s(&family("bert")), "-o", s(&out), "--seq", "16", "--no-proof"]);
        (folder, out)
    });
    path
}

/// A changed copy of the tiny BERT does not compile.
#[track_caller]
fn folder_refused(change: impl FnOnce(&Path), code: &str, names: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    copy(&family("bert"), &model);
    change(&model);
    let out = folder.path().join("out.mlpackage");
    refused(folder.path(), &["compile", s(&model), "-o", s(&out)], code, names);
    refused(folder.path(), &["run", s(&model)], code, names);
}

fn replace(file: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains(from), "{from}");
    fs::write(file, text.replace(from, to)).unwrap();
}

fn config(from: &'static str, to: &'static str) -> impl FnOnce(&Path) {
    move |folder| replace(&folder.join("config.json"), from, to)
}

/// A change of the bytes of the weights.
fn weights(change: impl FnOnce(&mut Vec<u8>)) -> impl FnOnce(&Path) {
    |folder| {
        let file = folder.join("model.safetensors");
        let mut bytes = fs::read(&file).unwrap();
        change(&mut bytes);
        fs::write(file, bytes).unwrap();
    }
}

#[test]
fn damaged_weights() {
    let cut = |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() - 3);
    folder_refused(weights(cut), "truncated", &["model.safetensors: ", "copied or downloaded"]);
    let cut = |bytes: &mut Vec<u8>| bytes.truncate(100);
    folder_refused(weights(cut), "truncated", &["model.safetensors: the header"]);
    let long = |bytes: &mut Vec<u8>| bytes[..8].fill(0x7f);
    folder_refused(weights(long), "truncated", &["model.safetensors: the header"]);
    let garbage = |bytes: &mut Vec<u8>| bytes[8..40].fill(b'x');
    folder_refused(weights(garbage), "malformed", &["model.safetensors: the header"]);
    let empty = |bytes: &mut Vec<u8>| bytes.clear();
    folder_refused(weights(empty), "wrong-kind", &["model.safetensors", "empty"]);
    let name = "encoder.layer.1.output.dense.weight";
    let without = |folder: &Path| {
        let file = folder.join("model.safetensors");
        let mut all = arrays::read(&file).unwrap();
        all.retain(|(n, _)| n != name);
        arrays::write(&file, &all).unwrap();
    };
    folder_refused(without, "missing-tensor", &["model.safetensors", name, "two models"]);
}

#[test]
fn configs_that_do_not_fit() {
    let file = "config.json";
    let hidden = config("\"hidden_size\": 32", "\"hidden_size\": 64");
    folder_refused(hidden, "shape-mismatch", &["model.safetensors: ", "32", "64"]);
    let layers = config("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 4");
    folder_refused(layers, "missing-tensor", &["encoder.layer.2.", "config.json and the weights"]);
    let vocab = config("\"vocab_size\": 100", "\"vocab_size\": 200");
    folder_refused(vocab, "shape-mismatch", &["word_embeddings.weight", "[100, 32]", "[200, 32]"]);
    let family = config("\"model_type\": \"bert\"", "\"model_type\": \"mamba\"");
    folder_refused(family, "unknown-family", &[file, "mamba", "distilbert"]);
    let snake = config("\"gelu\"", "\"snake\"");
    folder_refused(snake, "bad-config", &["config.json: hidden_act", "snake", "gelu_new"]);
    let heads = config("\"num_attention_heads\": 4", "\"num_attention_heads\": 0");
    folder_refused(heads, "bad-config", &["config.json: num_attention_heads"]);
    let huge = config("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 2000000000");
    folder_refused(huge, "missing-tensor", &["encoder.layer.2."]);
    folder_refused(|f| fs::write(f.join(file), "{").unwrap(), "malformed", &[file]);
    let deep = "[".repeat(100_000);
    folder_refused(|f| fs::write(f.join(file), deep).unwrap(), "malformed", &[file]);
    folder_refused(|f| fs::remove_file(f.join(file)).unwrap(), "not-found", &[file]);
}

/// A changed copy of the tiny package is not read.
#[track_caller]
fn package_refused(change: impl FnOnce(&Path), code: &str, names: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("x.mlpackage");
    copy(package(), &model);
    change(&model);
    let out = folder.path().join("out.mlpackage");
    // Without its weights a package can be looked at, not used.
    let looked_at = match code {
        "not-found" => "run",
        _ => "inspect",
    };
    refused(folder.path(), &[looked_at, s(&model)], code, names);
    refused(folder.path(), &["compile", s(&model), "-o", s(&out)], code, names);
    // Neither is anything changed when the damaged package is itself the output.
    refused(folder.path(), &["compile", s(&model), "-o", s(&model)], code, names);
}

#[test]
fn damaged_packages() {
    let core = "Data/com.apple.CoreML";
    let weights = format!("{core}/weights/weight.bin");
    let model = format!("{core}/model.mlmodel");
    let missing = |p: &Path| fs::remove_file(p.join(&weights)).unwrap();
    package_refused(missing, "not-found", &["model.mlmodel", "weight.bin"]);
    let cut = |p: &Path| {
        let file = p.join(&weights);
        let bytes = fs::read(&file).unwrap();
        fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    };
    package_refused(cut, "truncated", &["weight.bin: record"]);
    let past_the_end = |p: &Path| {
        let file = p.join(&model);
        let mut bytes = fs::read(&file).unwrap();
        let name = b"@model_path/weights/weight.bin\x10";
        // The field after the name is the offset: one of two bytes becomes the largest of these.
        let at = (0..bytes.len() - name.len() - 2).find(|&i| {
            let tail = &bytes[i + name.len()..];
            bytes[i..].starts_with(name) && tail[0] >= 0x80 && tail[1] >= 0x80 && tail[2] < 0x80
        });
        let at = at.expect("an offset") + name.len();
        bytes[at..at + 3].copy_from_slice(&[0xff, 0xff, 0x7f]);
        fs::write(&file, bytes).unwrap();
    };
    package_refused(past_the_end, "malformed", &["weight.bin: ", "past the end"]);
    let garbage = |p: &Path| fs::write(p.join(&model), [0xa5; 300]).unwrap();
    package_refused(garbage, "malformed", &["model.mlmodel"]);
    let traversal = |p: &Path| {
        replace(&p.join("Manifest.json"), "com.apple.CoreML/model.mlmodel", "../../../x")
    };
    package_refused(traversal, "unsafe-path", &["Manifest.json", "../../../x"]);
    let manifest = |p: &Path| fs::write(p.join("Manifest.json"), "[]").unwrap();
    package_refused(manifest, "malformed", &["Manifest.json"]);
}

#[test]
fn lengths_and_shapes_that_cannot_be() {
    let folder = tempfile::tempdir().unwrap();
    let (model, out) = (family("bert"), folder.path().join("x.mlpackage"));
    let base = ["compile", s(&model), "-o", s(&out)];
    for (lengths, why) in [("0", "0"), ("41", "40"), ("8,8", "8"), ("18446744073709551615", "40")] {
        let arguments = [&base[..], &["--seq", lengths]].concat();
        refused(folder.path(), &arguments, "bad-choice", &["config.json", why]);
    }
    for shapes in [
        "nonsense",
        "input_ids",
        "input_ids=",
        "input_ids=1x",
        "input_ids=1x-3",
        "input_ids=1x8x8",
        "input_ids=1x8,2x8",
        "input_ids=0x8",
        "y=1x8",
        "input_ids=axb",
    ] {
        let arguments = [&base[..], &["--shapes", shapes]].concat();
        refused(folder.path(), &arguments, "usage", &["--shapes", "input_ids=1x128,1x256"]);
    }
    for (option, value) in [
        ("--seq", "x"),
        ("--seq", "8,x"),
        ("--opset", "ios99"),
        ("--pooling", "sum"),
        ("--no", "x"),
    ] {
        refused(folder.path(), &[&base[..], &[option, value]].concat(), "usage", &[option]);
    }
    let arguments = [&base[..], &["--chip", "m99"]].concat();
    refused(folder.path(), &arguments, "unknown-chip", &["m99", "m4-pro"]);
    for option in ["--passes", "--skip"] {
        let arguments = [&base[..], &[option, "to-gold"]].concat();
        refused(folder.path(), &arguments, "usage", &["to-gold", "linear-to-conv"]);
    }
    let function = ["run", s(package()), "--function", "decode"];
    refused(folder.path(), &function, "no-function", &["tiny.mlpackage", "decode", "main"]);
    let gone = folder.path().join("gone");
    refused(folder.path(), &["inspect", s(&gone)], "not-found", &["gone"]);
    let file = folder.path().join("file.txt");
    fs::write(&file, "x").unwrap();
    refused(folder.path(), &["inspect", s(&file)], "wrong-kind", &["file.txt", "Core ML package"]);
}

#[test]
fn outputs_that_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("file"), "precious").unwrap();
    fs::write(at("file.mlpackage"), "precious").unwrap();
    fs::create_dir(at("full.mlpackage")).unwrap();
    fs::write(at("full.mlpackage/mine"), "precious").unwrap();
    std::os::unix::fs::symlink(at("full.mlpackage"), at("link.mlpackage")).unwrap();
    let model = family("bert");
    let refuse = |out: &Path, code: &str, names: &[&str]| {
        for proof in [&[][..], &["--no-proof"]] {
            let arguments = [&["compile", s(&model), "-o", s(out)], proof].concat();
            refused(folder.path(), &arguments, code, names);
        }
    };
    refuse(&at("file/x.mlpackage"), "io", &["file/x.mlpackage"]);
    refuse(&at("gone/x.mlpackage"), "io", &["gone/x.mlpackage"]);
    refuse(Path::new("/proc/x.mlpackage"), "io", &["/proc/x.mlpackage"]);
    refuse(&at("x"), "unwritable", &[".mlpackage"]);
    refuse(Path::new("/dev/full"), "unwritable", &["/dev/full", ".mlpackage"]);
    refuse(&at("file.mlpackage"), "output-exists", &["file.mlpackage", "another output"]);
    refuse(&at("full.mlpackage"), "output-exists", &["full.mlpackage", "no package"]);
    refuse(&at("link.mlpackage"), "output-exists", &["link.mlpackage"]);
    let run = |out: &Path, code: &str| {
        refused(folder.path(), &["run", s(package()), "-o", s(out)], code, &[s(out)]);
    };
    run(&at("file/x.npz"), "io");
    run(&at("x.csv"), "wrong-kind");
    run(Path::new("/dev/full"), "wrong-kind");
    run(&at("full.mlpackage"), "wrong-kind");
}

#[test]
fn inputs_that_do_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    let ones = |n: u64| Tensor::i32(vec![1, n], &vec![1; n as usize]);
    let refuse = |name: &str, arrays: &[(&str, Tensor)], code: &str, names: &[&str]| {
        let file = folder.path().join(name);
        let all: Vec<_> = arrays.iter().map(|(n, t)| ((*n).to_owned(), t.clone())).collect();
        arrays::write(&file, &all).unwrap();
        let names = [names, &[name]].concat();
        for command in ["run", "compare", "bench"] {
            let arguments = [command, s(package()), "--inputs", s(&file)];
            refused(folder.path(), &arguments, code, &names);
        }
        let out = folder.path().join("o.mlpackage");
        let arguments = ["compile", s(package()), "-o", s(&out), "--inputs", s(&file)];
        refused(folder.path(), &arguments, code, &names);
    };
    let mask = || ("attention_mask", ones(16));
    refuse("a.npz", &[("input_ids", ones(16))], "missing-input", &["attention_mask"]);
    let short = [("input_ids", ones(8)), mask()];
    refuse("c.npz", &short, "input-mismatch", &["input_ids", "16"]);
    let flat = [("input_ids", Tensor::i32(vec![16], &[1; 16])), mask()];
    refuse("d.safetensors", &flat, "input-mismatch", &["input_ids", "rank"]);
    let floats = [("input_ids", Tensor::f32(vec![1, 16], &[1.0; 16])), mask()];
    refuse("e.npz", &floats, "input-mismatch", &["input_ids", "int32"]);
    let file = folder.path().join("b.npz");
    let all = [("ids".into(), ones(16)), ("attention_mask".into(), ones(16))];
    arrays::write(&file, &all).unwrap();
    let arguments = ["run", s(package()), "--inputs", s(&file)];
    refused(folder.path(), &arguments, "unknown-input", &["ids", "input_ids", "b.npz"]);
    let ids = Tensor::i32(vec![1, 16], &[100; 16]);
    arrays::write(&file, &[("input_ids".into(), ids), ("attention_mask".into(), ones(16))])
        .unwrap();
    let done = russet(&arguments);
    assert_eq!(done.code, Some(2), "a token the table has no row for: {}", done.stdout);
}

#[test]
fn input_files_that_are_none() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("folder.npz")).unwrap();
    fs::write(at("empty.npz"), "").unwrap();
    fs::write(at("garbage.npz"), "PK\x03\x04garbage").unwrap();
    fs::write(at("garbage.npy"), "garbage, and enough of it").unwrap();
    let fifo = std::process::Command::new("mkfifo").arg(at("fifo.npz")).status();
    assert!(fifo.expect("mkfifo").success());
    for (name, code) in [
        ("folder.npz", "no-inputs"),
        ("empty.npz", "wrong-kind"),
        ("fifo.npz", "wrong-kind"),
        ("garbage.npz", "malformed"),
        ("garbage.npy", "malformed"),
        ("gone.npz", "not-found"),
        ("gone.txt", "wrong-kind"),
    ] {
        let file = at(name);
        let arguments = ["run", s(package()), "--inputs", s(&file)];
        refused(folder.path(), &arguments, code, &[name]);
    }
    let text = ["run", s(package()), "--text", "hello"];
    refused(folder.path(), &text, "no-tokenizer", &["tiny.mlpackage", "--tokenizer FOLDER"]);
    fs::write(at("tokenizer.json"), "{}").unwrap();
    let text = [&text[..], &["--tokenizer", s(folder.path())]].concat();
    refused(folder.path(), &text, "bad-tokenizer", &["tokenizer.json"]);
    let file = at("empty.npz");
    let both = ["run", s(package()), "--text", "x", "--inputs", s(&file)];
    refused(folder.path(), &both, "usage", &["--text", "--inputs"]);
}

#[test]
fn a_reader_that_leaves_or_a_full_disk_is_no_panic() {
    for arguments in [
        &["inspect", s(package()), "--text"][..],
        &["inspect", s(package()), "--json"],
        &["inspect", "/nowhere", "--json"],
        &["completions", "bash"],
        &["--help"],
    ] {
        let mut child =
            command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let done = child.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&done.stderr);
        assert!(!error.contains("panicked"), "{arguments:?}: {error}");
        let code = done.status.code();
        assert!(matches!(code, Some(0 | 2)), "{arguments:?}: {code:?} {error}");
    }
    if let Ok(full) = File::options().write(true).open("/dev/full") {
        let arguments = ["inspect", s(package())];
        let done = command(&arguments).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let error = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{error}");
        assert!(error.contains("error[io]: cannot write the result"), "{error}");
    }
}

/// A model whose package takes a moment to write.
fn large_model(folder: &Path) {
    copy(&family("bert"), folder);
    replace(&folder.join("config.json"), "\"vocab_size\": 100", "\"vocab_size\": 60000");
    let file = folder.join("model.safetensors");
    let mut all = arrays::read(&file).unwrap();
    let table = all.iter_mut().find(|(n, _)| n.ends_with("word_embeddings.weight")).unwrap();
    table.1 = Tensor::f32(vec![60_000, 32], &vec![0.5; 60_000 * 32]);
    arrays::write(&file, &all).unwrap();
}

#[test]
fn an_interrupt_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    large_model(&model);
    let results = folder.path().join("results");
    fs::create_dir(&results).unwrap();
    let out = results.join("x.mlpackage");
    let arguments = ["compile", s(&model), "-o", s(&out), "--no-proof", "--quiet"];
    text(&arguments);
    let whole = listing(&results);
    for millis in (0..240).step_by(12) {
        // Half of the time there is a package already, which must stay or be replaced.
        let had_one = (millis / 12) % 2 == 0;
        if !had_one {
            let _ = fs::remove_dir_all(&out);
        } else if !out.exists() {
            text(&arguments);
        }
        let mut child = command(&arguments).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(millis));
        let kill = format!("kill -INT {} 2>/dev/null", child.id());
        let _ = std::process::Command::new("sh").args(["-c", &kill]).status();
        let _ = child.wait().unwrap();
        let left = listing(&results);
        assert!(left == whole || (!had_one && left.is_empty()), "after {millis} ms: {left:?}");
    }
}
