//! A graph under construction that knows which module of the source it is in.

use std::path::{Path, PathBuf};

use russet_ir::ops::{Const, LayerNorm, Linear};
use russet_ir::{BlockId, Graph, Op, Origin, Tensor, Value};

use super::weights::Weights;
use crate::Error;

pub struct Net {
    pub graph: Graph,
    /// The module that new nodes come from, in the source's own words.
    module: String,
    /// For errors.
    file: PathBuf,
}

impl Net {
    pub fn new(file: &Path) -> Net {
        Net { graph: Graph::new("main"), module: String::new(), file: file.to_owned() }
    }

    /// New nodes come from `module`.
    pub fn enter(&mut self, module: &str) {
        self.module = module.to_owned();
    }

    /// Adds an op with one output. Names are distinct because modules are.
    pub fn op(&mut self, op: impl Into<Op>, name: &str) -> Result<Value, Error> {
        let origin = Origin::source(&self.module);
        let names = [name.to_owned()];
        let added = self.graph.push_node(BlockId::BODY, op.into(), &names, vec![], origin);
        let outputs = added.map_err(|error| Error::Op {
            file: self.file.clone(),
            at: self.module.clone(),
            error: Box::new(error),
        })?;
        Ok(outputs[0])
    }

    pub fn constant(&mut self, val: Tensor, name: &str) -> Result<Value, Error> {
        self.op(Const { val }, name)
    }

    pub fn scalar(&mut self, value: f32, name: &str) -> Result<Value, Error> {
        self.constant(Tensor::f32(vec![], &[value]), name)
    }

    pub fn ints(&mut self, values: &[i32], name: &str) -> Result<Value, Error> {
        self.constant(Tensor::i32(vec![values.len() as u64], values), name)
    }

    /// The linear layer `module`, from `n_in` to `n_out` columns.
    pub fn linear(
        &mut self,
        weights: &Weights,
        module: &str,
        x: Value,
        (n_in, n_out): (u64, u64),
        name: &str,
    ) -> Result<Value, Error> {
        self.enter(module);
        let weight = weights.get(&format!("{module}.weight"), &[n_out, n_in])?;
        let bias = weights.get(&format!("{module}.bias"), &[n_out])?;
        let weight = self.constant(weight, &format!("{name}_weight"))?;
        let bias = self.constant(bias, &format!("{name}_bias"))?;
        self.op(Linear { x, weight, bias: Some(bias) }, name)
    }

    /// The norm `module` over the last axis, of `n` columns.
    pub fn norm(
        &mut self,
        weights: &Weights,
        module: &str,
        x: Value,
        (n, epsilon): (u64, f32),
        name: &str,
    ) -> Result<Value, Error> {
        self.enter(module);
        let gamma = weights.get(&format!("{module}.weight"), &[n])?;
        let beta = weights.get(&format!("{module}.bias"), &[n])?;
        let gamma = Some(self.constant(gamma, &format!("{name}_gamma"))?);
        let beta = Some(self.constant(beta, &format!("{name}_beta"))?);
        self.op(LayerNorm { x, axes: Some(vec![-1]), gamma, beta, epsilon }, name)
    }
}
