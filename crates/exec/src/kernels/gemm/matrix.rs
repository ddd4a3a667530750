//! Matrices as views: what is read in any layout, and what is written as a list of rows.

/// A matrix to read: element `(r, c)` is `data[r * row_stride + c * col_stride]`.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    data: &'a [f32],
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) row_stride: usize,
    pub(super) col_stride: usize,
}

impl<'a> View<'a> {
    /// Rows one after another.
    pub fn new(data: &'a [f32], rows: usize, cols: usize) -> View<'a> {
        View::strided(data, rows, cols, cols, 1)
    }

    /// Any strides, zero (a broadcast) included.
    pub fn strided(
        data: &'a [f32],
        rows: usize,
        cols: usize,
        row_stride: usize,
        col_stride: usize,
    ) -> View<'a> {
        let view = View { data, rows, cols, row_stride, col_stride };
        if rows > 0 && cols > 0 {
            let last = (rows - 1) * row_stride + (cols - 1) * col_stride;
            assert!(last < data.len(), "a view's last element, {last}, lies in its data");
        }
        view
    }

    /// The same numbers with rows and columns exchanged.
    pub fn transposed(self) -> View<'a> {
        View {
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            ..self
        }
    }

    /// How many rows there are.
    pub fn n_rows(&self) -> usize {
        self.rows
    }

    /// How many columns there are.
    pub fn n_cols(&self) -> usize {
        self.cols
    }

    /// From one number of a row to the next.
    pub(in crate::kernels) fn col_stride(&self) -> usize {
        self.col_stride
    }

    /// `n` rows from row `first`.
    pub(in crate::kernels) fn rows_from(self, first: usize, n: usize) -> View<'a> {
        let start = (first * self.row_stride).min(self.data.len());
        View { data: &self.data[start..], rows: n, ..self }
    }

    /// `n` columns from column `first`.
    pub(crate) fn columns(self, first: usize, n: usize) -> View<'a> {
        let start = (first * self.col_stride).min(self.data.len());
        View { data: &self.data[start..], cols: n, ..self }
    }

    /// The number in row `r`, column `c`.
    #[inline(always)]
    pub fn at(&self, r: usize, c: usize) -> f32 {
        self.data[r * self.row_stride + c * self.col_stride]
    }

    /// `len` numbers of row `r` from column `c`; only for a `col_stride` of 1.
    #[inline(always)]
    pub(in crate::kernels) fn row(&self, r: usize, c: usize, len: usize) -> &'a [f32] {
        debug_assert!(self.col_stride == 1 || self.cols <= 1);
        &self.data[r * self.row_stride + c..][..len]
    }

    /// `len` numbers of column `c` from row `r`; only for a `row_stride` of 1.
    #[inline(always)]
    pub(super) fn col(&self, r: usize, c: usize, len: usize) -> &'a [f32] {
        &self.cols_from(r, c)[..len]
    }

    /// Everything from row `r`, column `c` on; only for a `row_stride` of 1.
    #[inline(always)]
    pub(super) fn cols_from(&self, r: usize, c: usize) -> &'a [f32] {
        debug_assert!(self.row_stride == 1 || self.rows <= 1);
        &self.data[r + c * self.col_stride..]
    }
}

/// A matrix to write, as the list of its rows.
///
/// Rows may lie anywhere, so a matrix divides by rows and by columns into parts that different
/// threads write, without unsafe code: heads side by side in one buffer, panels of one product.
#[derive(Debug, Default)]
pub struct Rows<'a> {
    pub(super) rows: Vec<&'a mut [f32]>,
}

impl<'a> Rows<'a> {
    /// Rows of `cols` numbers, one after another.
    pub fn new(data: &'a mut [f32], rows: usize, cols: usize) -> Rows<'a> {
        Rows::strided(data, rows, cols, cols)
    }

    /// Rows of `cols` numbers that begin every `row_stride`.
    pub fn strided(data: &'a mut [f32], rows: usize, cols: usize, row_stride: usize) -> Rows<'a> {
        assert!(cols <= row_stride || rows <= 1, "rows of {cols} overlap at stride {row_stride}");
        if rows == 0 || cols == 0 {
            return Rows { rows: (0..rows).map(|_| Default::default()).collect() };
        }
        let rows: Vec<_> =
            data.chunks_mut(row_stride.max(1)).take(rows).map(|r| &mut r[..cols]).collect();
        Rows { rows }
    }

    /// How many rows there are.
    pub fn n_rows(&self) -> usize {
        self.rows.len()
    }

    /// How many columns there are; zero without rows.
    pub fn n_cols(&self) -> usize {
        self.rows.first().map_or(0, |row| row.len())
    }

    /// Every row, to be written.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut [f32]> {
        self.rows.iter_mut().map(|row| &mut **row)
    }

    /// Row `r`, to be written.
    pub fn row_mut(&mut self, r: usize) -> &mut [f32] {
        self.rows[r]
    }

    /// The first `at` columns leave, the others stay.
    pub fn take_cols(&mut self, at: usize) -> Rows<'a> {
        let rows =
            self.rows.iter_mut().map(|row| row.split_off_mut(..at).expect("columns within a row"));
        Rows { rows: rows.collect() }
    }

    /// The first `at` rows leave, the others stay.
    pub fn take_rows(&mut self, at: usize) -> Rows<'a> {
        let rest = self.rows.split_off(at);
        Rows { rows: std::mem::replace(&mut self.rows, rest) }
    }
}
