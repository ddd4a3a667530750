//! What of a program is still as it was read, so that it is written as it was.
//!
//! A package says more than the ir keeps: names of constants, notes of compilers, fields of a
//! newer Core ML. Everything a program still has in common with its source is therefore copied
//! from the source; only what changed is encoded anew.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use russet_ir::{Arg, Attr, BlockId, Graph, NodeId, Op, Opset, Program, Tensor, Value};

use super::links::FunctionLinks;
use super::read::Source;
use super::{proto, references};

/// Constants up to this size are compared; of larger ones only the very same are equal.
const COMPARED_BYTES_MAX: u64 = 1 << 16;

/// A source and what of it a program still is.
pub struct Template<'a> {
    pub source: &'a Source,
    functions: BTreeMap<&'a str, Kept<'a>>,
}

/// What of a function is still as it was.
pub struct Kept<'a> {
    pub function: &'a proto::Function,
    pub block: &'a proto::Block,
    /// All of it is.
    pub is_whole: bool,
    /// Operations by the nodes of the program that they still are.
    operations: HashMap<NodeId, usize>,
    /// Constants of the program that stand within such an operation.
    within: HashSet<NodeId>,
    /// Constants that only say how an operation works, by the operations that need them.
    needs: BTreeMap<usize, BTreeSet<usize>>,
    /// Inputs and outputs of the type they had, where no symbol changed.
    unchanged_features: HashSet<String>,
}

impl<'a> Template<'a> {
    /// What of `source` is still in `program`; nothing when its opset is another.
    pub fn of(program: &'a Program, source: &'a Source) -> Template<'a> {
        let mut functions = BTreeMap::new();
        for graph in &program.functions {
            let message =
                source.model.ml_program.as_ref().and_then(|p| p.functions.get(&graph.name));
            let (Some(function), Some(links)) = (message, source.links.get(&graph.name)) else {
                continue;
            };
            let block = function.block_specializations.get(&function.opset);
            let same_opset = function.opset.parse() == Ok(program.opset);
            if let (Some(block), true) = (block, same_opset) {
                functions.insert(graph.name.as_str(), Kept::of(graph, function, block, links));
            }
        }
        Template { source, functions }
    }

    pub fn function(&self, name: &str) -> Option<&Kept<'a>> {
        self.functions.get(name)
    }

    /// Operations that are copied, with the constants they need.
    pub fn copied(&self) -> impl Iterator<Item = &'a proto::Operation> {
        self.functions.values().flat_map(|kept| -> Vec<&'a proto::Operation> {
            if kept.is_whole {
                let blocks = kept.function.block_specializations.values();
                return blocks.flat_map(|b| &b.operations).collect();
            }
            let all = kept.operations.values().chain(kept.needs.values().flatten());
            let indices: BTreeSet<usize> = all.copied().collect();
            indices.into_iter().map(|i| &kept.block.operations[i]).collect()
        })
    }
}

impl<'a> Kept<'a> {
    fn of(
        graph: &Graph,
        function: &'a proto::Function,
        block: &'a proto::Block,
        links: &FunctionLinks,
    ) -> Kept<'a> {
        let old = &links.graph;
        let mut kept = Kept {
            function,
            block,
            is_whole: is_same_function(graph, old),
            operations: HashMap::new(),
            within: HashSet::new(),
            needs: BTreeMap::new(),
            unchanged_features: HashSet::new(),
        };
        if graph.symbols == old.symbols {
            for (new, old_values) in
                [(graph.inputs(), old.inputs()), (graph.outputs(), old.outputs())]
            {
                let was = |v: &Value| old_values.iter().any(|w| is_same_value(graph, *v, old, *w));
                let same = new.iter().filter(|v| was(v)).map(|&v| graph.value(v).name.clone());
                kept.unchanged_features.extend(same);
            }
        }
        let twins = twins(graph, old);
        kept.match_operations(graph, old, links, &twins);
        kept
    }

    /// Is this input or output described as it was?
    pub fn is_same_feature(&self, name: &str) -> bool {
        self.unchanged_features.contains(name)
    }

    fn match_operations(
        &mut self,
        graph: &Graph,
        old: &Graph,
        links: &FunctionLinks,
        twins: &HashMap<NodeId, NodeId>,
    ) {
        let made: HashSet<usize> = links.operations.values().copied().collect();
        let floating: HashMap<&str, usize> = self
            .block
            .operations
            .iter()
            .enumerate()
            .filter(|(i, op)| op.r#type == "const" && !made.contains(i))
            .filter_map(|(i, op)| Some((op.outputs.first()?.name.as_str(), i)))
            .collect();
        let taken: HashSet<&str> = graph.values().map(|(_, d)| d.name.as_str()).collect();
        let known: HashSet<&str> = old.values().map(|(_, d)| d.name.as_str()).collect();
        // Constants within an operation are as they were only together with it.
        let mut inner: HashMap<usize, Vec<NodeId>> = HashMap::new();
        links.made_for.iter().for_each(|(&node, &i)| inner.entry(i).or_default().push(node));
        let back: HashMap<NodeId, NodeId> = twins.iter().map(|(&new, &old)| (old, new)).collect();
        for (&new, was) in twins {
            let Some(&i) = links.operations.get(was) else { continue };
            let op = &self.block.operations[i];
            let names = |i: &NodeId| old.node(*i).outputs.first().map(|&v| &old.value(v).name);
            let constants = inner.get(&i).map(Vec::as_slice).unwrap_or_default();
            let mut used = Vec::new();
            names_in(op, &mut used);
            let needs: BTreeSet<usize> =
                used.iter().filter_map(|n| floating.get(n).copied()).collect();
            let clashes = |name: &&str| taken.contains(*name) && !known.contains(*name);
            let defined = defined_in(op);
            let stays = constants.iter().all(|c| back.contains_key(c) && names(c).is_some())
                && !used.iter().filter(|n| floating.contains_key(*n)).any(|n| taken.contains(n))
                && !defined.iter().any(clashes);
            if stays {
                self.operations.insert(new, i);
                self.needs.insert(i, needs);
            }
        }
        for (&node, &i) in &links.made_for {
            let Some(&new) = back.get(&node) else { continue };
            let value = graph.node(new).outputs[0];
            let users = graph.users(value);
            let within = |user: &NodeId| self.operations.get(user) == Some(&i);
            if !graph.is_output(value) && !users.is_empty() && users.iter().all(within) {
                self.within.insert(new);
            }
        }
    }

    /// The operation a node still is.
    pub fn operation(&self, node: NodeId) -> Option<usize> {
        self.operations.get(&node).copied()
    }

    /// Is the node a constant within an operation that is copied?
    pub fn is_within(&self, node: NodeId) -> bool {
        self.within.contains(&node)
    }

    /// Constants that have to be copied too, in order.
    pub fn constants(&self) -> BTreeSet<usize> {
        self.needs.values().flatten().copied().collect()
    }

    /// Names that copied operations bring with them.
    pub fn names(&self) -> impl Iterator<Item = String> {
        let indices = self.needs.iter().flat_map(|(i, needs)| needs.iter().chain([i]));
        indices.flat_map(|&i| {
            let op = &self.block.operations[i];
            let outputs = op.outputs.iter().map(|o| o.name.as_str());
            defined_in(op).into_iter().chain(outputs).map(str::to_owned)
        })
    }
}

/// Names an operation reads, and those its blocks read.
fn names_in<'a>(op: &'a proto::Operation, out: &mut Vec<&'a str>) {
    let bound = op.inputs.values().flat_map(|a| &a.arguments);
    out.extend(bound.filter_map(|b| match &b.bound {
        Some(proto::Bound::Name(n)) => Some(n.as_str()),
        _ => None,
    }));
    for block in &op.blocks {
        block.operations.iter().for_each(|op| names_in(op, out));
        out.extend(block.outputs.iter().map(String::as_str));
    }
}

/// Names that are defined within the blocks of an operation.
fn defined_in(op: &proto::Operation) -> Vec<&str> {
    let mut out = Vec::new();
    for block in &op.blocks {
        out.extend(block.inputs.iter().map(|i| i.name.as_str()));
        for op in &block.operations {
            out.extend(op.outputs.iter().map(|o| o.name.as_str()));
            out.extend(defined_in(op));
        }
    }
    out
}

/// Nodes of the function's own block that are the same in both graphs, new to old.
fn twins(graph: &Graph, old: &Graph) -> HashMap<NodeId, NodeId> {
    let mut by_name: HashMap<&str, NodeId> = HashMap::new();
    let mut nameless: Vec<NodeId> = Vec::new();
    for (id, node) in old.nodes() {
        match node.outputs.first() {
            Some(&v) => drop(by_name.insert(&old.value(v).name, id)),
            None => nameless.push(id),
        }
    }
    let mut nameless = nameless.into_iter().peekable();
    let mut twins = HashMap::new();
    for (id, node) in graph.nodes() {
        let candidate = match node.outputs.first() {
            Some(&v) => by_name.get(graph.value(v).name.as_str()).copied(),
            None => nameless.peek().copied(),
        };
        if let Some(was) = candidate.filter(|&was| is_same_node(graph, id, old, was)) {
            if node.outputs.is_empty() {
                nameless.next();
            }
            twins.insert(id, was);
        }
    }
    twins
}

fn is_same_function(a: &Graph, b: &Graph) -> bool {
    a.symbols == b.symbols && is_same_block(a, BlockId::BODY, b, BlockId::BODY)
}

fn is_same_block(a: &Graph, x: BlockId, b: &Graph, y: BlockId) -> bool {
    let (x, y) = (a.block(x), b.block(y));
    are_same_values(a, &x.inputs, b, &y.inputs)
        && are_same_values(a, &x.outputs, b, &y.outputs)
        && x.nodes.len() == y.nodes.len()
        && x.nodes.iter().zip(&y.nodes).all(|(&n, &m)| is_same_node(a, n, b, m))
}

fn is_same_node(a: &Graph, n: NodeId, b: &Graph, m: NodeId) -> bool {
    let (x, y) = (a.node(n), b.node(m));
    are_same_values(a, &x.outputs, b, &y.outputs)
        && is_same_op(a, &x.op, b, &y.op)
        && x.blocks.len() == y.blocks.len()
        && x.blocks.iter().zip(&y.blocks).all(|(&p, &q)| is_same_block(a, p, b, q))
}

fn is_same_op(a: &Graph, x: &Op, b: &Graph, y: &Op) -> bool {
    if let (Op::Const(c), Op::Const(d)) = (x, y) {
        return is_same_tensor(&c.val, &d.val);
    }
    let (xs, ys) = (x.args(Opset::Ios26), y.args(Opset::Ios26));
    x.name() == y.name()
        && xs.len() == ys.len()
        && xs.iter().zip(&ys).all(|((p, x), (q, y))| {
            p == q
                && match (x, y) {
                    // Of the same type too: constants of an op may be of its operands' type.
                    (Arg::Value(v), Arg::Value(w)) => is_same_value(a, *v, b, *w),
                    (Arg::Values(vs), Arg::Values(ws)) => are_same_values(a, vs, b, ws),
                    (Arg::Attr(Attr::Tensor(t)), Arg::Attr(Attr::Tensor(u))) => {
                        is_same_tensor(t, u)
                    }
                    (x, y) => x == y,
                }
        })
}

fn are_same_values(a: &Graph, vs: &[Value], b: &Graph, ws: &[Value]) -> bool {
    vs.len() == ws.len() && vs.iter().zip(ws).all(|(&v, &w)| is_same_value(a, v, b, w))
}

fn is_same_value(a: &Graph, v: Value, b: &Graph, w: Value) -> bool {
    let (x, y) = (a.value(v), b.value(w));
    x.name == y.name && x.ty == y.ty
}

fn is_same_tensor(t: &Tensor, u: &Tensor) -> bool {
    t.is_same(u) || t.n_bytes() <= COMPARED_BYTES_MAX && t == u
}

/// References of the operations that are copied, each place once, in the order of the files.
pub fn copied_references<'a>(
    template: &Template<'a>,
) -> BTreeMap<(&'a str, u64), references::Reference<'a>> {
    let mut all = Vec::new();
    template.copied().for_each(|op| references::of_operation(op, &mut all));
    all.into_iter().map(|r| ((r.blob.file_name.as_str(), r.blob.offset), r)).collect()
}
