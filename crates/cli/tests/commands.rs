//! Every command on tiny models: what it prints, what it writes, and that both stay as they are.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{command, family, finish, json, listing, russet, text};
use russet_formats::arrays;
use russet_formats::mlpackage::{
    self, Array, Description, Feature, FunctionDescription, Kind, Shapes,
};
use russet_ir::{DType, Tensor};

const FAMILIES: [&str; 4] = ["bert", "roberta", "distilbert", "mpnet"];

fn s(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

/// Compiles without proof and returns the package.
fn compiled(source: &Path, folder: &Path, name: &str, more: &[&str]) -> PathBuf {
    let out = folder.join(format!("{name}.mlpackage"));
    let arguments = ["compile", s(source), "-o", s(&out), "--no-proof"];
    text(&[&arguments[..], more].concat());
    out
}

#[test]
fn help_and_completions_are_printed() {
    let help = text(&["--help"]);
    for name in ["compile", "inspect", "run", "compare", "simulate", "bench", "demo"] {
        assert!(help.contains(name), "{help}");
        assert!(text(&[name, "--help"]).contains("Usage: russet"));
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(text(&["completions", shell]).contains("compile"));
    }
    assert!(text(&["--version"]).starts_with("russet "));
    let none: [&str; 0] = [];
    assert_eq!(russet(&none).code, Some(2));
}

#[test]
fn every_family_compiles_for_every_opset() {
    let folder = tempfile::tempdir().unwrap();
    for name in FAMILIES {
        for opset in ["ios15", "ios16", "ios17", "ios18"] {
            for lengths in ["16", "8,16"] {
                let out = compiled(
                    &family(name),
                    folder.path(),
                    "x",
                    &["--opset", opset, "--seq", lengths, "--pooling", "mean"],
                );
                let seen = json(&["inspect", s(&out)]);
                assert_eq!(seen["opset"], opset, "{name}");
                assert_eq!(seen["findings"].as_array().map(Vec::len), Some(0), "{name}");
                let main = &seen["functions"][0];
                let inputs = main["inputs"].as_array().expect("inputs");
                // Before iOS 18 only one input may have enumerated shapes.
                let ids_only = opset != "ios18" && lengths == "8,16";
                assert_eq!(inputs.len(), if ids_only { 1 } else { 2 }, "{name} {opset} {lengths}");
                assert_eq!(main["outputs"].as_array().map(Vec::len), Some(2));
                // Runs, and as its source does.
                let shapes = if ids_only { "8,16" } else { "16" };
                if ids_only || lengths == "16" {
                    let source = family(name);
                    let mut arguments = vec!["compare", s(&source), s(&out), "--seq", shapes];
                    arguments.extend(["--pooling", "mean", "--require", "0.9999"]);
                    if !ids_only {
                        text(&arguments);
                    }
                }
            }
        }
    }
}

#[test]
fn compiling_is_proven_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    for name in FAMILIES {
        let out = folder.path().join("x.mlpackage");
        let (source, target) = (family(name), s(&out));
        let account = json(&["compile", s(&source), "-o", target, "--seq", "8,16"]);
        assert_eq!(account["schema"], "russet.compile/1");
        assert_eq!(account["opset"], "ios18");
        let rewrites = account["rewrites"].as_array().expect("rewrites");
        assert!(rewrites.iter().any(|r| r["pass"] == "linear-to-conv"));
        assert!(rewrites.iter().all(|r| r["distance"].is_number()), "one was not run");
        let proven = account["proven"].as_array().expect("proofs");
        assert_eq!(proven.len(), 2, "one for each length");
        for at in proven {
            let cosine = &at["outputs"]["last_hidden_state"]["f32"]["cosine"];
            assert!(cosine.as_f64().expect("a number") > 0.9999, "{name}: {cosine}");
        }
        assert_eq!(account["predictions"].as_array().map(Vec::len), Some(2));
    }
    let out = folder.path().join("y.mlpackage");
    let account = text(&["compile", s(&family("bert")), "-o", s(&out), "--verbose"]);
    for line in ["Read ", "Rewrote ", "Proved ", "Wrote ", "Predicted ", "Took "] {
        assert!(account.contains(&format!("\n{line}")) || account.starts_with(line), "{account}");
    }
}

#[test]
fn equal_sources_give_equal_packages() {
    let folder = tempfile::tempdir().unwrap();
    for (name, more) in [("bert", &["--seq", "8,16"][..]), ("mpnet", &[][..])] {
        let bytes = |out: &Path| -> Vec<(PathBuf, Vec<u8>)> {
            let files = listing(out).into_iter().filter(|(p, _)| p.is_file());
            let inside =
                |p: PathBuf| (p.strip_prefix(out).unwrap().to_owned(), fs::read(&p).unwrap());
            files.map(|(p, _)| inside(p)).collect()
        };
        let first = bytes(&compiled(&family(name), folder.path(), "a", more));
        assert_eq!(first.len(), 3);
        assert!(first == bytes(&compiled(&family(name), folder.path(), "b", more)), "{name}");
        // What is there is replaced, by the same.
        assert!(first == bytes(&compiled(&family(name), folder.path(), "a", more)), "{name}");
    }
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 2, "something else is left");
}

#[test]
fn a_package_compiles_again_and_onto_itself() {
    let folder = tempfile::tempdir().unwrap();
    let first = compiled(&family("bert"), folder.path(), "a", &["--seq", "16"]);
    let second = folder.path().join("b.mlpackage");
    let account = json(&["compile", s(&first), "-o", s(&second)]);
    assert_eq!(account["rewrites"].as_array().map(Vec::len), Some(0), "{}", account["rewrites"]);
    text(&["compare", s(&first), s(&second), "--require", "1"]);
    let onto = json(&["compile", s(&first), "-o", s(&first)]);
    assert_eq!(onto["weight_bytes"], account["weight_bytes"]);
    text(&["compare", s(&first), s(&second), "--require", "1"]);
}

#[test]
fn a_package_becomes_a_compiled_model_of_the_same_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let package = compiled(&family("bert"), folder.path(), "a", &["--seq", "8,16"]);
    let out = folder.path().join("a.mlmodelc");
    let account = json(&["compile", s(&package), "-o", s(&out)]);
    assert_eq!(account["schema"], "russet.convert/1");
    assert!(account["n_weights"].as_u64() > Some(10));
    text(&["compare", s(&package), s(&out), "--require", "0.9999999"]);
    assert!(text(&["inspect", s(&out)]).contains("function main"));
    // And back: the same program, through every pass.
    let again = folder.path().join("b.mlpackage");
    text(&["compile", s(&out), "-o", s(&again), "--no-proof"]);
    text(&["compare", s(&package), s(&again), "--require", "0.9999999"]);
    for (arguments, wanted) in [
        (
            ["compile", s(&package), "-o", s(&out), "--passes", "to-fp16"],
            "--passes changes a model",
        ),
        (["compile", s(&package), "-o", s(&out), "--opset", "ios17"], "--opset changes a model"),
    ] {
        let refused = russet(&arguments);
        assert_eq!(refused.code, Some(2));
        assert!(refused.stderr.contains(wanted), "{}", refused.stderr);
    }
}

#[test]
fn inspect_shows_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let out = compiled(&family("bert"), folder.path(), "x", &[]);
    for (model, kind) in [(family("bert"), "huggingface"), (out, "mlpackage")] {
        let seen = json(&["inspect", s(&model)]);
        assert_eq!(seen["schema"], "russet.inspect/2");
        assert_eq!(seen["source"]["kind"], kind);
        assert_eq!(seen["functions"][0]["name"], "main");
        assert!(seen["functions"][0]["n_ops"].as_u64() > Some(10));
        assert!(text(&["inspect", s(&model)]).contains("function main"));
        let program = text(&["inspect", s(&model), "--text"]);
        match kind {
            // Apple's own syntax of what is Apple's, ours of what is not yet.
            "mlpackage" => {
                assert!(program.starts_with("program(1.") && program.contains("func main<ios"))
            }
            _ => assert!(program.starts_with("program ios") && program.contains("func main(")),
        }
        assert_eq!(json(&["inspect", s(&model), "--text"])["text"], program);
    }
}

#[test]
fn arrays_go_in_and_out_in_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let source = family("bert");
    let golden = arrays::read(&source.join("golden.npz")).unwrap();
    let given: Vec<_> = golden.iter().filter(|(n, _)| n != "last_hidden_state").cloned().collect();
    let expected = &golden.iter().find(|(n, _)| n == "last_hidden_state").unwrap().1;
    let shape = format!("input_ids={}x{}", expected.shape[0], expected.shape[1]);
    let mut files = Vec::new();
    for (i, ending) in ["npz", "safetensors"].iter().enumerate() {
        let (input, output) = (
            folder.path().join(format!("in.{ending}")),
            folder.path().join(format!("o{i}.{ending}")),
        );
        arrays::write(&input, &given).unwrap();
        let arguments = ["run", s(&source), "--shapes", &shape, "--inputs", s(&input)];
        let seen = json(&[&arguments[..], &["-o", s(&output)]].concat());
        assert_eq!(seen["schema"], "russet.run/1");
        assert_eq!(seen["arithmetic"], "f32");
        assert_eq!(seen["saved"], s(&output));
        files.push(output);
    }
    // A single input as `.npy`, a single output to `.npy`.
    let ids = folder.path().join("ids.npy");
    let one = compiled(&family("bert"), folder.path(), "x", &["--opset", "ios17", "--seq", "8,16"]);
    let (_, tensor) = &given[0];
    arrays::write(&ids, &[("ids".into(), tensor.rows(0, 1))]).unwrap();
    let out = folder.path().join("o.npy");
    text(&["run", s(&one), "--inputs", s(&ids), "-o", s(&out), "--arithmetic", "ane"]);
    assert_eq!(arrays::read(&out).unwrap()[0].1.shape, [1, tensor.shape[1], 32]);
    for file in files {
        let made = arrays::read(&file).unwrap();
        assert_eq!((made.len(), made[0].0.as_str()), (1, "last_hidden_state"));
        let far = made[0].1.to_f32().into_iter().zip(expected.to_f32());
        assert!(far.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) < 1e-4, "{}", file.display());
    }
}

#[test]
fn an_input_with_a_default_may_be_left_out() {
    let program =
        "program ios16 func main(%x: fp32[2], %b: fp32[2]) { %y = add(x=%x, y=%b) } -> %y";
    let program = russet_ir::text::parse(program).unwrap();
    let array =
        Array { dtype: DType::F32, shape: vec![2], flexible: Shapes::Fixed, default: Some(-1.5) };
    let (name, text) = ("b".to_owned(), String::new());
    let optional = Feature { name, text, optional: true, kind: Kind::Array(array) };
    let main = FunctionDescription {
        name: "main".into(),
        inputs: vec![optional],
        ..FunctionDescription::default()
    };
    let folder = tempfile::tempdir().unwrap();
    let [package, given, made] = ["m.mlpackage", "in.npz", "y.npy"].map(|n| folder.path().join(n));
    mlpackage::write(&program, &Description { functions: vec![main] }, &package).unwrap();
    let run = |arrays: &[(String, Tensor)]| {
        arrays::write(&given, arrays).unwrap();
        json(&["run", s(&package), "--inputs", s(&given), "-o", s(&made)]);
        arrays::read(&made).unwrap()[0].1.to_f32()
    };
    let x = ("x".to_owned(), Tensor::f32(vec![2], &[1.0, 2.0]));
    let b = ("b".to_owned(), Tensor::f32(vec![2], &[10.0, 20.0]));
    assert_eq!(run(std::slice::from_ref(&x)), [-0.5, 0.5]);
    assert_eq!(run(&[x, b.clone()]), [11.0, 22.0]);
    arrays::write(&given, &[b]).unwrap();
    let refused = russet(&["run", s(&package), "--inputs", s(&given)]);
    assert_eq!(refused.code, Some(2), "`x` has no default");
}

#[test]
fn compare_names_ops_and_keeps_its_word() {
    let folder = tempfile::tempdir().unwrap();
    let source = family("distilbert");
    let out = compiled(&source, folder.path(), "x", &["--seq", "16"]);
    let base = ["compare", s(&source), s(&out), "--seq", "16", "--arithmetic-b", "ane"];
    let seen = json(&[&base[..], &["--per-op", "--require", "0.99"]].concat());
    assert_eq!(seen["schema"], "russet.compare/1");
    assert_eq!(seen["outputs"][0]["name"], "last_hidden_state");
    assert!(!seen["ops"].as_array().expect("ops").is_empty());
    // One model in two arithmetics: what each op adds is known.
    let alone = json(&["compare", s(&out), "--per-op", "--top", "3"]);
    let ops = alone["ops"].as_array().expect("ops");
    assert!(ops.iter().any(|op| op["op"] == "conv" && op["own_relative_l2"].is_number()));
    assert_eq!(alone["first_broken"], serde_json::Value::Null);
    let told = text(&["compare", s(&out), "--per-op"]);
    assert!(told.contains("conv") && told.contains("no op breaks"), "{told}");
    // No cosine is above one.
    let done = russet(&[&base[..], &["--require", "1.01"]].concat());
    assert_eq!((done.code, done.stderr.as_str()), (Some(1), ""));
    assert!(done.stdout.contains("last_hidden_state"));
}

#[test]
fn simulate_and_bench_say_for_what() {
    let folder = tempfile::tempdir().unwrap();
    let out = compiled(&family("bert"), folder.path(), "x", &["--seq", "8,16"]);
    for model in [family("bert"), out.clone()] {
        let seen = json(&["simulate", s(&model), "--chip", "m3"]);
        assert_eq!(seen["schema"], "russet.simulate/1");
        let predictions = seen["predictions"].as_array().expect("predictions");
        assert!(predictions.iter().all(|p| p["latency_s"].as_f64() > Some(0.0)));
        assert!(predictions.iter().all(|p| p["is_prediction"] == true));
        assert!(text(&["simulate", s(&model)]).contains("(a prediction)"));
    }
    let seen = json(&["bench", s(&out), "--runs", "2", "--threads", "1"]);
    assert_eq!(seen["schema"], "russet.bench/1");
    let results = seen["results"].as_array().expect("results");
    assert_eq!(results.len(), 2);
    assert!(results.iter().all(|r| r["p50_s"].as_f64() > Some(0.0) && r["runs"] == 2));
    assert!(text(&["bench", s(&out), "--runs", "1"]).contains("on this CPU"));
}

/// Without network and Python the demo runs on an encoder of its own, which has a tokenizer.
#[test]
fn the_demo_and_text_work_offline() {
    let folder = tempfile::tempdir().unwrap();
    let offline = |arguments: &[&str]| {
        let mut command = command(arguments);
        command.env("RUSSET_CACHE", folder.path().join("cache")).env("PATH", folder.path());
        command.env("HF_ENDPOINT", "http://127.0.0.1:9").env("HF_HOME", folder.path().join("hf"));
        let done = finish(&mut command);
        assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
        done.stdout
    };
    let out = folder.path().join("demo.mlpackage");
    let seen: serde_json::Value =
        serde_json::from_str(&offline(&["demo", "-o", s(&out), "--json"])).unwrap();
    assert_eq!(seen["schema"], "russet.demo/1");
    assert_eq!(seen["compile"]["schema"], "russet.compile/1");
    assert_eq!(seen["notes"].as_array().map(Vec::len), Some(2), "why not the hub, why not pip");
    for arithmetic in ["f32", "ane"] {
        assert_eq!(seen["similarity"][arithmetic][0].as_array().map(Vec::len), Some(5));
    }
    let encoder = seen["model"].as_str().expect("a folder");
    let told = offline(&["demo", "-o", s(&out), "--model", encoder]);
    assert!(told.contains("cosine similarity in ane arithmetic") && told.contains("Next:"));
    let sentences = ["--text", "one two", "--text", "three", "--text", ""];
    let run = ["run", s(&out), "--tokenizer", encoder];
    let seen = json(&[&run[..], &sentences].concat());
    assert_eq!(seen["runs"].as_array().map(Vec::len), Some(3));
    assert_eq!(seen["runs"][0]["text"], "one two");
    let similarity = seen["similarity"][0][0].as_f64().expect("a number");
    assert!((similarity - 1.0).abs() < 1e-6);
    // The folder itself has its tokenizer beside it.
    let seen = json(&["run", encoder, "--text", "one two", "--seq", "32"]);
    assert_eq!(seen["runs"].as_array().map(Vec::len), Some(1));
}
