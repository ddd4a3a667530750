//! Small ONNX models against what ONNX Runtime computes for them: each `NAME.onnx` beside a
//! `NAME.npz` with its inputs and outputs, made by the scripts `bench/onnx_contrib.py` (every op of
//! com.microsoft) and `bench/onnx_exports.py` (whole transformers).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use russet_exec::{Arithmetic, Array, Numbers, Session};
use russet_formats::{Error, arrays, huggingface, onnx};
use russet_ir::{Program, verify_program};
use russet_passes::{Inputs, compile, pipeline, random_inputs};
use russet_testing::repository;

/// How far an output may be from ONNX Runtime's, relative to its largest number.
struct Bound {
    floats: f32,
    /// Of integers, which are counts of a step.
    steps: i32,
}

#[test]
fn ops_of_com_microsoft_compute_what_onnx_runtime_does() {
    let bound = Bound { floats: 2e-5, steps: 1 };
    let n = all(&repository("crates/testing/data/onnx_contrib"), |_| &bound);
    assert!(n >= 165, "{n} cases are left");
}

#[test]
fn exported_transformers_compute_what_onnx_runtime_does() {
    let exact = Bound { floats: 1e-5, steps: 0 };
    // An activation that falls on the other side of a step is another number.
    let stepped = Bound { floats: 1e-3, steps: 1 };
    let rounds = |name: &str| ["_dynamic", "_qdq", "_qoperator"].iter().any(|k| name.ends_with(k));
    let bound = |name: &str| if rounds(name) { &stepped } else { &exact };
    assert_eq!(all(&exports(), bound), 22);
}

fn exports() -> PathBuf {
    repository("crates/testing/data/onnx_exports")
}

/// Ops by name after every pass, each rewrite proven.
fn compiled(mut program: Program) -> BTreeMap<String, usize> {
    let inputs: Inputs = program
        .functions
        .iter()
        .map(|g| (g.name.clone(), random_inputs(g, 7, 8).expect("small inputs")))
        .collect();
    let passes = pipeline(russet_passes::Options { opset: program.opset });
    compile(&mut program, &passes, &inputs, &mut |_| {}).expect("a proof of every rewrite");
    assert_eq!(verify_program(&program), []);
    let mut ops = BTreeMap::new();
    let main = &program.functions[0];
    main.nodes().for_each(|(_, n)| *ops.entry(n.op.name().to_owned()).or_default() += 1);
    ops
}

fn imported(name: &str) -> Program {
    let file = exports().join(format!("{name}.onnx"));
    onnx::load(&file, &onnx::Options::default()).expect("a model that is read").program
}

/// What the ops of the Neural Engine's form are.
const FORM: [&str; 12] = [
    "conv",
    "linear",
    "matmul",
    "softmax",
    "layer_norm",
    "gelu",
    "transpose",
    "split",
    "concat",
    "erf",
    "real_div",
    "scaled_dot_product_attention",
];

#[test]
fn exported_encoders_take_the_form_of_the_folder_they_are_of() {
    let options = huggingface::Options { lengths: vec![8], ..huggingface::Options::default() };
    let folder = repository("crates/testing/data/families/bert");
    let source = huggingface::load(&folder, &options).expect("an encoder");
    let form = |ops: &BTreeMap<String, usize>| FORM.map(|op| *ops.get(op).unwrap_or(&0));
    let want = form(&compiled(source.program));
    // Two layers of six linear ones, four heads; turned once at the beginning, once at the end.
    assert_eq!(want, [12, 0, 16, 8, 5, 2, 2, 6, 2, 0, 0, 0]);
    for name in ["bert_legacy", "bert_dynamo", "bert_sdpa_dynamo", "bert_fused"] {
        assert_eq!(form(&compiled(imported(name))), want, "{name}");
    }
}

#[test]
fn norms_activations_and_attention_of_exports_are_recognised() {
    // By model: norms (of both kinds), gelu, silu, attention by heads (a softmax each), as one op.
    let models = [
        ("vit_legacy", [5, 2, 0, 8, 0]),
        ("vit_dynamo", [5, 2, 0, 8, 0]),
        ("gpt2_legacy", [5, 2, 0, 8, 0]),
        ("gpt2_dynamo", [5, 2, 0, 8, 0]),
        ("gpt2_fused", [5, 2, 0, 8, 0]),
        ("whisper_encoder_legacy", [5, 4, 0, 8, 0]),
        ("whisper_encoder_dynamo", [5, 4, 0, 8, 0]),
        ("llama_legacy", [5, 0, 2, 0, 2]),
        ("llama_dynamo", [5, 0, 2, 0, 2]),
        ("llama_legacy_4bit", [5, 0, 2, 0, 2]),
        ("bert_opset14", [5, 2, 0, 8, 0]),
    ];
    for (name, want) in models {
        let ops = compiled(imported(name));
        let n = |op: &str| *ops.get(op).unwrap_or(&0);
        let norms = n("layer_norm") + n("rsqrt");
        let attention = n("scaled_dot_product_attention");
        assert_eq!([norms, n("gelu"), n("silu"), n("softmax"), attention], want, "{name}");
        let written_out = ["erf", "tanh", "pow", "sqrt", "sigmoid"].map(n);
        assert_eq!(written_out, [0; 5], "{name}");
    }
}

#[test]
fn quantized_weights_stay_compressed() {
    // By model, the weights of its products.
    let models = [
        ("bert_legacy_dynamic", 12),
        ("bert_legacy_qdq", 13),
        ("bert_legacy_qoperator", 12),
        ("conv_dynamic", 4),
        ("conv_qdq", 4),
        ("conv_qoperator", 4),
        ("llama_legacy_4bit", 15),
    ];
    for (name, least) in models {
        let ops = compiled(imported(name));
        let decoded: usize =
            ops.iter().filter(|(op, _)| op.starts_with("constexpr_")).map(|(_, n)| n).sum();
        assert!(decoded >= least, "{name}: {decoded} compressed weights, not {least}");
    }
}

/// Runs every model of a folder; the names of all that fail, at once.
fn all<'b>(folder: &Path, bound: impl Fn(&str) -> &'b Bound) -> usize {
    let mut models: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|e| e.expect("an entry").path())
        .filter(|p| p.extension().is_some_and(|e| e == "onnx"))
        .collect();
    models.sort();
    let mut failed = Vec::new();
    for model in &models {
        let name = model.file_stem().expect("a name").to_string_lossy();
        if let Err(why) = run(model, bound(&name)) {
            failed.push(format!("{name}: {why}"));
        }
    }
    assert!(failed.is_empty(), "{} of {} fail\n{}", failed.len(), models.len(), failed.join("\n"));
    models.len()
}

fn run(model: &Path, bound: &Bound) -> Result<(), String> {
    let source = onnx::load(model, &onnx::Options::default()).map_err(|e| match e {
        Error::Nodes { findings, .. } => format!("{findings:?}"),
        e => e.to_string(),
    })?;
    if let Some(first) = verify_program(&source.program).first() {
        return Err(first.to_string());
    }
    let graph = &source.program.functions[0];
    let session = Session::new(graph, Arithmetic::F32).map_err(|e| e.to_string())?;
    let golden = arrays::read(&model.with_extension("npz")).map_err(|e| e.to_string())?;
    let of = |kind: &str| -> BTreeMap<String, Array> {
        let named = golden.iter().filter_map(|(n, t)| Some((n.strip_prefix(kind)?, t)));
        named.map(|(n, t)| (n.to_owned(), Array::from_tensor(t).expect("numbers"))).collect()
    };
    let (inputs, expected) = (of("in."), of("out."));
    let made = session.run(&inputs).map_err(|e| e.to_string())?;
    if expected.is_empty() {
        return Err("nothing is expected of it".into());
    }
    for (name, want) in &expected {
        let found = made.get(name).ok_or_else(|| format!("there is no output {name}"))?;
        near(found, want, bound).map_err(|why| format!("{name}: {why}"))?;
    }
    Ok(())
}

fn near(found: &Array, want: &Array, bound: &Bound) -> Result<(), String> {
    if found.shape != want.shape {
        return Err(format!("shape {:?}, not {:?}", found.shape, want.shape));
    }
    match (&found.data, &want.data) {
        (Numbers::F32(a), Numbers::F32(b)) => {
            let largest = b.iter().fold(0f32, |m, x| m.max(x.abs()));
            let far = a
                .iter()
                .zip(b)
                .map(|(x, y)| (x - y).abs())
                .fold(0f32, |m, d| if d.is_nan() { f32::INFINITY } else { m.max(d) });
            match far <= bound.floats * largest.max(1e-6) {
                true => Ok(()),
                false => Err(format!("it is {:.1e} away", far / largest.max(1e-6))),
            }
        }
        (Numbers::I32(a), Numbers::I32(b)) => {
            let far = a.iter().zip(b).map(|(x, y)| x.abs_diff(*y)).max().unwrap_or(0);
            match far <= bound.steps.unsigned_abs() {
                true => Ok(()),
                false => Err(format!("it is {far} steps away")),
            }
        }
        _ => Err("it is of another type".into()),
    }
}
