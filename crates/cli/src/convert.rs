//! `russet compile PACKAGE -o OUT.mlmodelc`: the same model as Core ML loads it.
//!
//! Core ML compiles a package before it loads it, which takes a Mac or a phone and some time.
//! The compiled model is another container of the same program: no pass runs and nothing is
//! proven, since nothing changes.

use std::path::Path;
use std::time::Instant;

use russet_formats::{container, mlmodelc};
use serde_json::{Value, json};

use crate::compile::Arguments;
use crate::diagnostic::{Failure, Outcome};
use crate::model::is_package;
use crate::progress::Progress;
use crate::show::{Out, bytes, path, seconds};

/// Is a compiled model asked for?
pub fn is_compiled(output: &Path) -> bool {
    output.extension().is_some_and(|e| e == "mlmodelc")
}

/// Writes the compiled model; its account as JSON and as text.
pub fn produce(args: &Arguments, out: &Out) -> Outcome<(Value, String)> {
    let start = Instant::now();
    let refused = [
        ("--passes", !args.passes.is_empty()),
        ("--skip", !args.skip.is_empty()),
        ("--opset", args.opset.is_some()),
    ];
    if let Some((option, _)) = refused.iter().find(|r| r.1) {
        let message = format!("{option} changes a model; a compiled model is the same model");
        return Err(Failure::usage(message)
            .in_file(&args.output)
            .help("compile to a package first, and that to a `.mlmodelc`"));
    }
    if !is_package(&args.source) {
        if let Some(error) = container::foreign(&args.source) {
            return Err(error.into());
        }
        let message = "only a Core ML package or model file is compiled to a `.mlmodelc`";
        return Err(Failure::usage(message)
            .in_file(&args.source)
            .help("compile the model to a package first, and that to a `.mlmodelc`"));
    }
    let progress = Progress::new(out);
    progress.stage("writing the compiled model");
    let written = mlmodelc::write(&args.source, &args.output)?;
    progress.done();
    let s = start.elapsed().as_secs_f64();
    let size = written.text_bytes + written.weight_bytes;
    let text = format!(
        "Converted  {} as it is: no pass ran\nWrote      {}: {}, {} weights (not yet run on a Mac)\nTook       {}\n",
        args.source.display(),
        args.output.display(),
        bytes(size),
        written.n_weights,
        seconds(s)
    );
    let json = json!({
        "schema": "russet.convert/1",
        "source": path(&args.source),
        "output": path(&args.output),
        "text_bytes": written.text_bytes,
        "weight_bytes": written.weight_bytes,
        "n_weights": written.n_weights,
        "seconds": s,
    });
    Ok((json, text))
}
