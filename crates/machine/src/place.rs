//! Which engine runs each op, and why.

use russet_ir::{Graph, Node, NodeId, Value};

use crate::rules::{RULES, veto};
use crate::{Profile, cost};

/// Something that runs ops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Engine {
    Ane,
    Cpu,
}

impl Engine {
    pub const fn name(self) -> &'static str {
        match self {
            Engine::Ane => "ane",
            Engine::Cpu => "cpu",
        }
    }
}

/// One op's engine and what decided it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    pub node: NodeId,
    pub engine: Engine,
    /// The rule that failed; `None` on the Neural Engine.
    pub rule: Option<&'static str>,
    /// Its sentence.
    pub why: &'static str,
}

/// Engines of all ops but constants, and the order in which engines take turns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    pub ops: Vec<Placed>,
    /// Ops of one engine in a row, as indices into `ops`.
    pub regions: Vec<(Engine, Vec<usize>)>,
}

/// Multiply-accumulates below which Core ML leaves a whole program to the CPU.
///
/// Between a 384 x 384 matmul (CPU) and a 512 x 512 one (ANE) on M4: Vx issue 437.
pub(crate) const SEGMENT_MACS_MIN: u64 = 384 * 384 * 384;

impl Engine {
    fn other(self) -> Engine {
        match self {
            Engine::Ane => Engine::Cpu,
            Engine::Cpu => Engine::Ane,
        }
    }
}

/// Is it a weight, compressed or not: in memory when the program begins?
fn stored(node: &Node) -> bool {
    node.op.is_const() || node.op.is_constexpr()
}

/// Places every op of a function whose shapes are fixed.
pub fn place(graph: &Graph, chip: &Profile) -> Placement {
    let mut ops = Vec::new();
    let whole = veto(graph);
    for (id, node) in graph.nodes().filter(|(_, n)| !stored(n)) {
        let failed = RULES.iter().find(|rule| !(rule.holds)(graph, node, chip));
        let (engine, rule, why) = match (whole, failed) {
            (Some(why), _) => (Engine::Cpu, Some("whole-program"), why),
            (None, Some(rule)) => (Engine::Cpu, Some(rule.id), rule.says),
            (None, None) => (Engine::Ane, None, "every rule holds"),
        };
        ops.push(Placed { node: id, engine, rule, why });
    }
    let on_ane = ops.iter().filter(|p| p.engine == Engine::Ane);
    let macs = on_ane.map(|p| cost::work(graph, p.node).macs).fold(0, u64::saturating_add);
    if macs < SEGMENT_MACS_MIN {
        for p in ops.iter_mut().filter(|p| p.engine == Engine::Ane) {
            p.engine = Engine::Cpu;
            p.rule = Some("size-floor");
            p.why = "a program this small is left to the CPU";
        }
    }
    let regions = regions(graph, &ops);
    Placement { ops, regions }
}

/// Orders ops so that engines change as rarely as their operands allow (greedily).
fn regions(graph: &Graph, ops: &[Placed]) -> Vec<(Engine, Vec<usize>)> {
    let mut ready = vec![false; graph.n_values()];
    graph.inputs().iter().for_each(|v| ready[v.index()] = true);
    for (_, node) in graph.nodes().filter(|(_, n)| stored(n)) {
        node.outputs.iter().for_each(|v| ready[v.index()] = true);
    }
    let mut waiting: Vec<usize> = (0..ops.len()).collect();
    let mut regions: Vec<(Engine, Vec<usize>)> = Vec::new();
    let mut engine = Engine::Cpu;
    let mut idle = 0;
    while !waiting.is_empty() && idle < 2 {
        let mut taken = Vec::new();
        waiting.retain(|&i| {
            let node = graph.node(ops[i].node);
            let runs = ops[i].engine == engine
                && node.op.operands().iter().all(|v: &Value| ready[v.index()]);
            if runs {
                node.outputs.iter().for_each(|v| ready[v.index()] = true);
                taken.push(i);
            }
            !runs
        });
        idle = if taken.is_empty() { idle + 1 } else { 0 };
        if !taken.is_empty() {
            regions.push((engine, taken));
        }
        engine = engine.other();
    }
    regions
}

impl Placement {
    /// Ops on `engine`.
    pub fn count(&self, engine: Engine) -> usize {
        self.ops.iter().filter(|p| p.engine == engine).count()
    }

    /// How often values pass from one engine to another.
    pub fn n_handoffs(&self) -> usize {
        self.regions.len().saturating_sub(1)
    }
}
