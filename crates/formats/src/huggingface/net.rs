//! A graph under construction that knows which module of the source it is in.

use std::path::{Path, PathBuf};

use russet_ir::ops::*;
use russet_ir::{BlockId, Graph, Op, Origin, Tensor, Value};

use super::json::Activation;
use super::weights::Weights;
use crate::Error;

/// Has a linear layer a bias?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bias {
    Present,
    Absent,
}

impl Bias {
    pub fn when(present: bool) -> Bias {
        if present { Bias::Present } else { Bias::Absent }
    }
}

pub struct Net {
    pub graph: Graph,
    /// The module that new nodes come from, in the source's own words.
    module: String,
    /// For errors.
    file: PathBuf,
}

impl Net {
    /// An empty function; `file` is for errors.
    pub fn new(function: &str, file: &Path) -> Net {
        Net { graph: Graph::new(function), module: String::new(), file: file.to_owned() }
    }

    /// New nodes come from `module`.
    pub fn enter(&mut self, module: &str) {
        self.module = module.to_owned();
    }

    /// Adds an op with one output. Names are distinct because modules are.
    pub fn op(&mut self, op: impl Into<Op>, name: &str) -> Result<Value, Error> {
        Ok(self.ops(op, name)?[0])
    }

    /// Adds an op with any number of outputs.
    pub fn ops(&mut self, op: impl Into<Op>, name: &str) -> Result<Vec<Value>, Error> {
        let origin = Origin::source(&self.module);
        let names = [name.to_owned()];
        let added = self.graph.push_node(BlockId::BODY, op.into(), &names, vec![], origin);
        added.map_err(|error| Error::Op {
            file: self.file.clone(),
            at: self.module.clone(),
            error: Box::new(error),
        })
    }

    /// Adds an op without an output.
    pub fn effect(&mut self, op: impl Into<Op>) -> Result<(), Error> {
        let origin = Origin::source(&self.module);
        let added = self.graph.push_node(BlockId::BODY, op.into(), &[], vec![], origin);
        added.map(|_| ()).map_err(|error| Error::Op {
            file: self.file.clone(),
            at: self.module.clone(),
            error: Box::new(error),
        })
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

    /// The linear layer `module` with a bias, from `n_in` to `n_out` columns.
    pub fn linear(
        &mut self,
        weights: &Weights,
        module: &str,
        x: Value,
        columns: (u64, u64),
        name: &str,
    ) -> Result<Value, Error> {
        self.linear_with(weights, module, x, columns, Bias::Present, name)
    }

    /// The linear layer `module`, from `n_in` to `n_out` columns.
    pub fn linear_with(
        &mut self,
        weights: &Weights,
        module: &str,
        x: Value,
        (n_in, n_out): (u64, u64),
        bias: Bias,
        name: &str,
    ) -> Result<Value, Error> {
        self.enter(module);
        let weight = weights.get(&format!("{module}.weight"), &[n_out, n_in])?;
        let weight = self.constant(weight, &format!("{name}_weight"))?;
        let bias = match bias {
            Bias::Absent => None,
            Bias::Present => {
                let bias = weights.get(&format!("{module}.bias"), &[n_out])?;
                Some(self.constant(bias, &format!("{name}_bias"))?)
            }
        };
        self.op(Linear { x, weight, bias }, name)
    }

    /// A linear layer of weights that have been fetched: `[n_out, n_in]`, `[n_out]`.
    pub fn linear_of(
        &mut self,
        x: Value,
        weight: Tensor,
        bias: Option<Tensor>,
        name: &str,
    ) -> Result<Value, Error> {
        let weight = self.constant(weight, &format!("{name}_weight"))?;
        let bias = match bias {
            Some(bias) => Some(self.constant(bias, &format!("{name}_bias"))?),
            None => None,
        };
        self.op(Linear { x, weight, bias }, name)
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

    /// The root-mean-square norm over the last axis, scaled by `gamma` `[n]`.
    pub fn rms_norm(
        &mut self,
        gamma: Tensor,
        x: Value,
        epsilon: f32,
        name: &str,
    ) -> Result<Value, Error> {
        let square = self.op(Square { x }, &format!("{name}_square"))?;
        let mean = ReduceMean { x: square, axes: Some(vec![-1]), keep_dims: true };
        let mean = self.op(mean, &format!("{name}_mean"))?;
        let inverse = self.op(Rsqrt { x: mean, epsilon }, &format!("{name}_inverse"))?;
        let normed = self.op(Mul { x, y: inverse }, &format!("{name}_normed"))?;
        let gamma = self.constant(gamma, &format!("{name}_gamma"))?;
        self.op(Mul { x: normed, y: gamma }, name)
    }

    pub fn activation(
        &mut self,
        activation: Activation,
        x: Value,
        name: &str,
    ) -> Result<Value, Error> {
        match activation {
            Activation::Gelu(mode) => self.op(Gelu { x, mode }, name),
            Activation::Relu => self.op(Relu { x }, name),
            Activation::Silu => self.op(Silu { x }, name),
            Activation::Tanh => self.op(Tanh { x }, name),
            Activation::QuickGelu => {
                let slope = self.scalar(1.702, &format!("{name}_slope"))?;
                let steep = self.op(Mul { x, y: slope }, &format!("{name}_steep"))?;
                let gate = self.op(Sigmoid { x: steep }, &format!("{name}_gate"))?;
                self.op(Mul { x, y: gate }, name)
            }
        }
    }

    /// `x` under another shape, -1 for one extent that follows from the others.
    pub fn reshape(&mut self, x: Value, shape: &[i32], name: &str) -> Result<Value, Error> {
        let shape = self.ints(shape, &format!("{name}_shape"))?;
        self.op(Reshape { x, shape }, name)
    }

    pub fn transpose(&mut self, x: Value, perm: &[i32], name: &str) -> Result<Value, Error> {
        self.op(Transpose { x, perm: perm.to_vec() }, name)
    }

    /// The elements from `begin` to `end` of each axis, 0 as `end` for all there are.
    pub fn slice(
        &mut self,
        x: Value,
        begin: &[i32],
        end: &[i32],
        name: &str,
    ) -> Result<Value, Error> {
        let all = Some(end.iter().map(|&e| e == 0).collect());
        let begin = self.ints(begin, &format!("{name}_begin"))?;
        let end = self.ints(end, &format!("{name}_end"))?;
        let (stride, begin_mask, squeeze_mask) = (None, None, None);
        self.op(
            SliceByIndex { x, begin, end, stride, begin_mask, end_mask: all, squeeze_mask },
            name,
        )
    }
}
