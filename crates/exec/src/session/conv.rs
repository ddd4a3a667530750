//! Convolutions in buffers that are used again, with the activation that follows them.

use std::collections::{BTreeMap, HashSet};

use russet_ir::ops::Conv;
use russet_ir::{Graph, NodeId, Op, Value};

use super::buffer::Buffer;
use super::dense::{activation, only_user};
use super::run::Run;
use crate::ExecError;
use crate::kernels::gemm::Activation;
use crate::kernels::strided;
use crate::ops::{ConvShape, checked_len};

/// A convolution and the activation of its result.
pub(super) struct Active {
    pub conv: NodeId,
    activation: Activation,
    pub out: Value,
}

/// The convolutions among `nodes` whose result only an activation among them reads, by that node.
pub(super) fn active(g: &Graph, nodes: &[NodeId]) -> BTreeMap<NodeId, Active> {
    let all: HashSet<NodeId> = nodes.iter().copied().collect();
    let one = |&id: &NodeId| {
        let Op::Conv(_) = &g.node(id).op else { return None };
        let user = only_user(g, *g.node(id).outputs.first()?).filter(|u| all.contains(u))?;
        let activation = activation(&g.node(user).op)?;
        Some((user, Active { conv: id, activation, out: g.node(user).outputs[0] }))
    };
    nodes.iter().filter_map(one).collect()
}

impl Active {
    /// `false` when the two ops have to be run one after the other.
    pub fn run(&self, run: &mut Run<'_>) -> Result<bool, ExecError> {
        let Op::Conv(op) = &run.session.graph.node(self.conv).op else { return Ok(false) };
        run.conv(op, self.activation, self.out)
    }
}

impl Run<'_> {
    pub(super) fn conv(
        &mut self,
        op: &Conv,
        activation: Activation,
        out: Value,
    ) -> Result<bool, ExecError> {
        let (Some(x), Some(w)) = (self.float(op.x), self.float(op.weight)) else {
            return Ok(false);
        };
        let bias = op.bias.map(|b| self.float(b));
        let bias = match &bias {
            None => None,
            Some(Some(b)) if b.contiguous().is_some() => b.contiguous(),
            Some(_) => return Ok(false),
        };
        let Some(weight) = w.contiguous() else { return Ok(false) };
        let shape = ConvShape::new(op, &x.shape(), &w.shape(), bias.map(<[f32]>::len));
        let shape = shape.map_err(|why| self.fail(why))?;
        let moved = match x.contiguous() {
            Some(_) => None,
            None => {
                let mut data = self.take(x.n_elements());
                strided::copy(&x.data, x.start, x.axes.clone(), &mut data);
                Some(data)
            }
        };
        let mut data = self.take(checked_len(&shape.out)?);
        let input = moved.as_deref().or(x.contiguous()).expect("moved where it is not");
        shape.run(input, weight, bias, (activation, self.rounding()), &mut data);
        self.put(out, Buffer::new(data, &shape.out));
        if let Some(moved) = moved {
            self.give_back(moved);
        }
        Ok(true)
    }
}
