//! A function made ready to run many times: weights packed once, buffers kept, ops fused.
//!
//! Values are strided views of shared buffers, so reshapes, splits and transposes move nothing
//! until an op needs its elements in a row. Products take their bias, activation and residual sum
//! along ([`dense`]), attention is one step for all heads ([`heads`]). Each op is still rounded as
//! an op of its own and sums in its own order, so fusing changes no bit.

mod buffer;
mod conv;
mod dense;
mod heads;
mod movement;
mod run;

use std::collections::{BTreeMap, HashSet};
use std::sync::Mutex;
use std::time::Instant;

use russet_ir::{DType, Graph, NodeId, Op, Tensor, Type, Value};

use crate::ane::{Ane, Family};
use crate::env::{checked_inputs, decoded, named, stored, table_lookup};
use crate::kernels::rounding::Rounding;
use crate::{Array, ExecError};
use buffer::Slot;
pub use dense::Packs;
use dense::{Dense, products};
use heads::{Attention, attentions};
use run::{Pool, Run};

/// The rules numbers obey while running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Arithmetic {
    /// 32-bit floats throughout; fp16 types are not rounded.
    #[default]
    F32,
    /// Every result is stored as bf16, sums are wide, as GPUs have it.
    Bf16,
    /// As the Neural Engine computes.
    Ane(Ane),
}

impl Arithmetic {
    /// As the engine of the default family computes.
    pub const ANE: Arithmetic = Arithmetic::Ane(Ane::of(Family::H16));
    /// fp16 storage with wide sums, and no other rule of an engine.
    pub const FP16: Arithmetic = Arithmetic::Ane(Ane::fp16());

    pub(crate) fn rounding(self) -> Rounding {
        match self {
            Arithmetic::F32 => Rounding::F32,
            Arithmetic::Bf16 => Rounding::Bf16,
            Arithmetic::Ane(ane) => Rounding::Ane(ane.rules),
        }
    }
}

/// A function ready to run. It holds its own copy of the graph and the packed weights.
pub struct Session {
    graph: Graph,
    rounding: Rounding,
    steps: Vec<Step>,
    /// By value: the constants that steps read, decoded once and shared by all runs.
    constants: Vec<Slot>,
    /// Buffers of earlier runs, to be used again.
    pool: Mutex<Pool>,
}

/// Whether steps may stand for several ops.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fuse {
    Yes,
    No,
}

type Arrays = BTreeMap<String, Array>;

/// Is it run, rather than read by those that need it?
fn runs(op: &Op) -> bool {
    !op.is_const() && !op.is_constexpr()
}

/// Is it compressed, and would keeping it decoded take memory worth saving?
fn is_large(t: &Tensor) -> bool {
    t.is_compressed() && t.n_elements() > 1 << 16
}

struct Step {
    node: NodeId,
    kind: Kind,
    /// Values nobody reads after this step.
    last_uses: Vec<Value>,
}

enum Kind {
    Plain,
    Product(Box<Dense>),
    Attention(Box<Attention>),
    Conv(Box<conv::Active>),
}

impl Step {
    fn reads(&self, g: &Graph) -> Vec<Value> {
        match &self.kind {
            Kind::Product(p) => std::iter::once(p.x).chain(p.residual).collect(),
            Kind::Attention(a) => a.reads(),
            Kind::Conv(c) => g.node(c.conv).op.operands(),
            Kind::Plain => g.node(self.node).op.operands(),
        }
    }

    fn makes(&self, g: &Graph) -> Vec<Value> {
        match &self.kind {
            Kind::Product(p) => p.outs.iter().map(|o| o.value).collect(),
            Kind::Attention(a) => vec![a.out],
            Kind::Conv(c) => vec![c.out],
            Kind::Plain => g.node(self.node).outputs.clone(),
        }
    }

    fn name<'g>(&'g self, g: &'g Graph) -> &'g str {
        match self.kind {
            Kind::Attention(_) => "attention",
            Kind::Product(ref p) => p.name(),
            Kind::Conv(_) => "conv",
            Kind::Plain => g.node(self.node).op.name(),
        }
    }
}

/// Where the time of a run went: seconds and steps by kind of op, the slowest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    pub entries: Vec<ProfileEntry>,
}

/// The steps of one kind; an op that others take along counts as theirs.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfileEntry {
    pub op: String,
    pub n_steps: usize,
    pub seconds: f64,
}

impl Session {
    /// Prepares `graph`: packs weights and fuses ops.
    pub fn new(graph: &Graph, arithmetic: Arithmetic) -> Result<Session, ExecError> {
        Session::sharing(graph, arithmetic, &mut Packs::default())
    }

    /// The same; packed weights come from `packs` where they are there, and are put there.
    pub fn sharing(
        graph: &Graph,
        arithmetic: Arithmetic,
        packs: &mut Packs,
    ) -> Result<Session, ExecError> {
        Session::prepare(graph, arithmetic, Fuse::Yes, packs)
    }

    /// Prepares `graph` so that every op's own result can be observed.
    pub fn observable(graph: &Graph, arithmetic: Arithmetic) -> Result<Session, ExecError> {
        Session::prepare(graph, arithmetic, Fuse::No, &mut Packs::default())
    }

    fn prepare(
        graph: &Graph,
        arithmetic: Arithmetic,
        fuse: Fuse,
        packs: &mut Packs,
    ) -> Result<Session, ExecError> {
        let rounding = arithmetic.rounding();
        let mut order: Vec<NodeId> =
            graph.nodes().filter(|(_, n)| runs(&n.op)).map(|(id, _)| id).collect();
        let (mut attentions, replaced) = match fuse {
            Fuse::Yes => attentions(graph, &order),
            Fuse::No => Default::default(),
        };
        order.retain(|id| !replaced.contains(id));
        let free: Vec<NodeId> =
            order.iter().copied().filter(|id| !attentions.contains_key(id)).collect();
        let (mut products, replaced) = products(graph, &free, rounding, fuse, packs);
        order.retain(|id| !replaced.contains(id));
        let is_free = |id: &NodeId| !products.contains_key(id) && !attentions.contains_key(id);
        let free: Vec<NodeId> = match fuse {
            Fuse::Yes => order.iter().copied().filter(is_free).collect(),
            Fuse::No => Vec::new(),
        };
        let mut convs = conv::active(graph, &free);
        let replaced: HashSet<NodeId> = convs.values().map(|c| c.conv).collect();
        order.retain(|id| !replaced.contains(id));
        let kind = |id: &NodeId| {
            if let Some(dense) = products.remove(id) {
                return Kind::Product(Box::new(dense));
            }
            if let Some(attention) = attentions.remove(id) {
                return Kind::Attention(Box::new(attention));
            }
            match convs.remove(id) {
                Some(conv) => Kind::Conv(Box::new(conv)),
                None => Kind::Plain,
            }
        };
        let kinds: Vec<Kind> = order.iter().map(kind).collect();
        let steps = order.into_iter().zip(kinds);
        let steps = steps.map(|(node, kind)| Step { node, kind, last_uses: Vec::new() });
        let mut session = Session {
            graph: graph.clone(),
            rounding,
            steps: steps.collect(),
            constants: vec![Slot::Empty; graph.n_values()],
            pool: Mutex::default(),
        };
        session.keep_constants()?;
        session.find_last_uses();
        Ok(session)
    }

    /// Decodes the constants that steps read other than as packed weights or tables.
    fn keep_constants(&mut self) -> Result<(), ExecError> {
        let graph = &self.graph;
        for step in &self.steps {
            let node = graph.node(step.node);
            // An unknown op says so when it runs, whatever its parameters are.
            if !node.blocks.is_empty() || matches!(node.op, Op::Opaque(_)) {
                continue;
            }
            let table = table_lookup(graph, &node.op).map(|_| node.op.operands()[0]);
            for v in step.reads(graph).into_iter().filter(|&v| Some(v) != table) {
                if let (Some(t), Slot::Empty) = (graph.weight(v), &self.constants[v.index()]) {
                    let dtype = t.dtype;
                    // A name of an extent is read by its own rule; a large compressed weight is
                    // decoded whenever it is needed.
                    if dtype == DType::String || is_large(&t) {
                        continue;
                    }
                    self.constants[v.index()] = Slot::of(decoded(&t, self.rounding)?);
                }
            }
        }
        Ok(())
    }

    fn find_last_uses(&mut self) {
        let graph = &self.graph;
        let mut seen = vec![false; graph.n_values()];
        graph.outputs().iter().for_each(|v| seen[v.index()] = true);
        // A state outlives the run.
        let states = graph.inputs().iter().filter(|&&v| matches!(graph.ty(v), Type::State(_)));
        states.for_each(|v| seen[v.index()] = true);
        // What inner nodes read stays until the function ends.
        for block in graph.all_nodes().into_iter().flat_map(|id| &graph.node(id).blocks) {
            let block = graph.block(*block);
            let reads = block.nodes.iter().flat_map(|&id| graph.node(id).op.operands());
            reads.chain(block.outputs.iter().copied()).for_each(|v| seen[v.index()] = true);
        }
        for step in self.steps.iter_mut().rev() {
            for v in step.reads(graph).into_iter().chain(step.makes(graph)) {
                if !std::mem::replace(&mut seen[v.index()], true) {
                    step.last_uses.push(v);
                }
            }
        }
    }

    /// The function this session runs.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Runs the function once. Any shape the function allows is accepted.
    pub fn run(
        &self,
        inputs: &BTreeMap<String, Array>,
    ) -> Result<BTreeMap<String, Array>, ExecError> {
        // From within the pool, handing work to the other threads needs no waking up.
        match rayon::current_num_threads() {
            1 => self.run_with(inputs, |_, _| {}),
            _ => rayon::scope(|_| self.run_with(inputs, |_, _| {})),
        }
    }

    /// Runs the function and shows `observe` the result of every step.
    pub fn run_observed(
        &self,
        inputs: &BTreeMap<String, Array>,
        observe: &mut dyn FnMut(Value, &dyn Fn() -> Array),
    ) -> Result<BTreeMap<String, Array>, ExecError> {
        self.run_with(inputs, |step, run| {
            for v in step.makes(&self.graph) {
                observe(v, &|| run.array(v).expect("just computed").into_owned());
            }
        })
    }

    /// Runs the function once and tells where the time went.
    pub fn profile(&self, inputs: &BTreeMap<String, Array>) -> Result<Profile, ExecError> {
        let timed = || {
            let mut times: BTreeMap<&str, (usize, f64)> = BTreeMap::new();
            let mut begin = Instant::now();
            self.run_with(inputs, |step, _| {
                let now = Instant::now();
                let (n, seconds) = times.entry(step.name(&self.graph)).or_default();
                (*n, *seconds) = (*n + 1, *seconds + (now - begin).as_secs_f64());
                begin = now;
            })?;
            Ok(times)
        };
        let entry = |(op, (n_steps, seconds)): (&str, (usize, f64))| ProfileEntry {
            op: op.into(),
            n_steps,
            seconds,
        };
        let mut entries: Vec<ProfileEntry> =
            rayon::scope(|_| timed())?.into_iter().map(entry).collect();
        entries.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        Ok(Profile { entries })
    }

    /// Runs the function once on states that are kept: each is read and written under its name.
    /// One that is not there begins as zeros; after an error there are none.
    pub fn run_stateful(
        &self,
        inputs: &BTreeMap<String, Array>,
        states: &mut BTreeMap<String, Array>,
    ) -> Result<BTreeMap<String, Array>, ExecError> {
        let given = std::mem::take(states);
        let (outputs, kept) = rayon::scope(|_| self.run_keeping(inputs, given, |_, _| {}))?;
        *states = kept;
        Ok(outputs)
    }

    fn run_with<'s>(
        &'s self,
        inputs: &BTreeMap<String, Array>,
        after: impl FnMut(&'s Step, &Run<'_>),
    ) -> Result<BTreeMap<String, Array>, ExecError> {
        self.run_keeping(inputs, Arrays::new(), after).map(|(outputs, _)| outputs)
    }

    /// A run: its outputs, and what its states are after it. A state may also be among the inputs.
    fn run_keeping<'s>(
        &'s self,
        inputs: &Arrays,
        mut states: Arrays,
        mut after: impl FnMut(&'s Step, &Run<'_>),
    ) -> Result<(Arrays, Arrays), ExecError> {
        let all = inputs.iter().chain(&states).map(|(name, a)| (name.as_str(), a)).collect();
        let fresh = checked_inputs(&self.graph, &all)?;
        let mut run = Run::new(self, std::mem::take(&mut *self.lock()));
        for (&v, fresh) in self.graph.inputs().iter().zip(fresh) {
            let name = &self.graph.value(v).name;
            let given = || states.remove(name).or_else(|| inputs.get(name).cloned());
            let array = fresh.or_else(given).expect("checked to be there");
            run.set_slot(v, Slot::of(stored(array, self.rounding)));
        }
        for step in &self.steps {
            run.step(step).map_err(|e| named(e, &self.graph, step.node))?;
            after(step, &run);
            step.last_uses.iter().for_each(|&v| run.release(v));
        }
        let named = |&v: &Value| {
            let name = self.graph.value(v).name.clone();
            run.array(v).map(|a| (name, a.into_owned()))
        };
        let outputs: Result<_, ExecError> = self.graph.outputs().iter().map(named).collect();
        let mut kept = Arrays::new();
        let is_state = |v: &&Value| matches!(self.graph.ty(**v), Type::State(_));
        for &v in self.graph.inputs().iter().filter(is_state) {
            kept.insert(self.graph.value(v).name.clone(), run.take_array(v)?);
        }
        *self.lock() = run.into_pool();
        Ok((outputs?, kept))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
