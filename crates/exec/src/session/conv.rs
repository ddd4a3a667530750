//! Convolutions in buffers that are used again.

use russet_ir::Value;
use russet_ir::ops::Conv;

use super::buffer::Buffer;
use super::run::Run;
use crate::ExecError;
use crate::kernels::strided;
use crate::ops::{ConvShape, checked_len};

impl Run<'_> {
    pub(super) fn conv(&mut self, op: &Conv, out: Value) -> Result<bool, ExecError> {
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
        shape.run(input, weight, bias, self.rounding(), &mut data);
        self.put(out, Buffer::new(data, &shape.out));
        if let Some(moved) = moved {
            self.give_back(moved);
        }
        Ok(true)
    }
}
