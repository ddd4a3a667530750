//! Over real Core ML models: those below the folder that `RUSSET_CORPUS` names.
//!
//! Without the variable these tests pass without looking; the same facts are tested on small
//! models elsewhere. Each prints what it counted (`cargo test -- --nocapture`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use prost::Message;
use russet_formats::container::{self, Content};
use russet_formats::mlpackage::{proto, references};
use russet_formats::{Error, mil_text, mlmodelc, mlpackage};
use serde_json::Value;

/// Files below the corpus for which `wanted` holds, in order.
fn corpus(wanted: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    fn walk(folder: &Path, wanted: &dyn Fn(&Path) -> bool, found: &mut Vec<PathBuf>) {
        let mut entries: Vec<PathBuf> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            if wanted(&path) {
                found.push(path);
            } else if path.is_dir() {
                walk(&path, wanted, found);
            }
        }
    }
    let mut found = Vec::new();
    if let Some(folder) = std::env::var_os("RUSSET_CORPUS") {
        walk(Path::new(&folder), &wanted, &mut found);
        assert!(!found.is_empty(), "the corpus has none");
    }
    found
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|e| e == extension)
}

/// The models that are not messages of the published kind: see the corpus' index.
fn is_odd(path: &Path) -> bool {
    let path = path.to_string_lossy();
    path.contains("simple_layer") || path.contains("too-deep")
}

#[test]
fn messages_are_written_as_they_were_read() {
    let files = corpus(|p| has_extension(p, "mlmodel") && p.is_file() && !is_odd(p));
    let mut same = 0;
    for file in &files {
        let bytes = fs::read(file).unwrap();
        let model = proto::Model::decode(bytes.as_slice()).unwrap();
        let again = model.encode_to_vec();
        assert_eq!(proto::Model::decode(again.as_slice()).unwrap(), model, "{}", file.display());
        match again == bytes {
            true => same += 1,
            false => println!("other bytes: {}", file.display()),
        }
    }
    println!("{same} of {} models have the same bytes", files.len());
}

#[test]
fn apples_text_is_printed_as_it_was_read() {
    let files = corpus(|p| has_extension(p, "mil"));
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        let parsed = mil_text::parse(&text, file).unwrap_or_else(|e| panic!("{}: {e}", e.place()));
        let printed = mil_text::print(&parsed.program, parsed.syntax).unwrap();
        let text = text.strip_suffix('\n').unwrap_or(&text);
        if let Some(i) = text.bytes().zip(printed.bytes()).position(|(a, b)| a != b) {
            let (from, to) = (i.saturating_sub(80), i + 80);
            let cut = |s: &str| s.get(from..to.min(s.len())).unwrap_or_default().to_owned();
            panic!("{}:\nApple {}\nours  {}", file.display(), cut(text), cut(&printed));
        }
        assert_eq!(text.len(), printed.len(), "{}", file.display());
        // The message of the text says the same.
        let bytes = parsed.program.encode_to_vec();
        assert_eq!(proto::Program::decode(bytes.as_slice()).unwrap(), parsed.program);
    }
    println!("{} texts are printed as they were read", files.len());
}

/// Weights of most of the corpus are left out.
fn lacks_weights(error: &Error) -> bool {
    matches!(error, Error::NotFound { wanted, .. } if wanted.contains("weight"))
}

#[test]
fn every_container_opens_or_says_what_it_is() {
    let wanted = ["mlpackage", "mlmodel", "mlmodelc", "mil", "hwx", "onnx"];
    let paths = corpus(|p| wanted.iter().any(|w| has_extension(p, w)));
    let mut counts = BTreeMap::new();
    for path in &paths {
        let what = match container::open(path) {
            Ok(c) => {
                match &c.content {
                    Content::Program(p) => assert!(!p.program.functions.is_empty()),
                    Content::Pipeline(stages) => {
                        assert_eq!(stages.len(), 2);
                        assert!(stages.iter().all(|s| s.container.program().is_some()));
                    }
                    Content::Network(n) => assert!(n.n_parameters() > 0 && n.parameter_bytes() > 0),
                    Content::Other(kind) => panic!("{}: a {kind}", path.display()),
                }
                if c.kind != container::Kind::Text {
                    let f = &c.description.functions[0];
                    assert!(!f.inputs.is_empty() && !f.outputs.is_empty(), "{}", path.display());
                }
                for finding in c.findings() {
                    println!("{}: {finding}", path.display());
                }
                format!("{:?}", c.kind)
            }
            Err(e) if lacks_weights(&e) => "without weights".into(),
            Err(e @ Error::Foreign { .. }) => e.to_string(),
            Err(e) => {
                assert!(is_odd(path), "{}: {e}", path.display());
                e.to_string()
            }
        };
        *counts.entry(what).or_insert(0) += 1;
    }
    println!("{counts:#?}");
}

/// A source and what Apple's compiler made of it: the pairs, and twins published apart.
fn pairs() -> Vec<(PathBuf, PathBuf)> {
    let mut pairs = Vec::new();
    for input in corpus(|p| p.ends_with("input.mlmodel")) {
        let folder = input.parent().unwrap();
        let mut entries = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
        pairs.push((input.clone(), entries.find(|p| has_extension(p, "mlmodelc")).unwrap()));
    }
    let packages = corpus(|p| has_extension(p, "mlpackage"));
    for compiled in corpus(|p| has_extension(p, "mlmodelc")) {
        let twin = packages.iter().find(|p| p.file_stem() == compiled.file_stem());
        pairs.extend(twin.map(|p| (p.clone(), compiled)));
    }
    pairs
}

/// A program's text but for who built it.
fn without_build_info(text: &[u8]) -> String {
    let text = String::from_utf8(text.to_vec()).unwrap();
    text.lines().filter(|l| !l.starts_with("[buildInfo")).collect::<Vec<_>>().join("\n")
}

/// Where two JSON values differ, as paths with both sides.
fn differences(at: &str, ours: &Value, apples: &Value, out: &mut Vec<String>) {
    match (ours, apples) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let null = Value::Null;
                let (x, y) = (a.get(key).unwrap_or(&null), b.get(key).unwrap_or(&null));
                differences(&format!("{at}/{key}"), x, y, out);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (x, y)) in a.iter().zip(b).enumerate() {
                differences(&format!("{at}/{i}"), x, y, out);
            }
        }
        (a, b) if a != b => out.push(format!("{at}: ours {a}, Apple's {b}")),
        _ => {}
    }
}

#[test]
fn compiled_models_are_those_apples_compiler_makes() {
    let (mut n, mut different, mut same) = (0, 0, BTreeMap::<String, usize>::new());
    for (input, apples) in pairs() {
        n += 1;
        let file = match input.is_dir() {
            true => input.join("Data/com.apple.CoreML/model.mlmodel"),
            false => input.clone(),
        };
        let bytes = fs::read(&file).unwrap();
        let model = proto::Model::decode(bytes.as_slice()).unwrap();
        let name = input.file_stem().unwrap().to_string_lossy();
        // The pipeline with weights was compiled under another name.
        let name =
            if file.to_string_lossy().contains("weighted") { "weighted_pipeline" } else { &name };
        let stem = file.file_stem().unwrap().to_string_lossy();
        let stem = if name == "weighted_pipeline" { name } else { &stem };
        let ours = mlmodelc::files(&model, &bytes, name, stem).unwrap();
        let mut differs = Vec::new();
        for (path, ours) in &ours {
            let Ok(theirs) = fs::read(apples.join(path)) else { continue };
            let is_same = match path.rsplit('.').next() {
                Some("mil") => without_build_info(ours) == without_build_info(&theirs),
                Some("json") => {
                    let ours = serde_json::from_slice(ours).unwrap();
                    differences("", &ours, &serde_json::from_slice(&theirs).unwrap(), &mut differs);
                    differs.is_empty()
                }
                // Apple writes maps in an order of its own.
                _ if path == "coremldata.bin"
                    || path.ends_with("/coremldata.bin")
                        && path.starts_with("model")
                        && !path.contains("analytics")
                        && !path.contains("modelNames") =>
                {
                    let read =
                        |b: &[u8]| mlmodelc::data::parse(b.to_vec().into(), &apples).unwrap();
                    *ours == theirs || read(ours) == read(&theirs) && ours.len() == theirs.len()
                }
                _ => *ours == theirs,
            };
            let kind = match path.split_once('/') {
                Some((stage, rest)) if stage.starts_with("model") && stage != "modelNames" => {
                    format!("stage/{rest}")
                }
                _ => path.clone(),
            };
            match is_same {
                true => *same.entry(kind).or_default() += 1,
                false => {
                    different += 1;
                    println!("{}: {path} differs\n  {}", apples.display(), differs.join("\n  "))
                }
            }
        }
    }
    println!("of {n} pairs the same: {same:#?}; different: {different}");
    // That pipeline was made of another file, so its hash is another.
    assert!(different <= 1, "{different} files differ");
}

/// A copy of a package or model file in `to`; weights that are not there are made up, each record
/// where the model looks for it. Returns its path and that of its weights.
fn with_weights(path: &Path, to: &Path) -> (PathBuf, PathBuf, Option<PathBuf>) {
    let (copy, model, root) = match path.is_dir() {
        true => {
            let data = to.join("x.mlpackage/Data/com.apple.CoreML");
            fs::create_dir_all(&data).unwrap();
            fs::copy(path.join("Manifest.json"), to.join("x.mlpackage/Manifest.json")).unwrap();
            (to.join("x.mlpackage"), data.join("model.mlmodel"), path.join("Data/com.apple.CoreML"))
        }
        false => (to.join("x.mlmodel"), to.join("x.mlmodel"), path.parent().unwrap().to_owned()),
    };
    let original = if path.is_dir() { root.join("model.mlmodel") } else { path.to_owned() };
    fs::copy(original, &model).unwrap();
    let message = proto::Model::decode(fs::read(&model).unwrap().as_slice()).unwrap();
    let Some(program) = message.ml_program else { return (copy, model, None) };
    let mut records = BTreeMap::new();
    let mut name = None;
    for r in references::of_program(&program) {
        records.insert(r.blob.offset, r.value.r#type.clone().unwrap());
        name = r.blob.file_name.strip_prefix("@model_path/").map(str::to_owned);
    }
    let Some(name) = name else { return (copy, model, None) };
    let weights = model.parent().unwrap().join(&name);
    fs::create_dir_all(weights.parent().unwrap()).unwrap();
    if root.join(&name).exists() {
        fs::copy(root.join(&name), &weights).unwrap();
        return (copy, model, Some(weights));
    }
    let codes: BTreeMap<i32, (u32, u64)> = BTreeMap::from([
        (10, (1, 16)),
        (11, (2, 32)),
        (31, (3, 8)),
        (21, (4, 8)),
        (22, (6, 16)),
        (32, (7, 16)),
        (23, (14, 32)),
    ]);
    let mut bytes = vec![0u8; 64];
    bytes[..4].copy_from_slice(&(records.len() as u32).to_le_bytes());
    bytes[4] = 2;
    for (i, (&offset, ty)) in records.iter().enumerate() {
        let Some(proto::ValueKind::Tensor(t)) = &ty.kind else { panic!() };
        let extent = |d: &proto::Dimension| match &d.kind {
            Some(proto::DimensionKind::Constant(c)) => c.size,
            _ => panic!(),
        };
        let n: u64 = t.dimensions.iter().map(extent).product();
        let (code, bits) = codes[&t.data_type];
        bytes.resize(offset as usize, 0);
        bytes.extend(0xDEAD_BEEFu32.to_le_bytes());
        bytes.extend(code.to_le_bytes());
        bytes.extend((n * bits / 8).to_le_bytes());
        bytes.extend((offset + 64).to_le_bytes());
        bytes.resize(offset as usize + 64, 0);
        // No two are equal, or they would be shared.
        bytes.extend((0..n * bits / 8).map(|j| (j / 4 * 7 + i as u64) as u8 & 0x3f));
    }
    fs::write(&weights, bytes).unwrap();
    (copy, model, Some(weights))
}

#[test]
fn an_unchanged_package_is_written_as_it_was() {
    let paths = corpus(|p| {
        has_extension(p, "mlpackage") || has_extension(p, "mlmodel") && p.is_file() && !is_odd(p)
    });
    let (mut n, mut same_model, mut same_weights, mut n_weights) = (0, 0, 0, 0);
    for path in paths {
        let folder = tempfile::tempdir().unwrap();
        let (copy, model, weights) = with_weights(&path, folder.path());
        let package = match mlpackage::read(&copy) {
            Ok(package) => package,
            Err(Error::NotMlProgram { .. }) => continue,
            Err(e) => panic!("{}: {e}", path.display()),
        };
        n += 1;
        let out = folder.path().join("out.mlpackage");
        let none = mlpackage::Description::default();
        mlpackage::rewrite(&package.program, &none, &package.source, &out)
            .unwrap_or_else(|e| panic!("{}: {}: {e}", path.display(), e.place()));
        let again = mlpackage::read(&out).unwrap();
        for (a, b) in package.program.functions.iter().zip(&again.program.functions) {
            assert_eq!(a.n_values(), b.n_values());
            for (v, _) in a.values() {
                assert_eq!(a.constant(v), b.constant(v), "{}", path.display());
            }
        }
        let data = out.join("Data/com.apple.CoreML");
        let (before, after) =
            (fs::read(&model).unwrap(), fs::read(data.join("model.mlmodel")).unwrap());
        let decode = |b: &[u8]| proto::Model::decode(b).unwrap();
        match before == after {
            true => same_model += 1,
            false => {
                println!("other bytes: {}", path.display());
                let (a, b) = (decode(&before), decode(&after));
                assert_eq!(a.description, b.description, "{}", path.display());
                assert_eq!(a, b, "{}", path.display());
            }
        }
        if let Some(weights) = weights {
            n_weights += 1;
            let now = data.join("weights").join(weights.file_name().unwrap());
            match fs::read(&weights).unwrap() == fs::read(now).unwrap() {
                true => same_weights += 1,
                false => println!("other weights: {}", path.display()),
            }
        }
    }
    println!(
        "of {n} programs {same_model} have the same bytes; of {n_weights} weight files {same_weights}"
    );
}

#[test]
fn a_compiled_model_holds_the_program_it_was_made_of() {
    let paths = corpus(|p| {
        has_extension(p, "mlpackage") || has_extension(p, "mlmodel") && p.is_file() && !is_odd(p)
    });
    let mut n = 0;
    for path in paths {
        let folder = tempfile::tempdir().unwrap();
        let (copy, ..) = with_weights(&path, folder.path());
        let source = container::open(&copy);
        let Some(package) = source.as_ref().ok().and_then(container::Container::program) else {
            continue;
        };
        let out = folder.path().join("out.mlmodelc");
        mlmodelc::write(&copy, &out).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let opened = container::open(&out).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let compiled = opened.program().unwrap();
        assert_eq!(compiled.description, package.description, "{}", path.display());
        assert_eq!(compiled.n_weights, package.n_weights);
        // Inputs are in another order, the text of every operation is the same.
        let lines = |p: &mlpackage::Package| {
            let text = russet_ir::text::print(&p.program, russet_ir::text::Weights::Named);
            let lines = text.lines().filter(|l| l.trim_start().starts_with('%'));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(lines(compiled), lines(package), "{}", path.display());
        n += 1;
    }
    println!("{n} programs are the same compiled");
}
