//! Programs, functions and their graphs: values, nodes, blocks.
//!
//! A graph is in single assignment form. Values and nodes live in arenas and are named by small
//! indices; a block lists its nodes in an order in which every operand comes first. Nodes that
//! an edit made unused stay in the arena but in no block.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::infer::Known;
use crate::names::Names;
use crate::ops::Const;
use crate::{Dim, Op, Opset, Outputs, Symbol, Tensor, Type, TypeError, Types};

/// Index of a value within its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(u32);

impl Value {
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The inverse of [`Value::index`], for tables.
    pub fn from_index(index: usize) -> Value {
        Value(u32::try_from(index).expect("fewer than 2^32 values"))
    }
}

/// Index of a node within its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(u32);

impl NodeId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Index of a block within its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(u32);

impl BlockId {
    /// The function's own block.
    pub const BODY: BlockId = BlockId(0);

    pub(crate) fn from_index(index: usize) -> BlockId {
        BlockId(u32::try_from(index).expect("fewer than 2^32 blocks"))
    }

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Def {
    /// Input `1` of block `0`.
    Input(BlockId, usize),
    /// Output `1` of node `0`.
    Node(NodeId, usize),
}

/// What a graph knows of a value.
#[derive(Debug, Clone)]
pub struct ValueData {
    pub name: String,
    pub ty: Type,
    pub def: Def,
    pub(crate) known: Option<Known>,
}

/// Where a node comes from: its name in the source, then the passes that made it what it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    pub source: Option<Arc<str>>,
    pub passes: Vec<Arc<str>>,
}

impl Origin {
    pub fn source(name: &str) -> Origin {
        Origin { source: Some(name.into()), passes: Vec::new() }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.source.as_deref().unwrap_or("the program"))?;
        if !self.passes.is_empty() {
            write!(f, ", rewritten by {}", self.passes.join(", "))?;
        }
        Ok(())
    }
}

/// One operation in a graph.
#[derive(Debug, Clone)]
pub struct Node {
    pub op: Op,
    pub outputs: Vec<Value>,
    pub blocks: Vec<BlockId>,
    pub origin: Origin,
}

/// A sequence of nodes with inputs and outputs of its own.
#[derive(Debug, Clone, Default)]
pub struct Block {
    pub inputs: Vec<Value>,
    pub nodes: Vec<NodeId>,
    pub outputs: Vec<Value>,
}

/// The numbers the symbols of a function may stand for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Symbols {
    /// Combinations that are allowed; the first is the default. Empty when not enumerated.
    pub enumerated: Vec<Binding>,
    /// Ranges, inclusive; no upper end means unbounded.
    pub ranges: BTreeMap<Symbol, (u64, Option<u64>)>,
}

/// A number for each symbol.
pub type Binding = BTreeMap<Symbol, u64>;

/// One function: its inputs, its nodes, its outputs.
#[derive(Debug, Clone)]
pub struct Graph {
    pub name: String,
    pub symbols: Symbols,
    pub(crate) values: Vec<ValueData>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) users: Vec<Vec<NodeId>>,
    /// By node: is it listed in a block?
    pub(crate) listed: Vec<bool>,
    pub(crate) names: Names,
}

/// Functions that share weights, and what a package says about them.
#[derive(Debug, Clone)]
pub struct Program {
    pub opset: Opset,
    /// In the order of the source; the first is the default.
    pub functions: Vec<Graph>,
    /// Free text: author, license, shortDescription, version and user-defined keys.
    pub metadata: BTreeMap<String, String>,
}

/// A node that cannot be: which op, which operand, and why.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{} of `{op}` {error}", .operand.as_ref().map_or("a parameter".into(), |o| format!("`{o}`")))]
pub struct OpError {
    pub op: String,
    /// Name of the operand's value at fault.
    pub operand: Option<String>,
    pub error: TypeError,
}

impl Graph {
    pub fn new(name: &str) -> Graph {
        Graph {
            name: name.into(),
            symbols: Symbols::default(),
            values: Vec::new(),
            nodes: Vec::new(),
            blocks: vec![Block::default()],
            users: Vec::new(),
            listed: Vec::new(),
            names: Names::default(),
        }
    }

    pub fn value(&self, v: Value) -> &ValueData {
        &self.values[v.index()]
    }

    pub fn ty(&self, v: Value) -> &Type {
        &self.value(v).ty
    }

    /// The shape of a tensor value, empty for anything else.
    pub fn shape(&self, v: Value) -> &[Dim] {
        self.ty(v).tensor().map_or(&[], |t| &t.shape)
    }

    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The node that makes `v`; `None` for an input.
    pub fn def(&self, v: Value) -> Option<&Node> {
        match self.value(v).def {
            Def::Node(id, _) => Some(self.node(id)),
            Def::Input(..) => None,
        }
    }

    /// The op that makes `v`; `None` for an input.
    pub fn op(&self, v: Value) -> Option<&Op> {
        self.def(v).map(|n| &n.op)
    }

    /// The constant `v` is, if it is one.
    pub fn constant(&self, v: Value) -> Option<&Tensor> {
        self.types().constant(v)
    }

    pub fn inputs(&self) -> &[Value] {
        &self.block(BlockId::BODY).inputs
    }

    pub fn outputs(&self) -> &[Value] {
        &self.block(BlockId::BODY).outputs
    }

    pub fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id.index()]
    }

    /// Nodes of the function's own block, in order.
    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = (NodeId, &Node)> {
        self.block(BlockId::BODY).nodes.iter().map(|&id| (id, self.node(id)))
    }

    /// All nodes in blocks, outer before inner, in order.
    pub fn all_nodes(&self) -> Vec<NodeId> {
        fn walk(g: &Graph, block: BlockId, out: &mut Vec<NodeId>) {
            for &id in &g.block(block).nodes {
                out.push(id);
                g.node(id).blocks.iter().for_each(|&b| walk(g, b, out));
            }
        }
        let mut out = Vec::new();
        walk(self, BlockId::BODY, &mut out);
        out
    }

    /// Nodes that read `v`, each once; block outputs are not among them.
    pub fn users(&self, v: Value) -> &[NodeId] {
        &self.users[v.index()]
    }

    /// Is `v` an output of some block?
    pub fn is_output(&self, v: Value) -> bool {
        self.blocks.iter().any(|b| b.outputs.contains(&v))
    }

    /// Is `v` an input, or made by a node some block lists?
    pub fn is_live(&self, v: Value) -> bool {
        match self.value(v).def {
            Def::Input(..) => true,
            Def::Node(id, _) => self.is_listed(id),
        }
    }

    /// Is the node still in a block? Edits leave those they made useless in the arena only.
    pub fn is_listed(&self, id: NodeId) -> bool {
        self.listed[id.index()]
    }

    /// Number of values, for tables indexed by [`Value::index`].
    pub fn n_values(&self) -> usize {
        self.values.len()
    }

    pub fn values(&self) -> impl Iterator<Item = (Value, &ValueData)> {
        self.values.iter().enumerate().map(|(i, d)| (Value::from_index(i), d))
    }

    pub fn types(&self) -> Types<'_> {
        Types { base: &self.values, extra: &[], blocks: &[] }
    }

    /// The same with the output types of `node`'s blocks, as its type rule needs them.
    pub fn with_block_types<R>(&self, blocks: &[BlockId], f: impl FnOnce(&Types<'_>) -> R) -> R {
        let types: Vec<Vec<Type>> = blocks
            .iter()
            .map(|&b| self.block(b).outputs.iter().map(|&v| self.ty(v).clone()).collect())
            .collect();
        f(&Types { base: &self.values, extra: &[], blocks: &types })
    }

    /// Adds an input of the function.
    pub fn add_input(&mut self, name: &str, ty: impl Into<Type>) -> Value {
        self.add_block_input(BlockId::BODY, name, ty)
    }

    pub fn add_block_input(&mut self, block: BlockId, name: &str, ty: impl Into<Type>) -> Value {
        let def = Def::Input(block, self.block(block).inputs.len());
        let v = self.add_value(name.into(), ty.into(), def, None);
        self.blocks[block.index()].inputs.push(v);
        v
    }

    /// An empty block, to be owned by a node added later.
    pub fn add_block(&mut self) -> BlockId {
        self.blocks.push(Block::default());
        BlockId::from_index(self.blocks.len() - 1)
    }

    fn add_value(&mut self, name: String, ty: Type, def: Def, known: Option<Known>) -> Value {
        self.names.add(&name);
        self.values.push(ValueData { name, ty, def, known });
        self.users.push(Vec::new());
        Value::from_index(self.values.len() - 1)
    }

    /// Appends an op to the function's own block; its types are inferred.
    pub fn push(&mut self, op: impl Into<Op>, name: &str) -> Result<Vec<Value>, OpError> {
        self.push_node(BlockId::BODY, op.into(), &[name.to_owned()], vec![], Origin::default())
    }

    /// Appends an op to a block. Missing output names are made from the first.
    pub fn push_node(
        &mut self,
        block: BlockId,
        op: Op,
        names: &[String],
        blocks: Vec<BlockId>,
        origin: Origin,
    ) -> Result<Vec<Value>, OpError> {
        let inferred = self.with_block_types(&blocks, |t| op.infer(t));
        let outputs = inferred.map_err(|error| self.op_error(&op, error))?;
        let id = self.add_node(op, outputs, names, blocks, origin);
        self.listed[id.index()] = true;
        self.blocks[block.index()].nodes.push(id);
        Ok(self.node(id).outputs.clone())
    }

    /// Adds a node to the arena, not yet to a block.
    pub(crate) fn add_node(
        &mut self,
        op: Op,
        outputs: Outputs,
        names: &[String],
        blocks: Vec<BlockId>,
        origin: Origin,
    ) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        let values = outputs.0.into_iter().enumerate().map(|(i, (ty, known))| {
            let name = match names.get(i) {
                Some(name) => name.clone(),
                None => format!("{}_{i}", names.first().map_or("v", String::as_str)),
            };
            self.add_value(name, ty, Def::Node(id, i), known)
        });
        let values = values.collect();
        for v in op.operands() {
            let users = &mut self.users[v.index()];
            // The node is new, so it can only be the last; a value may have very many readers.
            if users.last() != Some(&id) {
                users.push(id);
            }
        }
        self.nodes.push(Node { op, outputs: values, blocks, origin });
        self.listed.push(false);
        id
    }

    /// Names the operand an error is about.
    pub fn op_error(&self, op: &Op, error: TypeError) -> OpError {
        let operand = error.operand().and_then(|at| {
            op.all_args().into_iter().find_map(|(param, arg)| match arg {
                crate::Arg::Value(v) if v == at => Some(param.to_owned()),
                crate::Arg::Values(vs) => {
                    vs.iter().position(|&v| v == at).map(|i| format!("{param}[{i}]"))
                }
                _ => None,
            })
        });
        OpError { op: op.name().to_owned(), operand, error }
    }

    /// Appends a constant.
    pub fn push_const(&mut self, val: Tensor, name: &str) -> Value {
        self.push(Const { val }, name).expect("a constant has no operands")[0]
    }

    /// Makes `values` the outputs of the function, in this order.
    pub fn set_outputs(&mut self, values: Vec<Value>) {
        self.set_block_outputs(BlockId::BODY, values);
    }

    pub fn set_block_outputs(&mut self, block: BlockId, values: Vec<Value>) {
        self.blocks[block.index()].outputs = values;
    }

    /// Renames a value; the caller keeps names unique.
    pub fn rename(&mut self, v: Value, name: &str) {
        let before = std::mem::replace(&mut self.values[v.index()].name, name.to_owned());
        self.names.remove(&before);
        self.names.add(name);
    }

    /// `name`, or one of `name_1`, `name_2`, … that no value has.
    pub fn unique_name(&mut self, name: &str) -> String {
        self.names.unique(name)
    }

    /// Says where a value's node comes from.
    pub fn set_origin(&mut self, v: Value, origin: Origin) {
        if let Def::Node(id, _) = self.value(v).def {
            self.nodes[id.index()].origin = origin;
        }
    }

    /// Names for `n` outputs of a node: `name`, `name_1`, …, each made unique.
    pub(crate) fn fresh_names(&mut self, name: &str, n: usize) -> Vec<String> {
        let fresh = |i: usize| {
            let wanted = if i == 0 { name.to_owned() } else { format!("{name}_{i}") };
            let free = self.names.unique(&wanted);
            self.names.add(&free);
            free
        };
        let all: Vec<String> = (0..n).map(fresh).collect();
        all.iter().for_each(|free| self.names.remove(free));
        all
    }

    /// Does any input or value have a symbolic dimension?
    pub fn is_symbolic(&self) -> bool {
        self.inputs().iter().any(|&v| self.shape(v).iter().any(|d| d.fixed().is_none()))
    }

    /// The same function with numbers for symbols; all types are inferred anew.
    pub fn bind(&self, binding: &Binding) -> Result<Graph, OpError> {
        let mut bound = self.clone();
        bound.symbols = Symbols::default();
        let fix = |d: &Dim| match d {
            Dim::Symbol(s) => binding.get(s).map_or_else(|| d.clone(), |&n| Dim::Fixed(n)),
            Dim::Fixed(_) => d.clone(),
        };
        for data in bound.values.iter_mut().filter(|d| matches!(d.def, Def::Input(..))) {
            if let Type::Tensor(t) | Type::State(t) = &mut data.ty {
                t.shape = t.shape.iter().map(fix).collect();
            }
        }
        bound.infer_again()?;
        Ok(bound)
    }

    /// Infers every type anew, in order, after inputs changed.
    pub(crate) fn infer_again(&mut self) -> Result<(), OpError> {
        // Inner nodes come before the node that owns them, whose type rule reads their types.
        fn walk(g: &mut Graph, block: BlockId) -> Result<(), OpError> {
            for id in g.block(block).nodes.clone() {
                for inner in g.node(id).blocks.clone() {
                    walk(g, inner)?;
                }
                let node = g.node(id).clone();
                let inferred = g.with_block_types(&node.blocks, |t| node.op.infer(t));
                let outputs = inferred.map_err(|e| g.op_error(&node.op, e))?;
                for (&v, (ty, known)) in node.outputs.iter().zip(outputs.0) {
                    let data = &mut g.values[v.index()];
                    (data.ty, data.known) = (ty, known);
                }
            }
            Ok(())
        }
        walk(self, BlockId::BODY)
    }

    /// Drops nodes whose outputs nobody reads; returns how many. An op without outputs is there
    /// for its effect (`write_state`): it stays, and so do all ops around it.
    pub fn remove_dead(&mut self) -> usize {
        let mut live = vec![false; self.nodes.len()];
        let mut work: Vec<Value> = self.outputs().to_vec();
        self.mark_effects(BlockId::BODY, &mut live, &mut work);
        let mut seen = vec![false; self.values.len()];
        while let Some(v) = work.pop() {
            if std::mem::replace(&mut seen[v.index()], true) {
                continue;
            }
            let Def::Node(id, _) = self.value(v).def else { continue };
            if std::mem::replace(&mut live[id.index()], true) {
                continue;
            }
            work.extend(self.node(id).op.operands());
            for &b in &self.node(id).blocks {
                work.extend(&self.block(b).outputs);
            }
        }
        self.listed.iter_mut().zip(&live).for_each(|(listed, live)| *listed &= live);
        let before: usize = self.blocks.iter().map(|b| b.nodes.len()).sum();
        self.blocks.iter_mut().for_each(|b| b.nodes.retain(|id| live[id.index()]));
        for users in &mut self.users {
            users.retain(|id| live[id.index()]);
        }
        before - self.blocks.iter().map(|b| b.nodes.len()).sum::<usize>()
    }

    /// Marks the nodes of `block` that have an effect, or have one inside, and adds what they read
    /// to `work`. Is there one?
    fn mark_effects(&self, block: BlockId, live: &mut [bool], work: &mut Vec<Value>) -> bool {
        let mut any = false;
        for &id in &self.block(block).nodes {
            let node = self.node(id);
            let mut effect = node.outputs.is_empty();
            for &inner in &node.blocks {
                effect |= self.mark_effects(inner, live, work);
            }
            if effect {
                live[id.index()] = true;
                work.extend(node.op.operands());
                node.blocks.iter().for_each(|&b| work.extend(&self.block(b).outputs));
            }
            any |= effect;
        }
        any
    }
}

impl Program {
    pub fn new(opset: Opset, functions: Vec<Graph>) -> Program {
        Program { opset, functions, metadata: BTreeMap::new() }
    }

    pub fn function(&self, name: &str) -> Option<&Graph> {
        self.functions.iter().find(|f| f.name == name)
    }
}
