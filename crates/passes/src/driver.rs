//! Runs passes over a program: finds edits, proves them, applies them, keeps the account.

use std::collections::BTreeMap;
use std::sync::Arc;

use russet_exec::{Array, ExecError};
use russet_ir::{Change, Graph, NodeId, Op, OpError, Program, Value, verify};

use crate::proof::{Proof, distance};
use crate::{Pass, ProvenAt, Skip};

/// What a pass did at one place.
#[derive(Debug, Clone, PartialEq)]
pub struct Rewrite {
    pub pass: &'static str,
    /// The function and the value that was replaced.
    pub function: String,
    pub value: String,
    /// The source's name of the op.
    pub source: Option<Arc<str>>,
    /// Relative L2 distance of the two sides in f32; `None` when nothing was run.
    pub distance: Option<f64>,
}

/// What a pass wanted to do and did not.
#[derive(Debug, Clone, PartialEq)]
pub struct Skipped {
    pub pass: &'static str,
    pub function: String,
    pub value: String,
    pub why: Skip,
}

/// The account of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    pub rewrites: Vec<Rewrite>,
    pub skipped: Vec<Skipped>,
}

/// What stops a run: our own mistake, or inputs the program cannot run on.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PassError {
    #[error("pass `{pass}` moved `{value}` by {distance:e} (relative L2), it may by {bound:e}")]
    Unproven { pass: &'static str, value: String, distance: f64, bound: f64 },
    #[error("pass `{pass}` left the graph broken: {finding}")]
    Broken { pass: &'static str, finding: String },
    #[error("pass `{pass}` never came to rest on `{function}` within {sweeps} sweeps")]
    Restless { pass: &'static str, function: String, sweeps: usize },
    #[error("the program cannot be run to prove rewrites: {0}")]
    Run(#[from] ExecError),
    #[error("after pass `{pass}` the types no longer fit: {error}")]
    Types { pass: &'static str, error: Box<OpError> },
}

/// Sweeps after which a pass that still finds something is taken to be circling.
const SWEEPS_MAX: usize = 64;

/// Inputs by name, by function: what to prove on. A function without inputs here is rewritten
/// without proof.
pub type Inputs = BTreeMap<String, BTreeMap<String, Array>>;

/// Runs `passes` in order over every function of `program`.
///
/// Of a function that has `inputs`, every edit is run on both sides: an edit that moves a result
/// further than its pass may is an error, since it is ours. `progress` hears the name of each pass as it starts.
pub fn compile(
    program: &mut Program,
    passes: &[Box<dyn Pass>],
    inputs: &Inputs,
    progress: &mut dyn FnMut(&str),
) -> Result<Report, PassError> {
    let mut report = Report::default();
    let opset = program.opset;
    for graph in &mut program.functions {
        graph.remove_dead();
        let inputs = inputs.get(&graph.name);
        let mut proof = inputs.map(|i| Proof::new(graph, i)).transpose()?;
        for pass in passes {
            progress(pass.name());
            run_pass(graph, pass.as_ref(), proof.as_mut(), &mut report)?;
            if let Some(finding) = verify(graph, opset).into_iter().find(|f| f.code != "opset") {
                let finding = finding.to_string();
                return Err(PassError::Broken { pass: pass.name(), finding });
            }
        }
        crate::tidy_names(graph);
    }
    Ok(report)
}

/// Runs one pass over one function until it finds nothing more to do.
pub fn run_pass(
    graph: &mut Graph,
    pass: &dyn Pass,
    mut proof: Option<&mut Proof>,
    report: &mut Report,
) -> Result<(), PassError> {
    let tag: Arc<str> = pass.name().into();
    for _ in 0..SWEEPS_MAX {
        let mut changed = false;
        let mut skipped = Vec::new();
        for id in graph.all_nodes() {
            for i in 0..graph.node(id).outputs.len() {
                let v = graph.node(id).outputs[i];
                if !graph.is_listed(id) {
                    break;
                }
                let change = match pass.rewrite(graph, v) {
                    Ok(edit) => edit.finish(),
                    Err(why) => {
                        note(&mut skipped, graph, pass, v, why);
                        continue;
                    }
                };
                if let Some(inner) = graph.blocker(&change) {
                    let why = format!("%{} is used elsewhere", graph.value(inner).name);
                    note(&mut skipped, graph, pass, v, Skip::Blocked(why));
                    continue;
                }
                match apply(graph, pass, &tag, v, change, proof.as_deref_mut())? {
                    Ok(rewrite) => {
                        report.rewrites.push(rewrite);
                        changed = true;
                    }
                    Err(why) => note(&mut skipped, graph, pass, v, why),
                }
            }
        }
        if let Some(proof) = proof.as_deref_mut() {
            proof.retain_live(graph);
        }
        if !changed {
            report.skipped.extend(skipped);
            return Ok(());
        }
    }
    let function = graph.name.clone();
    Err(PassError::Restless { pass: pass.name(), function, sweeps: SWEEPS_MAX })
}

fn note(skipped: &mut Vec<Skipped>, graph: &Graph, pass: &dyn Pass, v: Value, why: Skip) {
    if why != Skip::NoMatch {
        let (function, value) = (graph.name.clone(), graph.value(v).name.clone());
        skipped.push(Skipped { pass: pass.name(), function, value, why });
    }
}

/// Makes the change and runs both sides. One whose sense shows at the outputs only (what looks like
/// a mask may be none) is taken back when they move.
fn apply(
    graph: &mut Graph,
    pass: &dyn Pass,
    tag: &Arc<str>,
    at: Value,
    change: Change,
    proof: Option<&mut Proof>,
) -> Result<Result<Rewrite, Skip>, PassError> {
    let value = graph.value(at).name.clone();
    let source = graph.def(at).and_then(|n| n.origin.source.clone());
    let pairs = change.replace.clone();
    let first_new = graph.n_values();
    let mut proof = proof;
    let before: Vec<Array> = match (&mut proof, pass.proven_at()) {
        (None, _) => Vec::new(),
        (Some(p), ProvenAt::Replaced) => {
            // Both sides run on the same inputs, those that earlier edits have left.
            p.extend(graph, &moved_by(graph, change.kept()))?;
            p.extend(graph, &graph.region(&change))?;
            values(p, pairs.iter().map(|r| r.0))
        }
        (Some(p), ProvenAt::Outputs) => {
            p.rerun(graph)?;
            values(p, graph.outputs().iter().copied())
        }
    };
    let saved = (proof.is_some() && pass.proven_at() == ProvenAt::Outputs).then(|| graph.clone());
    let added = graph.apply(change, tag);
    let added =
        added.map_err(|error| PassError::Types { pass: pass.name(), error: error.into() })?;
    let mut moved = None;
    if let Some(proof) = proof {
        let after = match pass.proven_at() {
            ProvenAt::Replaced => {
                proof.extend(graph, &makers(graph, &added))?;
                debug_assert!(added.iter().all(|v| v.index() >= first_new));
                values(proof, pairs.iter().map(|r| r.1))
            }
            ProvenAt::Outputs => {
                proof.rerun(graph)?;
                values(proof, graph.outputs().iter().copied())
            }
        };
        let worst = before.iter().zip(&after).map(|(a, b)| distance(a, b).relative_l2);
        let worst = worst.fold(0.0, f64::max);
        let bound = pass.effect().bound();
        if worst > bound
            && let Some(saved) = saved
        {
            *graph = saved;
            proof.rerun(graph)?;
            return Ok(Err(Skip::Blocked(format!("the outputs would move by {worst:.1e}"))));
        }
        if worst > bound {
            return Err(PassError::Unproven { pass: pass.name(), value, distance: worst, bound });
        }
        moved = Some(worst);
    }
    let function = graph.name.clone();
    Ok(Ok(Rewrite { pass: pass.name(), function, value, source, distance: moved }))
}

/// What moves elements to make these values: cheap to run again, and stale where what it moves was
/// rewritten.
fn moved_by(graph: &Graph, values: &[Value]) -> Vec<NodeId> {
    let moves =
        |op: &Op| matches!(op, Op::Transpose(_) | Op::ExpandDims(_) | Op::Squeeze(_) | Op::Cast(_));
    let made = values.iter().filter_map(|&v| match graph.value(v).def {
        russet_ir::Def::Node(id, _) => Some(id),
        russet_ir::Def::Input(..) => None,
    });
    made.filter(|&id| moves(&graph.node(id).op)).collect()
}

fn values(proof: &Proof, of: impl Iterator<Item = Value>) -> Vec<Array> {
    of.filter_map(|v| proof.value(v).cloned()).collect()
}

/// The nodes that make these values, in order, each once.
fn makers(graph: &Graph, values: &[Value]) -> Vec<NodeId> {
    let mut ids: Vec<NodeId> = values
        .iter()
        .filter_map(|&v| match graph.value(v).def {
            russet_ir::Def::Node(id, _) => Some(id),
            russet_ir::Def::Input(..) => None,
        })
        .collect();
    ids.dedup();
    ids
}
