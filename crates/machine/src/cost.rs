//! How long a function takes.
//!
//! ```text
//! latency = dispatch                             once per run of ops on the Neural Engine
//!         + sum over ops of max(weights / rate, 2 macs / peak) + elements / vector rate
//!         + sum over CPU ops of max(bytes / rate, flops / rate)
//!         + hand-offs x hand-off time
//! ```
//!
//! Weights of a task whose share per core is close to a multiple of 1 MiB stream at the notch's
//! rate: the floor on a multiple, the normal rate `half_width` away, linear in between (the shape
//! measured on M3, `docs/hardware.md`).

use russet_ir::{Graph, NodeId, Op, Work};

use crate::{Ane, Engine, Placement, Profile};

/// Predicted time of one call, by part, in seconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Estimate {
    pub dispatch_s: f64,
    /// Time of ops bound by their weights.
    pub weights_s: f64,
    /// Time of ops bound by multiply-accumulates.
    pub compute_s: f64,
    pub vector_s: f64,
    pub cpu_s: f64,
    pub handoff_s: f64,
    /// Weights streamed into the Neural Engine; tables the CPU reads rows of are not among them.
    pub weight_bytes: u64,
    pub macs: u64,
    /// Multiply-accumulates placed on the Neural Engine.
    pub macs_on_ane: u64,
    /// Tasks slowed by the notch.
    pub notches: Vec<NotchHit>,
}

/// A task whose weights stream slowly.
#[derive(Debug, Clone, PartialEq)]
pub struct NotchHit {
    pub node: NodeId,
    pub bytes_per_core: u64,
    /// Time lost against the normal rate, in seconds.
    pub lost_s: f64,
}

impl Estimate {
    pub fn latency_s(&self) -> f64 {
        self.dispatch_s
            + self.weights_s
            + self.compute_s
            + self.vector_s
            + self.cpu_s
            + self.handoff_s
    }
}

/// The arithmetic of one node on fixed shapes.
pub(crate) fn work(graph: &Graph, id: NodeId) -> Work {
    let node = graph.node(id);
    graph.with_block_types(&node.blocks, |types| node.op.work(types))
}

/// Bytes of the weights a node reads, each once; of compressed ones, decoded: no figure says how
/// much less the engine reads.
fn weight_bytes(graph: &Graph, id: NodeId) -> u64 {
    let mut operands = graph.node(id).op.operands();
    operands.sort_unstable();
    operands.dedup();
    operands
        .iter()
        .filter_map(|&v| graph.weight(v))
        .map(|t| t.n_bytes())
        .fold(0, u64::saturating_add)
}

/// Bytes one core streams: output channels are dealt to cores, each reads its own rows.
fn bytes_per_core(graph: &Graph, id: NodeId, n_cores: u64) -> Option<u64> {
    let weight = match &graph.node(id).op {
        Op::Conv(op) => op.weight,
        Op::Linear(op) => op.weight,
        _ => return None,
    };
    let weight = graph.weight(weight)?;
    let n_out = *weight.shape.first()?;
    let row_bytes = weight.n_bytes().checked_div(n_out)?;
    Some(n_out.div_ceil(n_cores.max(1)).saturating_mul(row_bytes))
}

/// Seconds to stream `bytes` of weights when each core reads `per_core` of them.
///
/// Returns the time and how much of it the notch costs.
pub fn streaming_s(ane: &Ane, bytes: u64, per_core: Option<u64>) -> (f64, f64) {
    let normal = bytes as f64 / ane.weight_bytes_per_s.value;
    let (Some(notch), Some(per_core)) = (&ane.notch, per_core) else { return (normal, 0.0) };
    let period = notch.period_bytes.value;
    let nearest = (per_core as f64 / period).round();
    let distance = (per_core as f64 - nearest * period).abs();
    let depth = 1.0 - distance / notch.half_width_bytes.value;
    if nearest < 1.0 || depth <= 0.0 {
        return (normal, 0.0);
    }
    let floor = bytes as f64 / notch.floor_bytes_per_s.value;
    let lost = depth * (floor - normal).max(0.0);
    (normal + lost, lost)
}

/// Predicts the time of one call of a function whose shapes are fixed.
pub fn estimate(graph: &Graph, placement: &Placement, chip: &Profile) -> Estimate {
    let mut sum = Estimate::default();
    let ane = &chip.engines.ane;
    for placed in &placement.ops {
        let work = work(graph, placed.node);
        let bytes = weight_bytes(graph, placed.node);
        sum.macs = sum.macs.saturating_add(work.macs);
        if placed.engine == Engine::Cpu {
            sum.cpu_s += cpu_s(graph, placed.node, work, chip);
            continue;
        }
        sum.macs_on_ane = sum.macs_on_ane.saturating_add(work.macs);
        sum.weight_bytes = sum.weight_bytes.saturating_add(bytes);
        let per_core = bytes_per_core(graph, placed.node, ane.n_cores.value as u64);
        let (stream, lost_s) = streaming_s(ane, bytes, per_core);
        let compute = 2.0 * work.macs as f64 / ane.peak_flops_per_s.value;
        if stream >= compute {
            sum.weights_s += stream;
        } else {
            sum.compute_s += compute;
        }
        if lost_s > 0.0 {
            let bytes_per_core = per_core.unwrap_or(0);
            sum.notches.push(NotchHit { node: placed.node, bytes_per_core, lost_s });
        }
        sum.vector_s +=
            work.flops.saturating_add(work.exps) as f64 / ane.vector_elements_per_s.value;
    }
    let calls = placement.regions.iter().filter(|r| r.0 == Engine::Ane).count();
    sum.dispatch_s = calls as f64 * ane.dispatch_s.value;
    sum.handoff_s = placement.n_handoffs() as f64 * chip.handoff.seconds.value;
    sum
}

/// A CPU op moves its outputs (of a table, only the rows taken) and computes.
fn cpu_s(graph: &Graph, id: NodeId, work: Work, chip: &Profile) -> f64 {
    let cpu = &chip.engines.cpu;
    let outputs = &graph.node(id).outputs;
    let bytes = outputs.iter().filter_map(|&v| graph.ty(v).tensor()?.n_bytes());
    let bytes = bytes.fold(0, u64::saturating_add);
    let flops = 2.0 * work.macs as f64 + work.flops as f64 + work.exps as f64;
    (bytes as f64 / cpu.bytes_per_s.value).max(flops / cpu.flops_per_s.value)
}
