//! Tensors while running: strided views of shared buffers.

use std::sync::Arc;

use crate::kernels::binary::broadcast_shape;
use crate::kernels::gemm::View;
use crate::kernels::strided::{self, Axis};
use crate::{Array, Numbers};

/// A strided view of a shared buffer of floats; no axis walks backwards.
#[derive(Clone)]
pub(super) struct Buffer {
    pub data: Arc<Vec<f32>>,
    pub start: usize,
    pub axes: Vec<Axis>,
}

/// What is known of a value.
#[derive(Clone)]
pub(super) enum Slot {
    Empty,
    Float(Buffer),
    Other(Arc<Array>),
}

impl Slot {
    pub fn of(array: Array) -> Slot {
        match array.data {
            Numbers::F32(data) => Slot::Float(Buffer::new(data, &array.shape)),
            _ => Slot::Other(Arc::new(array)),
        }
    }
}

impl Buffer {
    pub fn new(data: Vec<f32>, shape: &[usize]) -> Buffer {
        Buffer { data: Arc::new(data), start: 0, axes: strided::axes(shape) }
    }

    pub fn shape(&self) -> Vec<usize> {
        self.axes.iter().map(|a| a.len).collect()
    }

    pub fn n_elements(&self) -> usize {
        match self.axes.iter().any(|a| a.len == 0) {
            true => 0,
            false => self.axes.iter().map(|a| a.len).product(),
        }
    }

    /// The elements, if they lie one after another.
    pub fn contiguous(&self) -> Option<&[f32]> {
        is_dense(self.axes.iter().rev()).then(|| self.elements())
    }

    /// The elements in the order of memory, if they are all of a piece of it.
    pub fn dense(&self) -> Option<&[f32]> {
        let order = self.order();
        is_dense(order.iter().rev().map(|&i| &self.axes[i])).then(|| self.elements())
    }

    /// As many numbers as there are elements; an empty part may begin past the end.
    fn elements(&self) -> &[f32] {
        match self.n_elements() {
            0 => &[],
            n => &self.data[self.start..][..n],
        }
    }

    /// The axes from the outermost in memory to the innermost.
    pub fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.axes.len()).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(self.axes[i].stride));
        order
    }

    /// Axis `i` of the result is axis `order[i]`.
    pub fn permuted(&self, order: &[usize]) -> Buffer {
        Buffer { axes: order.iter().map(|&i| self.axes[i]).collect(), ..self.clone() }
    }

    /// The same elements under another shape, unless they would have to be moved.
    pub fn reshaped(&self, shape: &[usize]) -> Option<Buffer> {
        Some(Buffer { axes: strided::reshaped(&self.axes, shape)?, ..self.clone() })
    }

    /// The axes as seen from a shape this one broadcasts to.
    pub fn broadcast(&self, to: &[usize]) -> Option<Vec<Axis>> {
        if broadcast_shape(&self.shape(), to)? != to {
            return None;
        }
        let n_new = to.len() - self.axes.len();
        let axis = |(i, &len): (usize, &usize)| match i.checked_sub(n_new).map(|i| self.axes[i]) {
            Some(axis) if axis.len == len => axis,
            _ => Axis { len, stride: 0 },
        };
        Some(to.iter().enumerate().map(axis).collect())
    }

    /// Rows over the axes `rows` (in this order), columns along axis `col`; `None` when the rows
    /// do not lie at equal distances.
    pub fn matrix(&self, rows: &[usize], col: usize) -> Option<View<'_>> {
        let rows: Vec<Axis> = rows.iter().map(|&i| self.axes[i]).collect();
        let n_rows = rows.iter().map(|a| a.len).product();
        let row = strided::reshaped(&rows, &[n_rows])?[0];
        let col = self.axes[col];
        let data = self.data.get(self.start..).unwrap_or_default();
        Some(View::strided(data, n_rows, col.len, row.stride as usize, col.stride as usize))
    }
}

/// Do axes, the innermost first, leave no gaps?
fn is_dense<'a>(axes: impl Iterator<Item = &'a Axis>) -> bool {
    let mut expected = 1;
    for axis in axes {
        if axis.len == 0 {
            return true;
        }
        if axis.len != 1 && axis.stride != expected {
            return false;
        }
        expected *= axis.len as isize;
    }
    true
}

/// The last two axes of a view as matrices, the others as a batch of them.
pub(super) struct Matrices<'a> {
    data: &'a [f32],
    batch: Vec<Axis>,
    pub rows: Axis,
    pub cols: Axis,
}

impl<'a> Matrices<'a> {
    pub fn of(x: &'a Buffer, transposed: bool) -> Option<Matrices<'a>> {
        let (batch, matrix) = x.axes.split_at_checked(x.axes.len().checked_sub(2)?)?;
        let (rows, cols) = if transposed { (matrix[1], matrix[0]) } else { (matrix[0], matrix[1]) };
        let data = x.data.get(x.start..).unwrap_or_default();
        Some(Matrices { data, batch: batch.to_vec(), rows, cols })
    }

    pub fn batch_shape(&self) -> Vec<usize> {
        self.batch.iter().map(|a| a.len).collect()
    }

    /// The matrix that broadcasts to place `flat` of a batch of this shape.
    pub fn view(&self, mut flat: usize, shape: &[usize]) -> View<'a> {
        let mut start = 0;
        for (i, &extent) in shape.iter().enumerate().rev() {
            if let Some(j) = (i + self.batch.len()).checked_sub(shape.len()) {
                let axis = self.batch[j];
                start += if axis.len == 1 { 0 } else { flat % extent * axis.stride as usize };
            }
            flat /= extent;
        }
        let (rows, cols) = (self.rows, self.cols);
        let data = &self.data[start.min(self.data.len())..];
        View::strided(data, rows.len, cols.len, rows.stride as usize, cols.stride as usize)
    }
}
