//! `russet run` on a pipeline: its stages one after another, features handed on by name.

use std::collections::BTreeMap;

use russet_exec::{Array, Session};
use russet_formats::arrays;
use russet_formats::container::{Container, Content, Stage};
use russet_ir::{DType, Graph, Tensor, Type};
use russet_passes::random_inputs;
use serde_json::json;

use crate::diagnostic::{Failure, Outcome};
use crate::inputs::{self, Inputs};
use crate::progress::Progress;
use crate::run::{Arguments, Outputs, output_json, outputs, summary};
use crate::show::{Out, path};

/// Length of what has no default, in made-up inputs.
const LENGTH: u64 = 128;

/// Runs the stages of `pipeline` on one set of inputs and shows what callers of it see.
pub fn command(
    args: &Arguments,
    pipeline: &Container,
    out: &Out,
    progress: &Progress,
) -> Outcome<()> {
    let refused = [
        ("--function", args.function.is_some()),
        ("--text", !args.source.text.is_empty()),
        ("--states", args.states.is_some() || args.save_states.is_some()),
        ("several --inputs", args.source.inputs.len() > 1),
    ];
    if let Some((option, _)) = refused.iter().find(|r| r.1) {
        let message = format!("{option} is not for a pipeline");
        return Err(Failure::usage(message).in_file(&args.model));
    }
    let mut stages = Vec::new();
    flatten(pipeline, &mut stages);
    let mut features = match args.source.inputs.first() {
        Some(file) => inputs::named(file)?,
        None => Inputs::new(),
    };
    let mut dtypes = BTreeMap::new();
    for (i, stage) in stages.iter().enumerate() {
        progress.stage(&format!("running stage {} of {}: {}", i + 1, stages.len(), stage.name));
        let graph = graph(args, stage)?;
        let given = stage_inputs(args, graph, &features)?;
        let session = Session::new(graph, args.arithmetic.chosen()?.get())?;
        let made = outputs(&session, &given).map_err(|f| f.at(format!("stage {}", stage.name)))?;
        for (&v, (name, array)) in graph.outputs().iter().zip(made) {
            dtypes.insert(name.clone(), graph.ty(v).tensor().map_or(DType::F32, |t| t.dtype));
            features.insert(name, array);
        }
    }
    progress.done();
    // What callers see; everything that was made when the pipeline does not say.
    let described = pipeline.description.functions.iter().flat_map(|f| &f.outputs);
    let mut names: Vec<String> = described.map(|f| f.name.clone()).collect();
    names.retain(|name| features.contains_key(name));
    if names.is_empty() {
        names = dtypes.keys().cloned().collect();
    }
    let made: Outputs =
        names.into_iter().filter_map(|n| Some((n.clone(), features.remove(&n)?))).collect();
    if let Some(file) = &args.output {
        arrays::write(file, &tensors(&made, &dtypes)?)?;
    }
    let mut text = summary(&made);
    if args.source.is_made_up() {
        text += &format!("(on made-up inputs, seed {})\n", args.source.seed);
    }
    let json = json!({
        "schema": "russet.run/1",
        "model": path(&args.model),
        "arithmetic": args.arithmetic.chosen()?.name(),
        "stages": stages.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(),
        "runs": [{
            "outputs": made.iter().map(|(name, a)| output_json(name, a)).collect::<Vec<_>>(),
        }],
        "saved": args.output.as_deref().map(path),
    });
    out.result(json, &text)
}

/// The stages, those of pipelines within among them.
fn flatten<'c>(container: &'c Container, all: &mut Vec<&'c Stage>) {
    for stage in container.stages() {
        match stage.container.stages() {
            [] => all.push(stage),
            _ => flatten(&stage.container, all),
        }
    }
}

/// The function of a stage, if it is one that can be run.
fn graph<'c>(args: &Arguments, stage: &'c Stage) -> Outcome<&'c Graph> {
    let refuse =
        |message: String| Err(Failure::new("not-an-ml-program", message).in_file(&args.model));
    match &stage.container.content {
        Content::Program(package) => {
            if let Some((file, wanted)) = &package.absent {
                let message = format!("{wanted} is not there");
                return Err(Failure::new("not-found", message).in_file(file));
            }
            match package.program.functions.first() {
                Some(graph) => Ok(graph),
                None => refuse(format!("stage `{}` has no function", stage.name)),
            }
        }
        Content::Network(n) => refuse(format!("stage `{}` is a {}", stage.name, n.kind)),
        Content::Other(kind) => refuse(format!("stage `{}` is a {kind}", stage.name)),
        Content::Pipeline(_) => refuse(format!("stage `{}` is empty", stage.name)),
    }
}

/// What a stage reads: features that are there; the others made up, when all are.
fn stage_inputs(args: &Arguments, graph: &Graph, features: &Inputs) -> Outcome<Inputs> {
    let mut given = match args.source.is_made_up() {
        true => random_inputs(graph, args.source.seed, LENGTH)?,
        false => Inputs::new(),
    };
    for &v in graph.inputs().iter().filter(|&&v| !matches!(graph.ty(v), Type::State(_))) {
        let name = &graph.value(v).name;
        if let Some(array) = features.get(name) {
            given.insert(name.clone(), array.clone());
        }
    }
    Ok(given)
}

fn tensors(
    made: &[(String, Array)],
    dtypes: &BTreeMap<String, DType>,
) -> Outcome<Vec<(String, Tensor)>> {
    let tensor = |(name, array): &(String, Array)| {
        let dtype = dtypes.get(name).copied().unwrap_or(DType::F32);
        let tensor = array.to_tensor(dtype).ok_or_else(|| {
            Failure::new("io", format!("output `{name}` cannot be saved as {dtype}"))
        })?;
        Ok((name.clone(), tensor))
    };
    made.iter().map(tensor).collect()
}
