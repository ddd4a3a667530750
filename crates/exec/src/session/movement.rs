//! Ops that only move elements, as views where nothing has to move.

use std::sync::Arc;

use russet_ir::ops::{Cast, Concat, SliceAxis, SliceByIndex, SliceUpdate};
use russet_ir::{Op, Type, Value};

use super::buffer::{Buffer, Slot};
use super::run::Run;
use crate::ExecError;
use crate::ane::Rule;
use crate::kernels::rounding::Rounding;
use crate::kernels::strided::{self, Axis};
use crate::ops::checked_len;

impl Run<'_> {
    /// Floats as other floats: what is stored is rounded already, but for sums that are kept wide.
    pub(super) fn cast(&mut self, op: &Cast, out: Value) -> Result<bool, ExecError> {
        let rounding = self.session.rounding;
        let rounded = rounding == Rounding::F32 || rounding.has(Rule::Fp16Residual);
        let Some(x) = self.float(op.x).filter(|_| op.dtype.is_float() && rounded) else {
            return Ok(false);
        };
        self.put(out, x);
        Ok(true)
    }

    pub(super) fn slice(&mut self, op: &SliceByIndex, out: Value) -> Result<bool, ExecError> {
        let Some(x) = self.float(op.x) else { return Ok(false) };
        let Some(chosen) = self.chosen(op, &x)? else { return Ok(false) };
        // A slice that changes numbers is no view.
        let inside = chosen.last().is_some_and(|s| s.start > 0);
        if inside && self.rounding().has(Rule::OffsetSlice) {
            return Ok(false);
        }
        self.put(out, part(&x, &chosen));
        Ok(true)
    }

    /// What a slice takes of each axis; `None` where it is for the plain path to say.
    fn chosen(&self, op: &SliceByIndex, x: &Buffer) -> Result<Option<Vec<SliceAxis>>, ExecError> {
        let (begin, end) = (self.ints(op.begin)?, self.ints(op.end)?);
        if begin.len() != x.axes.len() || end.len() != x.axes.len() {
            return Ok(None);
        }
        let axis = |i: usize| op.axis(i, x.axes[i].len as u64, begin[i], end[i]);
        let all: Option<Vec<SliceAxis>> = (0..x.axes.len()).map(axis).collect();
        Ok(all.filter(|all| all.iter().all(|s| s.step > 0)))
    }

    pub(super) fn concat(&mut self, op: &Concat, out: Value) -> Result<bool, ExecError> {
        let parts: Option<Vec<Buffer>> = op.values.iter().map(|&v| self.float(v)).collect();
        let Some(parts) = parts.filter(|_| !op.interleave) else { return Ok(false) };
        let Some(first) = parts.first() else { return Ok(false) };
        let mut shape = first.shape();
        let Some(axis) = russet_ir::resolve_axis(op.axis, shape.len()) else { return Ok(false) };
        let fits = |b: &Buffer| {
            let other = b.shape();
            other.len() == shape.len()
                && (0..shape.len()).all(|i| i == axis || other[i] == shape[i])
        };
        if !parts.iter().all(fits) {
            return Ok(false);
        }
        shape[axis] = parts.iter().map(|b| b.axes[axis].len).sum();
        let mut data = self.take(checked_len(&shape)?);
        let inner: usize = shape[axis + 1..].iter().product();
        let outer: usize = shape[..axis].iter().product();
        let row = shape[axis] * inner;
        let mut at = 0;
        for b in &parts {
            let n = b.axes[axis].len * inner;
            if n > 0 {
                for i in 0..outer {
                    let start = strided::offset(b.start, &b.axes[..axis], i);
                    let to = &mut data[i * row + at..][..n];
                    strided::copy(&b.data, start, b.axes[axis..].to_vec(), to);
                }
            }
            at += n;
        }
        self.put(out, Buffer::new(data, &shape));
        Ok(true)
    }

    /// Overwrites part of `x`, in place where nobody reads it any more.
    pub(super) fn slice_update(&mut self, op: &SliceUpdate, out: Value) -> Result<bool, ExecError> {
        let (Some(x), Some(update)) = (self.float(op.x), self.float(op.update)) else {
            return Ok(false);
        };
        let Some(chosen) = self.chosen(&op.slice(), &x)? else { return Ok(false) };
        drop(x);
        if let Some(state) = self.overwritten(op.x, out) {
            self.set_slot(state, Slot::Empty);
        }
        let Some((mut data, axes)) = self.owned(op.x) else { return Ok(false) };
        let whole = Buffer { axes, ..Buffer::new(Vec::new(), &[]) };
        let place = part(&whole, &chosen);
        let shape = place.shape();
        if update.shape() != shape {
            return Err(self.fail(format!("an update of {:?} for {shape:?}", update.shape())));
        }
        copy_into(&update, &mut data, &place);
        self.put(out, Buffer { data: Arc::new(data), ..whole });
        Ok(true)
    }

    /// The state that `x` was read from, when all that becomes of it is to be replaced by `out`.
    fn overwritten(&self, x: Value, out: Value) -> Option<Value> {
        let g = &self.session.graph;
        let Some(Op::ReadState(read)) = g.op(x) else { return None };
        let state = read.input;
        let [user] = g.users(out) else { return None };
        let Op::WriteState(write) = &g.node(*user).op else { return None };
        let twice = g.users(state).len() == 2 && !g.is_output(out) && g.is_listed(*user);
        (write.input == state && twice && matches!(g.ty(state), Type::State(_))).then_some(state)
    }
}

/// A view of what is chosen of each axis.
fn part(x: &Buffer, chosen: &[SliceAxis]) -> Buffer {
    let mut start = x.start;
    let mut axes = Vec::new();
    for (axis, s) in x.axes.iter().zip(chosen) {
        start += s.start as usize * axis.stride.unsigned_abs();
        if !s.squeezed {
            axes.push(Axis { len: s.n as usize, stride: axis.stride * s.step as isize });
        }
    }
    Buffer { data: x.data.clone(), start, axes }
}

/// Copies every element of `from` to its place of the same shape.
fn copy_into(from: &Buffer, to: &mut [f32], place: &Buffer) {
    let Some((last, outer)) = place.axes.split_last() else {
        to[place.start] = from.data[from.start];
        return;
    };
    let (stride, from_last) = (last.stride as usize, from.axes[outer.len()]);
    let n_lines: usize = outer.iter().map(|a| a.len).product();
    for i in (0..n_lines).filter(|_| last.len > 0) {
        let to_start = strided::offset(place.start, outer, i);
        let from_start = strided::offset(from.start, &from.axes[..outer.len()], i);
        for k in 0..last.len {
            to[to_start + k * stride] = from.data[from_start + k * from_last.stride as usize];
        }
    }
}
