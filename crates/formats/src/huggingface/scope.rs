//! A place in a model: the module it is in the source, and how values made there are called.
//!
//! Families beyond the BERT-like ones are written against this: a layer says what its modules are
//! called below the layer, and full names of tensors and values follow from where it stands.

use russet_ir::ops::*;
use russet_ir::{Op, Tensor, Value};

use super::json::Activation;
use super::net::{Bias, Net};
use super::weights::Weights;
use crate::Error;

pub struct Scope<'a> {
    pub net: &'a mut Net,
    pub weights: &'a Weights,
    /// The module in the source; empty for the model itself.
    module: String,
    /// What names of values begin with; empty for none.
    name: String,
}

impl<'a> Scope<'a> {
    /// The model itself.
    pub fn new(net: &'a mut Net, weights: &'a Weights) -> Scope<'a> {
        Scope { net, weights, module: String::new(), name: String::new() }
    }

    /// The module `module` in this one, values in it being called `name_…`.
    pub fn inside(&mut self, module: &str, name: &str) -> Scope<'_> {
        let (module, name) = (self.module(module), self.named(name));
        Scope { net: &mut *self.net, weights: self.weights, module, name }
    }

    /// The same place, values being called `name_…`.
    pub fn part(&mut self, name: &str) -> Scope<'_> {
        self.inside("", name)
    }

    /// The full name of a module below this one.
    pub fn module(&self, below: &str) -> String {
        joined(&self.module, below, ".")
    }

    /// The full name of a value.
    fn named(&self, name: &str) -> String {
        joined(&self.name, name, "_")
    }

    /// Is there a tensor `name` below this module?
    pub fn has(&self, name: &str) -> bool {
        self.weights.has(&self.module(name))
    }

    /// The tensor `name` below this module.
    pub fn tensor(&self, name: &str, shape: &[u64]) -> Result<Tensor, Error> {
        self.weights.get(&self.module(name), shape)
    }

    /// The same as a constant.
    pub fn weight(&mut self, tensor: &str, shape: &[u64], name: &str) -> Result<Value, Error> {
        let t = self.tensor(tensor, shape)?;
        self.constant(t, name)
    }

    /// An op of this module.
    pub fn op(&mut self, op: impl Into<Op>, name: &str) -> Result<Value, Error> {
        self.net.enter(&self.module);
        let name = self.named(name);
        self.net.op(op, &name)
    }

    /// An op with several outputs.
    pub fn ops(&mut self, op: impl Into<Op>, name: &str) -> Result<Vec<Value>, Error> {
        self.net.enter(&self.module);
        let name = self.named(name);
        self.net.ops(op, &name)
    }

    pub fn constant(&mut self, val: Tensor, name: &str) -> Result<Value, Error> {
        self.op(Const { val }, name)
    }

    pub fn scalar(&mut self, value: f32, name: &str) -> Result<Value, Error> {
        self.constant(Tensor::f32(vec![], &[value]), name)
    }

    pub fn add(&mut self, x: Value, y: Value, name: &str) -> Result<Value, Error> {
        self.op(Add { x, y }, name)
    }

    pub fn mul(&mut self, x: Value, y: Value, name: &str) -> Result<Value, Error> {
        self.op(Mul { x, y }, name)
    }

    /// `x` times a number.
    pub fn scaled(&mut self, x: Value, by: f32, name: &str) -> Result<Value, Error> {
        let y = self.scalar(by, &format!("{name}_factor"))?;
        self.mul(x, y, name)
    }

    pub fn concat(&mut self, values: Vec<Value>, axis: i32, name: &str) -> Result<Value, Error> {
        match values[..] {
            [one] => Ok(one),
            _ => self.op(Concat { values, axis, interleave: false }, name),
        }
    }

    pub fn reshape(&mut self, x: Value, shape: &[u64], name: &str) -> Result<Value, Error> {
        let shape: Vec<i32> = shape.iter().map(|&n| n as i32).collect();
        let (module, name) = (self.module.clone(), self.named(name));
        self.net.enter(&module);
        self.net.reshape(x, &shape, &name)
    }

    pub fn transpose(&mut self, x: Value, perm: &[i32], name: &str) -> Result<Value, Error> {
        self.op(Transpose { x, perm: perm.to_vec() }, name)
    }

    /// Elements `from..to` of `axis`, of a value of `rank` axes.
    pub fn slice(
        &mut self,
        x: Value,
        (axis, rank): (usize, usize),
        (from, to): (u64, u64),
        name: &str,
    ) -> Result<Value, Error> {
        let mut begin = vec![0; rank];
        let mut end = vec![0; rank];
        (begin[axis], end[axis]) = (from as i32, to as i32);
        let (module, name) = (self.module.clone(), self.named(name));
        self.net.enter(&module);
        self.net.slice(x, &begin, &end, &name)
    }

    /// Equal parts along `axis`.
    pub fn parts(&mut self, x: Value, n: i32, axis: i32, name: &str) -> Result<Vec<Value>, Error> {
        self.ops(Split { x, num_splits: Some(n), split_sizes: None, axis }, name)
    }

    pub fn linear(
        &mut self,
        module: &str,
        x: Value,
        columns: (u64, u64),
        bias: Bias,
        name: &str,
    ) -> Result<Value, Error> {
        let (module, name) = (self.module(module), self.named(name));
        self.net.linear_with(self.weights, &module, x, columns, bias, &name)
    }

    /// The norm `module` over the last axis, of `n` columns.
    pub fn norm(
        &mut self,
        module: &str,
        x: Value,
        columns: (u64, f32),
        name: &str,
    ) -> Result<Value, Error> {
        let (module, name) = (self.module(module), self.named(name));
        self.net.norm(self.weights, &module, x, columns, &name)
    }

    /// The norm over the last axis without weights of its own.
    pub fn plain_norm(&mut self, x: Value, epsilon: f32, name: &str) -> Result<Value, Error> {
        let (gamma, beta) = (None, None);
        self.op(LayerNorm { x, axes: Some(vec![-1]), gamma, beta, epsilon }, name)
    }

    /// The root-mean-square norm `module` over the last axis, of `n` columns.
    pub fn rms_norm(
        &mut self,
        module: &str,
        x: Value,
        (n, epsilon): (u64, f32),
        name: &str,
    ) -> Result<Value, Error> {
        let gamma = self.tensor(&format!("{module}.weight"), &[n])?;
        let (module, name) = (self.module(module), self.named(name));
        self.net.enter(&module);
        self.net.rms_norm(gamma, x, epsilon, &name)
    }

    pub fn activation(&mut self, f: Activation, x: Value, name: &str) -> Result<Value, Error> {
        let (module, name) = (self.module.clone(), self.named(name));
        self.net.enter(&module);
        self.net.activation(f, x, &name)
    }

    /// Rows of the table `module` at `indices`.
    pub fn embedding(
        &mut self,
        module: &str,
        indices: Value,
        shape: [u64; 2],
        name: &str,
    ) -> Result<Value, Error> {
        let table = self.weight(&format!("{module}.weight"), &shape, &format!("{name}_table"))?;
        let gather = Gather { x: table, indices, axis: 0, batch_dims: 0, validate_indices: false };
        self.op(gather, name)
    }
}

fn joined(a: &str, b: &str, by: &str) -> String {
    match (a, b) {
        ("", b) => b.to_owned(),
        (a, "") => a.to_owned(),
        (a, b) => format!("{a}{by}{b}"),
    }
}
