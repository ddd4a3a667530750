//! `russet inspect` and `russet run` on programs of every kind, made here.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{json, russet, text};
use russet_formats::arrays;
use russet_formats::mlpackage::{self, Description};
use russet_ir::{Tensor, text::parse};

fn s(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

/// A package of the program in `text`.
fn package(folder: &Path, name: &str, text: &str) -> PathBuf {
    let program = parse(text).unwrap_or_else(|e| panic!("{e} in\n{text}"));
    let out = folder.join(format!("{name}.mlpackage"));
    mlpackage::write(&program, &Description::default(), &out).expect("a package");
    out
}

const WEIGHTS: &str = "program ios18
func main(%x: fp32[1, 12]) {
  %big = const(val=fp32[12] [1.0, -2.0, 70000.0, 0.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0])
  %odd = const(val=fp32[12] [nan, inf, -inf, 0.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0])
  %again = const(val=fp32[12] [1.0, -2.0, 70000.0, 0.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0])
  %q = const(val=int8[4, 12] [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12])
  %scale = const(val=fp32[4, 1] [0.5, 0.25, 1.0, 2.0])
  %w = constexpr_blockwise_shift_scale(data=%q, scale=%scale)
  %a = add(x=%x, y=%big)
  %b = add(x=%a, y=%odd)
  %c = add(x=%b, y=%again)
  %y = linear(x=%c, weight=%w)
} -> %y
";

#[test]
fn weights_are_listed_with_what_to_worry_about() {
    let folder = tempfile::tempdir().unwrap();
    let model = package(folder.path(), "x", WEIGHTS);
    let seen = json(&["inspect", s(&model), "--weights"]);
    let all = seen["weights"].as_array().expect("weights");
    let weight = |name: &str| {
        all.iter().find(|w| w["name"] == name).unwrap_or_else(|| panic!("{name} in {seen}"))
    };
    assert_eq!(all.len(), 4);
    assert_eq!(
        (&weight("big")["n_beyond_fp16"], &weight("big")["max"]),
        (&1.into(), &70000.0.into())
    );
    assert_eq!((&weight("odd")["n_nan"], &weight("odd")["n_infinite"]), (&1.into(), &2.into()));
    assert_eq!(weight("odd")["min"], 0.5);
    assert_eq!(weight("again")["equals"], "big");
    let w = weight("w");
    assert_eq!((&w["encoding"], &w["stored_dtype"]), (&"blockwise".into(), &"int8".into()));
    assert_eq!((&w["bytes"], &w["max"]), (&(48 + 16).into(), &24.0.into()));
    let table = text(&["inspect", s(&model), "--weights"]);
    assert!(table.contains("1 beyond fp16") && table.contains("equals big"), "{table}");
    let seen = json(&["inspect", s(&model)]);
    let main = &seen["functions"][0];
    assert_eq!(main["duplicate_weights"]["count"], 1);
    assert_eq!(main["parameters"], 12 * 3 + 48);
}

#[test]
fn functions_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let model = package(folder.path(), "x", WEIGHTS);
    let svg = folder.path().join("g.svg");
    text(&["inspect", s(&model), "--graph", s(&svg)]);
    let picture = fs::read_to_string(&svg).unwrap();
    assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"));
    assert_eq!(picture.matches("<rect").count(), 1 + 1 + 4 + 1, "a box for each op, input, output");
    let dot = folder.path().join("g.dot");
    text(&["inspect", s(&model), "--graph", s(&dot)]);
    let picture = fs::read_to_string(&dot).unwrap();
    assert!(picture.starts_with("digraph") && picture.matches("->").count() == 5, "{picture}");
    let refused = russet(&["inspect", s(&model), "--graph", s(&folder.path().join("g.png"))]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains(".svg"), "{}", refused.stderr);
}

#[test]
fn without_its_weight_file_a_package_still_says_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let model = package(folder.path(), "x", WEIGHTS);
    fs::remove_file(model.join("Data/com.apple.CoreML/weights/weight.bin")).unwrap();
    let seen = json(&["inspect", s(&model)]);
    assert!(seen["weights_absent"].as_str().expect("said").contains("weight.bin"));
    assert_eq!(seen["functions"][0]["n_ops"], 4);
    let apple = text(&["inspect", s(&model), "--text"]);
    let again = folder.path().join("again.mil");
    fs::write(&again, &apple).unwrap();
    assert_eq!(text(&["inspect", s(&again), "--text"]), apple);
    let out = folder.path().join("y.mlpackage");
    for arguments in [
        vec!["run", s(&model)],
        vec!["inspect", s(&model), "--weights"],
        vec!["compile", s(&model), "-o", s(&out)],
    ] {
        let refused = russet(&arguments);
        assert_eq!(refused.code, Some(2), "{arguments:?}");
        assert!(refused.stderr.contains("weight.bin"), "{}", refused.stderr);
    }
    assert!(!out.exists());
}

const COUNTER: &str = "program ios18
func main(%x: fp16[2], %sum: state<fp16[2]>) {
  %before = read_state(input=%sum)
  %more = add(x=%before, y=%x)
  write_state(input=%sum, data=%more)
  %y = read_state(input=%sum)
} -> %y
";

#[test]
fn states_are_kept_from_call_to_call() {
    let folder = tempfile::tempdir().unwrap();
    let model = package(folder.path(), "x", COUNTER);
    let seen = json(&["inspect", s(&model)]);
    assert_eq!(seen["functions"][0]["states"][0]["type"], "state<fp16[2]>");
    let input = |name: &str, x: [f32; 2]| {
        let file = folder.path().join(name);
        arrays::write(&file, &[("x".into(), Tensor::f32(vec![2], &x))]).unwrap();
        file
    };
    let (a, b) = (input("a.npz", [1.0, 2.0]), input("b.npz", [10.0, 20.0]));
    let kept = folder.path().join("kept.npz");
    let seen = json(&["run", s(&model), "--inputs", s(&a), s(&b), "--save-states", s(&kept)]);
    assert_eq!(seen["runs"][0]["outputs"][0]["values"], serde_json::json!([1.0, 2.0]));
    assert_eq!(seen["runs"][1]["outputs"][0]["values"], serde_json::json!([11.0, 22.0]));
    let seen = json(&["run", s(&model), "--inputs", s(&a), "--states", s(&kept)]);
    assert_eq!(seen["runs"][0]["outputs"][0]["values"], serde_json::json!([12.0, 24.0]));
    // A compiled package keeps its states.
    let out = folder.path().join("y.mlpackage");
    text(&["compile", s(&model), "-o", s(&out)]);
    let seen = json(&["run", s(&out), "--inputs", s(&a), s(&b)]);
    assert_eq!(seen["runs"][1]["outputs"][0]["values"], serde_json::json!([11.0, 22.0]));
}

#[test]
fn labels_have_names() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("x.mil");
    fs::write(
        &model,
        "program(1.3)
{
    func main<ios18>(tensor<fp32, [3]> x) {
            string label, dict<string, fp64> all = classify(probabilities = x, classes = \
             list<string, 3>([\"cat\", \"dog\", \"fox\"]))[name = string(\"label\")];
        } -> (label, all);
}
",
    )
    .unwrap();
    let file = folder.path().join("in.npz");
    arrays::write(&file, &[("x".into(), Tensor::f32(vec![3], &[0.1, 0.7, 0.2]))]).unwrap();
    let out = folder.path().join("out.npz");
    let seen = json(&["run", s(&model), "--inputs", s(&file), "-o", s(&out)]);
    assert_eq!(seen["runs"][0]["labels"]["label"], "dog");
    let saved = arrays::read(&out).unwrap();
    assert_eq!(saved.iter().find(|a| a.0 == "label").unwrap().1.to_i64(), Some(vec![1]));
}

#[test]
fn pipelines_hand_features_on() {
    use russet_formats::mlpackage::proto;
    let folder = tempfile::tempdir().unwrap();
    let stage = |name: &str, text: &str| {
        let package = package(folder.path(), name, text);
        mlpackage::read(&package).unwrap().source.model.clone()
    };
    let first = stage("a", "program ios15\nfunc main(%x: fp32[3]) { %h = add(x=%x, y=%x) } -> %h");
    let second = stage("b", "program ios15\nfunc main(%h: fp32[3]) { %y = square(x=%h) } -> %y");
    let description = |input: &proto::Model, output: &proto::Model| {
        let of = |m: &proto::Model| m.description.clone().unwrap();
        Some(proto::ModelDescription {
            input: of(input).input,
            output: of(output).output,
            ..Default::default()
        })
    };
    let model = proto::Model {
        specification_version: 6,
        description: description(&first, &second),
        pipeline: Some(proto::Pipeline { models: vec![first, second], ..Default::default() }),
        ..Default::default()
    };
    let path = folder.path().join("p.mlmodel");
    fs::write(&path, prost::Message::encode_to_vec(&model)).unwrap();
    let file = folder.path().join("in.npz");
    arrays::write(&file, &[("x".into(), Tensor::f32(vec![3], &[1.0, 2.0, -3.0]))]).unwrap();
    let seen = json(&["run", s(&path), "--inputs", s(&file)]);
    assert_eq!(seen["runs"][0]["outputs"][0]["values"], serde_json::json!([4.0, 16.0, 36.0]));
    let seen = json(&["inspect", s(&path)]);
    assert_eq!(
        (&seen["content"], seen["stages"].as_array().map(Vec::len)),
        (&"pipeline".into(), Some(2))
    );
    assert!(text(&["inspect", s(&path), "--stage", "1", "--text"]).contains("square"));
    let refused = russet(&["inspect", s(&path), "--stage", "7"]);
    assert_eq!(refused.code, Some(2));
}

#[test]
fn every_function_is_proven() {
    let folder = tempfile::tempdir().unwrap();
    let model = package(
        folder.path(),
        "x",
        "program ios18
func main(%x: fp32[2, 4]) { %y = relu(x=%x) } -> %y
func other(%a: fp32[3, 5]) { %b = tanh(x=%a) } -> %b
",
    );
    let out = folder.path().join("y.mlpackage");
    let seen = json(&["compile", s(&model), "-o", s(&out)]);
    let proven: Vec<&str> = seen["proven"]
        .as_array()
        .expect("proofs")
        .iter()
        .filter_map(|p| p["function"].as_str())
        .collect();
    assert_eq!(proven, ["main", "other"]);
    let run = json(&["run", s(&out), "--function", "other"]);
    assert_eq!(run["runs"][0]["outputs"][0]["name"], "b");
}
