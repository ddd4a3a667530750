//! Which operation of a message became which node of the ir.

use std::collections::{BTreeMap, HashMap};

use russet_ir::{Graph, NodeId};

/// Of every function by name.
pub type Links = BTreeMap<String, FunctionLinks>;

/// Of one function's own block; inner blocks belong to the operation that has them.
#[derive(Debug, Clone)]
pub struct FunctionLinks {
    /// The function as it was read: a node that is still equal to its own is unchanged.
    pub graph: Graph,
    /// Index of the operation a node is.
    pub operations: HashMap<NodeId, usize>,
    /// Constants that are no operation but stand within one, or are one that is read as a value
    /// only by ops that are kept whole: nodes made for the operation with this index.
    pub made_for: HashMap<NodeId, usize>,
}
