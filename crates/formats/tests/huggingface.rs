//! Every family loads, verifies and has the types its users expect; what does not fit is refused.

use std::fs;
use std::path::{Path, PathBuf};

use russet_formats::arrays;
use russet_formats::huggingface::{Mask, Options, Pooling, load};
use russet_formats::mlpackage::{self, Description};
use russet_ir::{DType, Opset, Program, verify_program};

const FAMILIES: [&str; 4] = ["bert", "roberta", "distilbert", "mpnet"];

fn folder(family: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testing/data/families").join(family)
}

/// `name: type` of every input and output.
fn interface(program: &Program) -> Vec<String> {
    let main = program.function("main").unwrap();
    let show = |v: &russet_ir::Value| format!("{}: {}", main.value(*v).name, main.ty(*v));
    main.inputs().iter().chain(main.outputs()).map(show).collect()
}

#[test]
fn every_family_loads() {
    for family in FAMILIES {
        let options = Options { lengths: vec![16], batch: 2, ..Options::default() };
        let source = load(&folder(family), &options).unwrap();
        assert_eq!(source.family, family);
        let length_max = if matches!(family, "bert" | "distilbert") { 40 } else { 38 };
        let beyond = Options { lengths: vec![length_max + 1], ..Options::default() };
        assert_eq!(load(&folder(family), &beyond).unwrap_err().code(), "bad-choice");
        let longest = Options { lengths: vec![length_max], ..Options::default() };
        assert!(load(&folder(family), &longest).is_ok());
        assert_eq!(verify_program(&source.program), []);
        let want = [
            "input_ids: int32[2, 16]",
            "attention_mask: int32[2, 16]",
            "last_hidden_state: fp32[2, 16, 32]",
        ];
        assert_eq!(interface(&source.program), want);
        let golden = arrays::read(&folder(family).join("golden.npz")).unwrap();
        let found: Vec<String> = golden.iter().map(|(n, t)| format!("{n}: {}", t.ty())).collect();
        assert_eq!(found, want);
    }
}

#[test]
fn lengths_and_pooling_are_chosen() {
    for family in FAMILIES {
        let options = Options {
            lengths: vec![8, 16, 32],
            mask: Mask::FromIds,
            pooling: Some(Pooling::Mean),
            ..Options::default()
        };
        let mut source = load(&folder(family), &options).unwrap();
        assert_eq!(verify_program(&source.program), []);
        let want = [
            "input_ids: int32[1, S]",
            "last_hidden_state: fp32[1, S, 32]",
            "sentence_embedding: fp32[1, 32]",
        ];
        assert_eq!(interface(&source.program), want);
        for binding in &source.program.functions[0].symbols.enumerated {
            let bound = source.program.functions[0].bind(binding).unwrap();
            let bound = Program::new(Opset::Ios15, vec![bound]);
            assert_eq!(verify_program(&bound), []);
        }
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("x.mlpackage");
        for &opset in Opset::ALL {
            source.program.opset = opset;
            mlpackage::write(&source.program, &Description::default(), &out).unwrap();
            let package = mlpackage::read(&out).unwrap();
            assert_eq!(
                (package.findings, interface(&package.program)),
                (vec![], want.map(str::to_owned).to_vec())
            );
        }
        for pooling in [Pooling::Cls, Pooling::Max] {
            let options = Options { pooling: Some(pooling), ..Options::default() };
            assert_eq!(verify_program(&load(&folder(family), &options).unwrap().program), []);
        }
    }
}

#[test]
fn lengths_that_cannot_be_are_refused() {
    for lengths in [vec![0], vec![41], vec![8, 8], vec![u64::MAX]] {
        let options = Options { lengths, ..Options::default() };
        assert_eq!(load(&folder("bert"), &options).unwrap_err().code(), "bad-choice");
    }
    let options = Options { batch: 0, ..Options::default() };
    assert_eq!(load(&folder("bert"), &options).unwrap_err().code(), "bad-choice");
    // The default is what the model has room for.
    let source = load(&folder("roberta"), &Options::default()).unwrap();
    assert_eq!(interface(&source.program)[0], "input_ids: int32[1, 38]");
}

/// A copy of the tiny BERT, changed.
fn changed(change: impl FnOnce(&Path)) -> (&'static str, String, String) {
    let dir = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(folder("bert").join(file), dir.path().join(file)).unwrap();
    }
    change(dir.path());
    let e = load(dir.path(), &Options::default()).unwrap_err();
    (e.code(), e.place(), e.to_string())
}

fn edit(file: PathBuf, from: &str, to: &str) {
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains(from));
    fs::write(file, text.replace(from, to)).unwrap();
}

#[test]
fn a_config_of_another_model_is_refused() {
    let config = |from: &'static str, to: &'static str| {
        changed(move |d| edit(d.join("config.json"), from, to))
    };
    let (code, place, message) = config("\"intermediate_size\": 64", "\"intermediate_size\": 128");
    assert_eq!(code, "shape-mismatch");
    assert!(
        place.ends_with("model.safetensors: encoder.layer.0.intermediate.dense.weight"),
        "{place}"
    );
    assert_eq!(message, "it has shape [64, 32], the config makes it [128, 32]");
    let (code, place, _) = config("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3");
    assert_eq!(code, "missing-tensor");
    assert!(place.ends_with("encoder.layer.2.attention.self.query.weight"), "{place}");
    let (code, ..) = config("\"num_attention_heads\": 4", "\"num_attention_heads\": 5");
    assert_eq!(code, "bad-config");
    let (code, ..) = config("\"model_type\": \"bert\"", "\"model_type\": \"albert\"");
    assert_eq!(code, "unknown-family");
    assert_eq!(changed(|d| fs::remove_file(d.join("model.safetensors")).unwrap()).0, "not-found");
    assert_eq!(changed(|d| fs::remove_file(d.join("config.json")).unwrap()).0, "not-found");
    assert_eq!(changed(|d| fs::write(d.join("modules.json"), "{}").unwrap()).0, "malformed");
    let modules = r#"[{"path": "../..", "type": "sentence_transformers.models.Transformer"}]"#;
    assert_eq!(changed(|d| fs::write(d.join("modules.json"), modules).unwrap()).0, "unsafe-path");
}

#[test]
fn shards_are_one_model() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::copy(folder("bert").join("config.json"), at("config.json")).unwrap();
    let all = arrays::read(&folder("bert").join("model.safetensors")).unwrap();
    let (a, b) = all.split_at(all.len() / 2);
    let index = |b_name: &str| {
        let entry = |(name, _): &(String, _), file: &str| format!("{name:?}: {file:?}");
        let mut map: Vec<String> = a.iter().map(|t| entry(t, "a.safetensors")).collect();
        map.extend(b.iter().map(|t| entry(t, b_name)));
        let text = format!("{{\"weight_map\": {{{}}}}}", map.join(", "));
        fs::write(at("model.safetensors.index.json"), text).unwrap();
    };
    let go = || load(dir.path(), &Options::default());
    arrays::write(&at("a.safetensors"), a).unwrap();
    arrays::write(&at("b.safetensors"), b).unwrap();
    index("b.safetensors");
    let whole = load(&folder("bert"), &Options::default()).unwrap();
    assert_eq!(go().unwrap().n_parameters, whole.n_parameters);
    index("../b.safetensors");
    assert_eq!(go().unwrap_err().code(), "unsafe-path");
    index("gone.safetensors");
    assert_eq!(go().unwrap_err().code(), "not-found");
    index("a.safetensors");
    assert_eq!(go().unwrap_err().code(), "malformed");
    index("b.safetensors");
    arrays::write(&at("b.safetensors"), &all).unwrap();
    let e = go().unwrap_err();
    assert_eq!((e.code(), e.at()), ("duplicate-tensor", Some(a[0].0.as_str())));
    let bytes = fs::read(at("a.safetensors")).unwrap();
    fs::write(at("a.safetensors"), &bytes[..bytes.len() - 3]).unwrap();
    assert_eq!(go().unwrap_err().code(), "truncated");
}

#[test]
fn prefixes_and_old_names_are_found() {
    let dir = tempfile::tempdir().unwrap();
    fs::copy(folder("bert").join("config.json"), dir.path().join("config.json")).unwrap();
    let all = arrays::read(&folder("bert").join("model.safetensors")).unwrap();
    let renamed: Vec<_> = all
        .into_iter()
        .map(|(name, t)| {
            let name = name.replace("LayerNorm.weight", "LayerNorm.gamma");
            (format!("0.auto_model.{}", name.replace("LayerNorm.bias", "LayerNorm.beta")), t)
        })
        .collect();
    arrays::write(&dir.path().join("model.safetensors"), &renamed).unwrap();
    let source = load(dir.path(), &Options::default()).unwrap();
    assert_eq!(source.program.functions[0].outputs().len(), 1);
    let (name, first) = &renamed[0];
    let ints = arrays::Arrays::from([(name.clone(), {
        let bytes = vec![0; 4 * first.n_elements() as usize].into();
        russet_ir::Tensor::new(DType::I32, first.shape.clone(), bytes).unwrap()
    })]);
    let all: Vec<_> = ints.into_iter().chain(renamed[1..].iter().cloned()).collect();
    arrays::write(&dir.path().join("model.safetensors"), &all).unwrap();
    assert_eq!(load(dir.path(), &Options::default()).unwrap_err().code(), "dtype-mismatch");
}

#[test]
fn what_sentence_transformers_adds_is_built() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for file in ["config.json", "model.safetensors"] {
        fs::copy(folder("bert").join(file), at(file)).unwrap();
    }
    for module in ["1_Pooling", "2_Dense"] {
        fs::create_dir(at(module)).unwrap();
    }
    let module = |path: &str, kind: &str| {
        format!("{{\"path\": {path:?}, \"type\": \"sentence_transformers.models.{kind}\"}}")
    };
    let modules = [
        module("", "Transformer"),
        module("1_Pooling", "Pooling"),
        module("2_Dense", "Dense"),
        module("3_Normalize", "Normalize"),
    ];
    fs::write(at("modules.json"), format!("[{}]", modules.join(", "))).unwrap();
    let modes = r#"{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}"#;
    fs::write(at("1_Pooling/config.json"), modes).unwrap();
    let dense = r#"{"in_features": 32, "out_features": 8, "bias": true,
        "activation_function": "torch.nn.modules.activation.Tanh"}"#;
    fs::write(at("2_Dense/config.json"), dense).unwrap();
    let weights = vec![
        ("linear.bias".to_owned(), russet_ir::Tensor::f32(vec![8], &[0.5; 8])),
        ("linear.weight".to_owned(), russet_ir::Tensor::f32(vec![8, 32], &[0.25; 256])),
    ];
    arrays::write(&at("2_Dense/model.safetensors"), &weights).unwrap();
    let go = || load(dir.path(), &Options::default());
    let source = go().unwrap();
    assert_eq!(verify_program(&source.program), []);
    assert_eq!(interface(&source.program)[3], "sentence_embedding: fp32[1, 8]");
    let plain = load(&folder("bert"), &Options::default()).unwrap();
    assert_eq!(source.n_parameters, plain.n_parameters + 264);
    edit(at("2_Dense/config.json"), "\"in_features\": 32", "\"in_features\": 16");
    assert_eq!(go().unwrap_err().code(), "bad-config");
    edit(at("1_Pooling/config.json"), "_mean_tokens\": false", "_mean_tokens\": true");
    let e = go().unwrap_err();
    assert!(e.to_string().contains("cls_token and pooling_mode_mean"), "{e}");
    edit(at("modules.json"), "Normalize", "WordWeights");
    assert_eq!(go().unwrap_err().code(), "bad-config");
}
