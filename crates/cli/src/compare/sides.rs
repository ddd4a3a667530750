//! Two sides, run on the same inputs.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use russet_exec::ane::{Ane, Rule};
use russet_exec::{Arithmetic, Numbers, Session};
use russet_formats::arrays;
use russet_ir::{DType, Graph, Value};

use super::ablate::{self, Cost};
use super::apart::Apart;
use super::ops::Ops;
use super::ranges::Ranges;
use super::{Arguments, Found, Other, Values, steps};
use crate::arithmetic::ArithmeticName;
use crate::diagnostic::{Failure, Outcome};
use crate::inputs::Inputs;
use crate::model::Model;
use crate::progress::Progress;

/// Two sides and how they are run.
pub(super) struct Compare<'a> {
    pub args: &'a Arguments,
    pub left: &'a Graph,
    pub right: &'a Graph,
    pub one_model: bool,
    pub reference: Arithmetic,
    pub other: ArithmeticName,
    /// The model that has one, since text needs it.
    pub with_tokenizer: &'a Model,
    pub progress: &'a Progress,
}

impl Compare<'_> {
    /// Every set of inputs, one after another; nothing but sums is kept of it.
    pub fn sets(&self, other: Other<'_>) -> Outcome<Found> {
        let args = self.args;
        let first = Session::observable(self.left, self.reference)?;
        let by_name: HashMap<&str, Value> = match &other {
            Other::Model { graph, .. } => {
                let live = graph.values().filter(|(v, _)| graph.is_live(*v));
                live.map(|(v, d)| (d.name.as_str(), v)).collect()
            }
            Other::Recorded(_) => HashMap::new(),
        };
        let has_counterpart = |name: &str| match &other {
            Other::Recorded(arrays) => arrays.contains_key(name),
            Other::Model { .. } => by_name.contains_key(name),
        };
        let mut ops = Ops::new(self.left, has_counterpart);
        let mut outputs = self.common_outputs(has_counterpart)?;
        let mut ranges = Ranges::default();
        let mut ablated = self.ablated()?;
        let mut found = Found::default();
        for (i, set) in args.source.each(self.with_tokenizer, self.left)?.enumerate() {
            let set = set?;
            self.progress.stage(&format!("running both sides, inputs {}", i + 1));
            let blame = |e| args.source.blame(i, e);
            let x = values(self.left, &first, &set).map_err(blame)?;
            if args.ranges {
                x.iter().for_each(|(&v, array)| ranges.add(v, array));
            }
            let mut y = match &other {
                Other::Model { graph, session } => values(graph, session, &set).map_err(blame)?,
                Other::Recorded(_) => Values::new(),
            };
            let counterpart = |name: &str| match &other {
                Other::Recorded(arrays) => arrays.get(name),
                Other::Model { .. } => y.get(by_name.get(name)?),
            };
            for (&v, array) in &x {
                if let Some(same) = counterpart(&self.left.value(v).name)
                    && same.shape == array.shape
                {
                    ops.add(v, array, same);
                }
            }
            for (v, (name, apart)) in &mut outputs {
                if let Some((x, y)) = x.get(v).zip(counterpart(name)) {
                    apart.add(x, y);
                }
            }
            if args.per_op && self.one_model {
                self.progress.stage("comparing op by op");
                ops.add_own(self.left, &x, self.other.get())?;
            }
            for (session, _, apart) in &mut ablated {
                self.progress.stage(&format!("without rule after rule, inputs {}", i + 1));
                let made = session.run(&mine(self.right, &set)).map_err(|e| blame(e.into()))?;
                for (k, (v, (name, _))) in outputs.iter().enumerate() {
                    if let Some((x, y)) = x.get(v).zip(made.get(name)) {
                        apart[k].add(x, y);
                    }
                }
            }
            if let Some(file) = &args.record {
                record(file, self.right, &std::mem::take(&mut y))?;
            }
            found.n_sets += 1;
            if matches!(other, Other::Recorded(_)) {
                break;
            }
        }
        if found.n_sets == 0 {
            return Err(Failure::usage("there is nothing to run on"));
        }
        found.outputs = outputs.into_iter().map(|(_, o)| o).collect();
        let worst = |aparts: &mut dyn Iterator<Item = &Apart>| {
            aparts.map(Apart::relative_l2).fold(0.0, f64::max)
        };
        let with_all = worst(&mut found.outputs.iter().map(|o| &o.1));
        found.costs = ablated
            .iter()
            .map(|(_, rule, apart)| Cost {
                rule: *rule,
                without: worst(&mut apart.iter()),
                with_all,
            })
            .collect();
        ablate::sort(&mut found.costs);
        if args.per_op || args.html.is_some() {
            found.rows = ops.finish(self.left);
        }
        if args.ranges {
            let ane = match self.other.get() {
                Arithmetic::Ane(ane) => ane,
                _ => Ane::default(),
            };
            found.ranges = ranges.rows(self.left, ane);
        }
        Ok(found)
    }

    /// The outputs both sides have, by name.
    fn common_outputs(
        &self,
        has_counterpart: impl Fn(&str) -> bool,
    ) -> Outcome<Vec<(Value, (String, Apart))>> {
        let all: Vec<(Value, (String, Apart))> = self
            .left
            .outputs()
            .iter()
            .map(|&v| (v, (self.left.value(v).name.clone(), Apart::default())))
            .filter(|(_, (name, _))| has_counterpart(name))
            .collect();
        if all.is_empty() {
            let names = |g: &Graph| {
                let all = g.outputs().iter().map(|&v| g.value(v).name.clone());
                all.collect::<Vec<_>>().join(", ")
            };
            let (left, right) = (names(self.left), names(self.right));
            let message = format!("the two have no output in common: {left} and {right}");
            return Err(Failure::new("no-common-output", message));
        }
        Ok(all)
    }

    /// The other side without each of its rules, and the distances of its outputs.
    fn ablated(&self) -> Outcome<Vec<(Session, Rule, Vec<Apart>)>> {
        if !self.args.ablate {
            return Ok(Vec::new());
        }
        let each = ablate::each(self.other)?;
        if each.is_empty() {
            return Err(Failure::usage(format!("{} has no rules", self.other.name()))
                .help("--ablate is for --arithmetic-b ane"));
        }
        let n = self.left.outputs().len();
        let without = each.into_iter().map(|(rule, arithmetic)| {
            let session = Session::observable(self.right, arithmetic.get())?;
            Ok((session, rule, vec![Apart::default(); n]))
        });
        without.collect()
    }

    /// Both sides step by step, on states that are kept.
    pub fn steps(&self, n: usize) -> Outcome<Found> {
        let source = &self.args.source;
        let mut a = steps::Side::new(Session::new(self.left, self.reference)?);
        let mut b = steps::Side::new(Session::new(self.right, self.other.get())?);
        let sets = match source.is_made_up() {
            true => Vec::new(),
            false => source.sets(self.with_tokenizer, self.left)?,
        };
        let growth = steps::growth((&mut a, &mut b), n, |step| {
            self.progress.stage(&format!("step {} of {n}", step + 1));
            match sets.len() {
                0 => source.made_up(self.left, step as u64),
                n => Ok(sets[step % n].clone()),
            }
        })?;
        Ok(Found { n_sets: n, growth: Some(growth), ..Found::default() })
    }
}

/// The inputs a function has: a side that lacks one (a mask made from ids) is run without it.
fn mine(graph: &Graph, inputs: &Inputs) -> Inputs {
    let names: BTreeSet<&str> =
        graph.inputs().iter().map(|&v| graph.value(v).name.as_str()).collect();
    let mine = inputs.iter().filter(|(name, _)| names.contains(name.as_str()));
    mine.map(|(name, a)| (name.clone(), a.clone())).collect()
}

/// Every value of a run.
fn values(graph: &Graph, session: &Session, inputs: &Inputs) -> Outcome<Values> {
    let mine = mine(graph, inputs);
    let mut all = Values::new();
    session.run_observed(&mine, &mut |v, array| {
        all.insert(v, array());
    })?;
    for &v in graph.inputs() {
        if let Some(array) = mine.get(&graph.value(v).name) {
            all.insert(v, array.clone());
        }
    }
    Ok(all)
}

/// Saves the results of all ops under their names.
fn record(file: &Path, graph: &Graph, values: &Values) -> Outcome<()> {
    let mut tensors = Vec::new();
    for (_, node) in graph.nodes() {
        for &v in &node.outputs {
            let Some(array) = values.get(&v) else { continue };
            let dtype = match &array.data {
                Numbers::F32(_) => DType::F32,
                Numbers::I32(_) => DType::I32,
                Numbers::Bool(_) => DType::Bool,
            };
            tensors.extend(array.to_tensor(dtype).map(|t| (graph.value(v).name.clone(), t)));
        }
    }
    Ok(arrays::write(file, &tensors)?)
}
