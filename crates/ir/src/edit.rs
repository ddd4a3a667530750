//! What a rewrite wants changed: new nodes, and values they replace.
//!
//! A pass never touches a graph. It builds an [`Edit`] against it, with the same type inference
//! as the graph itself; [`Graph::apply`] makes the change when the driver has decided to.

use std::collections::HashSet;
use std::sync::Arc;

use crate::graph::{BlockId, Def, NodeId, Origin, ValueData};
use crate::ops::Const;
use crate::{Graph, Known, Op, OpError, Outputs, Tensor, Type, Types, Value};

/// Nodes to be added to a graph, under construction.
pub struct Edit<'g> {
    graph: &'g Graph,
    values: Vec<ValueData>,
    nodes: Vec<NewNode>,
    replace: Vec<(Value, Value)>,
    keep: Vec<Value>,
}

/// A finished edit, detached from its graph.
#[derive(Debug, Clone)]
pub struct Change {
    first_value: usize,
    nodes: Vec<NewNode>,
    /// Old value, new value.
    pub replace: Vec<(Value, Value)>,
    keep: Vec<Value>,
}

#[derive(Debug, Clone)]
struct NewNode {
    op: Op,
    n_outputs: usize,
    name: String,
    types: Vec<(Type, Option<Known>)>,
}

impl<'g> Edit<'g> {
    pub fn of(graph: &'g Graph) -> Edit<'g> {
        Edit { graph, values: Vec::new(), nodes: Vec::new(), replace: Vec::new(), keep: Vec::new() }
    }

    /// Types of the graph's values and of those added so far.
    pub fn types(&self) -> Types<'_> {
        Types { base: &self.graph.values, extra: &self.values, blocks: &[] }
    }

    /// Adds an op with one output, named `name` (made unique when applied).
    pub fn push(&mut self, op: impl Into<Op>, name: &str) -> Result<Value, OpError> {
        Ok(self.push_all(op, name)?[0])
    }

    /// Adds an op and returns all its outputs.
    pub fn push_all(&mut self, op: impl Into<Op>, name: &str) -> Result<Vec<Value>, OpError> {
        let op = op.into();
        let inferred = op.infer(&self.types());
        let Outputs(types) = inferred.map_err(|e| self.graph.op_error(&op, e))?;
        let node = self.nodes.len();
        let first = self.graph.values.len() + self.values.len();
        for (i, (ty, known)) in types.iter().enumerate() {
            // The definition is set when the edit is applied; until then nobody asks for it.
            let def = Def::Input(BlockId::BODY, node + i);
            let (ty, known) = (ty.clone(), known.clone());
            self.values.push(ValueData { name: name.to_owned(), ty, def, known });
        }
        let n_outputs = types.len();
        self.nodes.push(NewNode { op, n_outputs, name: name.to_owned(), types });
        Ok((first..first + n_outputs).map(Value::from_index).collect())
    }

    /// Adds a constant.
    pub fn constant(&mut self, val: Tensor, name: &str) -> Value {
        self.push(Const { val }, name).expect("a constant has no operands")
    }

    /// Lets `new` take the place of `old` wherever it is read.
    pub fn replace(mut self, old: Value, new: Value) -> Edit<'g> {
        self.replace.push((old, new));
        self
    }

    /// Lets `v` stay for its other readers, if it has any: the edit makes no work twice by it.
    pub fn keep(mut self, v: Value) -> Edit<'g> {
        self.keep.push(v);
        self
    }

    pub fn finish(self) -> Change {
        Change {
            first_value: self.graph.values.len(),
            nodes: self.nodes,
            replace: self.replace,
            keep: self.keep,
        }
    }
}

impl Change {
    /// Values of the graph that the new nodes read or that replace others.
    pub fn reads(&self) -> Vec<Value> {
        let operands = self.nodes.iter().flat_map(|n| n.op.operands());
        let mut all: Vec<Value> = operands
            .chain(self.replace.iter().map(|r| r.1))
            .filter(|v| v.index() < self.first_value)
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Values that stay for other readers.
    pub fn kept(&self) -> &[Value] {
        &self.keep
    }

    /// The ops that would be added, in order.
    pub fn ops(&self) -> impl Iterator<Item = &Op> {
        self.nodes.iter().map(|n| &n.op)
    }
}

impl Graph {
    /// Nodes that make the replaced values out of what the change reads or keeps: those it makes
    /// useless. Constants are not among them.
    pub fn region(&self, change: &Change) -> Vec<NodeId> {
        let mut stop = change.reads();
        stop.extend(&change.keep);
        let mut region = Vec::new();
        let mut seen = HashSet::new();
        // Depth first, a node after what it reads, so that they stand in an order in which they run.
        let mut work: Vec<(Value, bool)> =
            change.replace.iter().rev().map(|r| (r.0, false)).collect();
        while let Some((v, is_read)) = work.pop() {
            let Def::Node(id, _) = self.value(v).def else { continue };
            if is_read {
                region.push(id);
                continue;
            }
            if stop.contains(&v) || self.node(id).op.is_const() || !seen.insert(id) {
                continue;
            }
            work.push((v, true));
            work.extend(self.node(id).op.operands().iter().rev().map(|&v| (v, false)));
        }
        region
    }

    /// A value inside the change's region that something outside reads, if there is one.
    pub fn blocker(&self, change: &Change) -> Option<Value> {
        let region = self.region(change);
        let replaced = |v: Value| change.replace.iter().any(|r| r.0 == v);
        let inside: HashSet<NodeId> = region.iter().copied().collect();
        let outputs = region.iter().flat_map(|&id| self.node(id).outputs.iter().copied());
        outputs
            .filter(|&v| !replaced(v))
            .find(|&v| self.is_output(v) || self.users(v).iter().any(|user| !inside.contains(user)))
    }

    /// Makes the change: adds the nodes where the first replaced value is made, redirects every
    /// reader, and drops what nobody reads any more. `pass` is recorded as the origin.
    ///
    /// Returns the new values, in the order in which the edit made them.
    pub fn apply(&mut self, change: Change, pass: &Arc<str>) -> Result<Vec<Value>, OpError> {
        assert_eq!(change.first_value, self.values.len(), "an edit of another state of the graph");
        let dying = self.region(&change);
        let origin = self.merged_origin(&dying, pass);
        let (block, at) = self.place(&change);
        let mut added = Vec::new();
        let mut ids = Vec::new();
        for new in change.nodes {
            let names = self.fresh_names(&new.name, new.n_outputs);
            let id = self.add_node(new.op, Outputs(new.types), &names, vec![], origin.clone());
            debug_assert_eq!(self.node(id).outputs.len(), new.n_outputs);
            added.extend(&self.node(id).outputs);
            ids.push(id);
        }
        ids.iter().for_each(|id| self.listed[id.index()] = true);
        self.blocks[block.index()].nodes.splice(at..at, ids.iter().copied());
        let mut retyped = false;
        for (old, new) in change.replace {
            retyped |= self.ty(old) != self.ty(new);
            self.replace_uses(old, new, &ids);
            self.keep_name(old, new);
        }
        self.drop_if_unread(dying);
        if retyped {
            self.infer_again()?;
        }
        Ok(added)
    }

    /// The block and position at which new nodes go: before what makes the last replaced value,
    /// or after it when they are made of it.
    fn place(&self, change: &Change) -> (BlockId, usize) {
        let reads = change.reads();
        let position = |v: Value| match self.value(v).def {
            Def::Input(block, _) => (block, 0),
            Def::Node(id, _) => {
                let after = usize::from(reads.contains(&v));
                let found = (0..self.blocks.len()).find_map(|b| {
                    let at = self.blocks[b].nodes.iter().position(|&n| n == id)?;
                    Some((BlockId::from_index(b), at + after))
                });
                found.expect("a replaced value is in some block")
            }
        };
        let places = change.replace.iter().map(|r| position(r.0));
        places.max_by_key(|p| p.1).unwrap_or((BlockId::BODY, self.block(BlockId::BODY).nodes.len()))
    }

    /// The source of the first node that has one, and every pass that touched them.
    fn merged_origin(&self, nodes: &[NodeId], pass: &Arc<str>) -> Origin {
        let mut merged = Origin::default();
        for origin in nodes.iter().map(|&id| &self.node(id).origin) {
            if merged.source.is_none() {
                merged.source.clone_from(&origin.source);
            }
            for p in &origin.passes {
                if !merged.passes.contains(p) {
                    merged.passes.push(p.clone());
                }
            }
        }
        if merged.passes.last() != Some(pass) {
            merged.passes.retain(|p| p != pass);
            merged.passes.push(pass.clone());
        }
        merged
    }

    /// Redirects every reader of `old` but the nodes just `added`, which may be made of it.
    fn replace_uses(&mut self, old: Value, new: Value, added: &[NodeId]) {
        let (kept, moved): (Vec<NodeId>, Vec<NodeId>) =
            self.users[old.index()].drain(..).partition(|id| added.contains(id));
        self.users[old.index()] = kept;
        for id in moved {
            self.nodes[id.index()].op.map_values(&mut |v| if v == old { new } else { v });
            let users = &mut self.users[new.index()];
            if !users.contains(&id) {
                users.push(id);
            }
        }
        for block in &mut self.blocks {
            block.outputs.iter_mut().filter(|v| **v == old).for_each(|v| *v = new);
        }
    }

    /// A function output keeps its name: it is part of the function's interface.
    fn keep_name(&mut self, old: Value, new: Value) {
        if self.outputs().contains(&new) && matches!(self.value(new).def, Def::Node(..)) {
            let name = self.value(old).name.clone();
            let spare = self.unique_name(&format!("{name}_before"));
            self.rename(old, &spare);
            self.rename(new, &name);
        }
    }

    /// Drops these nodes and then their operands' nodes, as far as nobody reads them.
    fn drop_if_unread(&mut self, nodes: Vec<NodeId>) {
        let mut work = nodes;
        let mut dropped = Vec::new();
        while let Some(id) = work.pop() {
            let node = self.node(id);
            let unread = |&v: &Value| self.users(v).is_empty() && !self.is_output(v);
            let has_effect = node.outputs.is_empty() || !node.blocks.is_empty();
            if dropped.contains(&id) || has_effect || !node.outputs.iter().all(unread) {
                continue;
            }
            let operands = node.op.operands();
            dropped.push(id);
            for v in operands {
                self.users[v.index()].retain(|u| *u != id);
                if let Def::Node(def, _) = self.value(v).def {
                    work.push(def);
                }
            }
        }
        dropped.iter().for_each(|id| self.listed[id.index()] = false);
        for block in &mut self.blocks {
            block.nodes.retain(|id| self.listed[id.index()]);
        }
    }
}
