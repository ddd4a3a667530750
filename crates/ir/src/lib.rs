//! What a model is: Core ML's MIL as Rust values.
//!
//! [`Program`] holds [`Graph`]s (functions) of [`Node`]s, each an [`Op`]: a closed enum, one
//! declaration per op in [`ops`]. Types are inferred when a node is added ([`OpDef::infer`]),
//! [`verify`] finds everything wrong with a graph, [`text`] prints and parses it without loss,
//! and an [`Edit`] is how a rewrite says what it wants changed.
//!
//! This crate knows no file, no clock and no chip.

mod compressed;
mod dims;
mod dtype;
mod edit;
mod graph;
mod infer;
mod names;
mod op;
pub mod ops;
mod tensor;
pub mod text;
mod types;
mod verify;

pub use dims::Calculation;
pub use dtype::{DType, Opset};
pub use edit::{Change, Edit};
pub use graph::{
    Binding, Block, BlockId, Def, Graph, Node, NodeId, OpError, Origin, Program, Symbols, Value,
    ValueData,
};
pub use infer::{Known, Outputs, TypeError, Types, broadcast_shapes, resolve_axis};
pub use op::{Arg, ArgError, Args, Attr, Declared, Fields, Number, OpDef, Param, Work};
pub use ops::Op;
pub use tensor::{Elements, SizeError, Step, Tensor};
pub use types::{Dim, Symbol, TensorType, Type};
pub use verify::{Finding, verify, verify_program};
