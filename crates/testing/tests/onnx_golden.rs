//! Small ONNX models against what ONNX Runtime computes for them: each `NAME.onnx` beside a
//! `NAME.npz` with its inputs and outputs, made by the scripts `bench/onnx_contrib.py` (every op of
//! com.microsoft) and `bench/onnx_exports.py` (whole transformers).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use russet_exec::{Arithmetic, Array, Numbers, Session};
use russet_formats::{Error, arrays, onnx};
use russet_ir::verify_program;
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
