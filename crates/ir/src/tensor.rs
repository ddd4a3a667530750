//! Constant tensors: bytes somewhere, or a recipe over them that runs only when they are needed.
//!
//! A model's weights stay where they are (usually a mapped file) while the graph is rewritten.
//! Narrowing them to fp16 or scaling them is recorded as a [`Step`] and happens while the package
//! is written, a piece at a time, so that peak memory does not grow with the model.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};

use crate::compressed::Compressed;
use crate::{DType, TensorType};

/// A constant: element type, fixed shape, contents.
#[derive(Clone)]
pub struct Tensor {
    pub dtype: DType,
    pub shape: Vec<u64>,
    data: Data,
}

#[derive(Clone)]
enum Data {
    /// Little-endian elements, packed; the length is exactly that of the type.
    Bytes(Bytes),
    Strings(Arc<[String]>),
    /// `step` applied to the elements `start..start + n` of `from`.
    Derived {
        from: Arc<Tensor>,
        start: u64,
        step: Step,
    },
    /// The elements from `start` on of what a reader decodes.
    Computed {
        from: Arc<dyn Elements>,
        start: u64,
    },
    /// Elements that lie in a file that is not there: they read as zeros, see
    /// [`Tensor::is_absent`].
    Absent,
    /// The elements from `start` on of `from`, a matrix of `rows` rows, read column by column.
    Transposed {
        from: Arc<Tensor>,
        rows: u64,
        start: u64,
    },
    /// The elements from `start` on of a compressed weight of shape `whole`.
    Compressed {
        from: Arc<Compressed>,
        whole: Arc<[u64]>,
        start: u64,
    },
}

/// Floats in a form that only the reader of some file format knows.
pub trait Elements: Send + Sync {
    /// Appends elements `start..start + n` to `out`; there are as many as the tensor has.
    fn floats(&self, start: u64, n: u64, out: &mut Vec<f32>);
    /// The bytes they are decoded from, if they can be told.
    fn bytes(&self) -> Option<&Bytes>;
}

/// One elementwise change to a constant, applied when its bytes are asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// To the tensor's own dtype, rounding half to even.
    Cast,
    /// Multiplied in f32.
    Scale(f32),
}

/// Contents that do not fit the stated type.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{dtype}{shape:?} needs {needed} bytes, there are {found}")]
pub struct SizeError {
    pub dtype: DType,
    pub shape: Vec<u64>,
    /// `u64::MAX` when the size itself overflows.
    pub needed: u64,
    pub found: u64,
}

/// Elements converted at once while a derived tensor is read.
const CHUNK: u64 = 1 << 16;

impl Tensor {
    /// Little-endian packed elements of the stated type. Not for strings.
    pub fn new(dtype: DType, shape: Vec<u64>, bytes: Bytes) -> Result<Tensor, SizeError> {
        let n = crate::types::count(shape.iter().copied());
        let needed = n.and_then(|n| dtype.bytes(n)).unwrap_or(u64::MAX);
        if needed != bytes.len() as u64 || dtype == DType::String {
            return Err(SizeError { dtype, shape, needed, found: bytes.len() as u64 });
        }
        Ok(Tensor { dtype, shape, data: Data::Bytes(bytes) })
    }

    /// A constant of which only the type is known, its file being elsewhere. Not for strings.
    pub fn absent(dtype: DType, shape: Vec<u64>) -> Result<Tensor, SizeError> {
        let n = crate::types::count(shape.iter().copied());
        let needed = n.and_then(|n| dtype.bytes(n)).unwrap_or(u64::MAX);
        if needed == u64::MAX || dtype == DType::String {
            return Err(SizeError { dtype, shape, needed, found: 0 });
        }
        Ok(Tensor { dtype, shape, data: Data::Absent })
    }

    /// Floats of `shape` that `from` decodes when they are read.
    pub fn computed(shape: Vec<u64>, from: Arc<dyn Elements>) -> Result<Tensor, SizeError> {
        let dtype = DType::F32;
        let n = crate::types::count(shape.iter().copied());
        let needed = n.and_then(|n| dtype.bytes(n)).unwrap_or(u64::MAX);
        match needed {
            u64::MAX => Err(SizeError { dtype, shape, needed, found: 0 }),
            _ => Ok(Tensor { dtype, shape, data: Data::Computed { from, start: 0 } }),
        }
    }

    /// Is it one whose elements are not there? Whoever needs them asks first.
    pub fn is_absent(&self) -> bool {
        match &self.data {
            Data::Absent => true,
            Data::Derived { from, .. } | Data::Transposed { from, .. } => from.is_absent(),
            _ => false,
        }
    }

    pub fn strings(shape: Vec<u64>, strings: Vec<String>) -> Result<Tensor, SizeError> {
        let needed = crate::types::count(shape.iter().copied()).unwrap_or(u64::MAX);
        if needed != strings.len() as u64 {
            let found = strings.len() as u64;
            return Err(SizeError { dtype: DType::String, shape, needed, found });
        }
        Ok(Tensor { dtype: DType::String, shape, data: Data::Strings(strings.into()) })
    }

    /// # Panics
    /// When `values` are not as many as `shape` says: the caller made both.
    pub fn f32(shape: Vec<u64>, values: &[f32]) -> Tensor {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Tensor::new(DType::F32, shape, bytes.into()).expect("as many values as the shape has")
    }

    /// # Panics
    /// When `values` are not as many as `shape` says: the caller made both.
    pub fn i32(shape: Vec<u64>, values: &[i32]) -> Tensor {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Tensor::new(DType::I32, shape, bytes.into()).expect("as many values as the shape has")
    }

    pub fn bool(value: bool) -> Tensor {
        Tensor::new(DType::Bool, vec![], vec![u8::from(value)].into()).expect("one byte")
    }

    pub fn string(value: &str) -> Tensor {
        Tensor::strings(vec![], vec![value.to_owned()]).expect("one string")
    }

    pub fn ty(&self) -> TensorType {
        TensorType::new(self.dtype, self.shape.iter().copied())
    }

    pub fn n_elements(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Bytes of the elements as this tensor's own dtype, packed.
    pub fn n_bytes(&self) -> u64 {
        self.dtype.bytes(self.n_elements()).expect("checked when made")
    }

    pub fn as_strings(&self) -> Option<&[String]> {
        match &self.data {
            Data::Strings(s) => Some(s),
            _ => None,
        }
    }

    /// The very same contents, not only equal ones? Looks at no element, so it is cheap, and
    /// `false` also when only a comparison could tell.
    pub fn is_same(&self, other: &Tensor) -> bool {
        self.shape == other.shape && self.has_same_elements(other)
    }

    /// The same, whatever the two shapes are.
    pub fn has_same_elements(&self, other: &Tensor) -> bool {
        let place = |b: &Bytes| (b.as_ptr(), b.len());
        self.dtype == other.dtype
            && self.n_elements() == other.n_elements()
            && match (&self.data, &other.data) {
                (Data::Bytes(a), Data::Bytes(b)) => place(a) == place(b),
                (Data::Strings(a), Data::Strings(b)) => Arc::ptr_eq(a, b),
                (
                    Data::Derived { from: a, start: i, step: p },
                    Data::Derived { from: b, start: j, step: q },
                ) => i == j && p == q && a.has_same_elements(b),
                (Data::Computed { from: a, start: i }, Data::Computed { from: b, start: j }) => {
                    i == j && Arc::ptr_eq(a, b)
                }
                (
                    Data::Transposed { from: a, rows: p, start: i },
                    Data::Transposed { from: b, rows: q, start: j },
                ) => i == j && p == q && a.has_same_elements(b),
                _ => false,
            }
    }

    /// The same elements under another shape.
    ///
    /// # Panics
    /// When the element counts differ.
    pub fn reshaped(&self, shape: Vec<u64>) -> Tensor {
        let n = crate::types::count(shape.iter().copied());
        assert_eq!(n, Some(self.n_elements()), "a reshape keeps the number of elements");
        Tensor { dtype: self.dtype, shape, data: self.data.clone() }
    }

    /// Can it be [`scaled`](Tensor::scaled), or be the result of a [`cast`](Tensor::cast)? Floats
    /// of 16 bits and more can.
    pub fn can_be_derived(&self) -> bool {
        is_wide(self.dtype)
    }

    /// The same values as `dtype`, converted when they are read.
    ///
    /// # Panics
    /// When this holds no floats, since integers are not silently rounded, or when `dtype` is no
    /// float of at least 16 bits.
    pub fn cast(&self, dtype: DType) -> Tensor {
        assert!(self.dtype.is_float(), "cast is for floats");
        if dtype == self.dtype {
            return self.clone();
        }
        assert!(is_wide(dtype), "a cast is to floats of at least 16 bits");
        self.derived(dtype, Step::Cast)
    }

    /// Every element times `factor`, computed in f32 when it is read.
    ///
    /// # Panics
    /// When the elements are not floats of at least 16 bits.
    pub fn scaled(&self, factor: f32) -> Tensor {
        assert!(self.can_be_derived(), "scale is for floats of at least 16 bits");
        self.derived(self.dtype, Step::Scale(factor))
    }

    /// Could it be [`cast`](Tensor::cast) to `dtype`?
    pub fn can_be_cast(&self, dtype: DType) -> bool {
        self.dtype.is_float() && (is_wide(dtype) || dtype == self.dtype)
    }

    /// A weight that is decoded when it is read. `from` has as many elements as `shape`.
    pub(crate) fn compressed(dtype: DType, shape: Vec<u64>, from: Arc<Compressed>) -> Tensor {
        let whole = shape.as_slice().into();
        Tensor { dtype, shape, data: Data::Compressed { from, whole, start: 0 } }
    }

    /// Is it stored smaller than it reads?
    pub fn is_compressed(&self) -> bool {
        match &self.data {
            Data::Compressed { .. } => true,
            Data::Derived { from, .. } | Data::Transposed { from, .. } => from.is_compressed(),
            _ => false,
        }
    }

    fn derived(&self, dtype: DType, step: Step) -> Tensor {
        let from = Arc::new(self.clone());
        Tensor { dtype, shape: self.shape.clone(), data: Data::Derived { from, start: 0, step } }
    }

    /// Can it be [`transposed`](Tensor::transposed)? Matrices of floats up to 32 bits can, and of
    /// integers of 8.
    pub fn can_be_transposed(&self) -> bool {
        use DType::{BF16, F16, F32, I8, U8};
        let known = matches!(self.dtype, F16 | BF16 | F32 | I8 | U8);
        self.shape.len() == 2 && known && !self.is_compressed()
    }

    /// Rows as columns, moved when they are read.
    ///
    /// # Panics
    /// When it is none that [`can`](Tensor::can_be_transposed) be.
    pub fn transposed(&self) -> Tensor {
        assert!(self.can_be_transposed(), "only matrices are transposed");
        let (rows, columns) = (self.shape[0], self.shape[1]);
        let data = Data::Transposed { from: Arc::new(self.clone()), rows, start: 0 };
        Tensor { dtype: self.dtype, shape: vec![columns, rows], data }
    }

    /// Rows `start..start + n` of the first axis. Sub-byte rows must begin on a byte.
    ///
    /// # Panics
    /// When the rows are not all there, or begin inside a byte.
    pub fn rows(&self, start: u64, n: u64) -> Tensor {
        assert!(start + n <= self.shape[0], "rows {start}..{} of {}", start + n, self.shape[0]);
        let row: u64 = self.shape[1..].iter().product();
        let mut shape = self.shape.clone();
        shape[0] = n;
        let data = match &self.data {
            Data::Bytes(b) => {
                let first_bit = start * row * self.dtype.bits();
                assert!(first_bit.is_multiple_of(8), "a row begins inside a byte");
                let first = (first_bit / 8) as usize;
                let len = self.dtype.bytes(n * row).expect("smaller than the whole") as usize;
                Data::Bytes(b.slice(first..first + len))
            }
            Data::Strings(s) => {
                Data::Strings(s[(start * row) as usize..((start + n) * row) as usize].into())
            }
            Data::Absent => Data::Absent,
            Data::Derived { from, start: s, step } => {
                Data::Derived { from: from.clone(), start: s + start * row, step: *step }
            }
            Data::Computed { from, start: s } => {
                Data::Computed { from: from.clone(), start: s + start * row }
            }
            Data::Transposed { from, rows, start: s } => {
                let (from, rows) = (from.clone(), *rows);
                Data::Transposed { from, rows, start: s + start * row }
            }
            Data::Compressed { from, whole, start: s } => {
                let (from, whole) = (from.clone(), whole.clone());
                Data::Compressed { from, whole, start: s + start * row }
            }
        };
        Tensor { dtype: self.dtype, shape, data }
    }

    /// All bytes, little endian and packed. Cheap when nothing is to be computed.
    pub fn to_bytes(&self) -> Bytes {
        if let Data::Bytes(b) = &self.data {
            return b.clone();
        }
        let mut all = Vec::with_capacity(self.n_bytes() as usize);
        let done: Result<(), std::convert::Infallible> = self.read(&mut |piece| {
            all.extend_from_slice(piece);
            Ok(())
        });
        let Ok(()) = done;
        all.into()
    }

    /// What a cast lost: how many finite elements became infinite, and the largest magnitude among
    /// them; none when this is not the result of a cast, or nothing was lost.
    pub fn overflow(&self) -> Option<(u64, f32)> {
        let Data::Derived { from, start, step: Step::Cast } = &self.data else { return None };
        let (mut lost, mut largest, mut before) = (0, 0f32, Vec::new());
        let (n, mut at) = (self.n_elements(), 0);
        while at < n {
            let len = CHUNK.min(n - at);
            before.clear();
            from.floats(start + at, len, &mut before);
            let mut after = before.clone();
            round(self.dtype, &mut after);
            let lost_now =
                before.iter().zip(&after).filter(|(x, y)| x.is_finite() && y.is_infinite());
            for (x, _) in lost_now {
                (lost, largest) = (lost + 1, largest.max(x.abs()));
            }
            at += len;
        }
        (lost > 0).then_some((lost, largest))
    }

    /// Shows the bytes that its elements are computed from, wherever they lie.
    pub fn sources(&self, show: &mut dyn FnMut(&Bytes)) {
        match &self.data {
            Data::Bytes(b) => show(b),
            Data::Derived { from, .. } | Data::Transposed { from, .. } => from.sources(show),
            Data::Computed { from, .. } => from.bytes().into_iter().for_each(show),
            Data::Compressed { .. } | Data::Strings(_) | Data::Absent => {}
        }
    }

    /// Hands all bytes to `sink`, piece by piece, without holding them at once.
    pub fn read<E>(&self, sink: &mut dyn FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        if let Data::Bytes(b) = &self.data {
            return sink(b);
        }
        let n = self.n_elements();
        let mut floats = Vec::new();
        let mut bytes = Vec::new();
        let mut at = 0;
        while at < n {
            let len = CHUNK.min(n - at);
            floats.clear();
            self.floats(at, len, &mut floats);
            bytes.clear();
            encode(self.dtype, &floats, &mut bytes);
            sink(&bytes)?;
            at += len;
        }
        Ok(())
    }

    /// All elements as f32, whatever their type; integers beyond 2^24 lose digits. Not for strings.
    pub fn to_f32(&self) -> Vec<f32> {
        let mut out = Vec::with_capacity(self.n_elements() as usize);
        self.floats(0, self.n_elements(), &mut out);
        out
    }

    /// Appends elements `start..start + n` to `out`.
    pub(crate) fn floats(&self, start: u64, n: u64, out: &mut Vec<f32>) {
        match &self.data {
            Data::Bytes(b) => decode(self.dtype, b, start, n, out),
            Data::Strings(_) => unreachable!("strings are not numbers"),
            Data::Absent => out.resize(out.len() + n as usize, 0.0),
            Data::Derived { from, start: s, step } => {
                let first = out.len();
                from.floats(s + start, n, out);
                let new = &mut out[first..];
                if let Step::Scale(k) = step {
                    new.iter_mut().for_each(|v| *v *= k);
                }
                round(self.dtype, new);
            }
            Data::Computed { from, start: s } => from.floats(s + start, n, out),
            Data::Transposed { from, rows, start: s } => {
                columns_of(from, *rows, s + start, n, out);
            }
            Data::Compressed { from, whole, start: s } => {
                let first = out.len();
                from.floats(whole, s + start, n, out);
                round(self.dtype, &mut out[first..]);
            }
        }
    }

    /// Elements `start..start + n` of all in a row, as f32. Not for strings.
    ///
    /// # Panics
    /// When they are not all there.
    pub fn elements(&self, start: u64, n: u64) -> Vec<f32> {
        let end = start.checked_add(n);
        assert!(end.is_some_and(|end| end <= self.n_elements()), "{n} elements from {start}");
        let mut out = Vec::with_capacity(n as usize);
        self.floats(start, n, &mut out);
        out
    }

    /// All elements as integers: of an integer or `bool` tensor only.
    pub fn to_i64(&self) -> Option<Vec<i64>> {
        if self.dtype.is_float() {
            return None;
        }
        match &self.data {
            Data::Bytes(b) => {
                Some((0..self.n_elements()).map(|i| integer(self.dtype, b, i)).collect())
            }
            // These integers have 8 bits at most: f32 holds them exactly.
            Data::Compressed { .. } | Data::Transposed { .. } => {
                Some(self.to_f32().into_iter().map(|x| x as i64).collect())
            }
            Data::Strings(_) | Data::Derived { .. } | Data::Computed { .. } | Data::Absent => None,
        }
    }

    /// The only element as f32.
    pub fn item_f32(&self) -> Option<f32> {
        let number = self.n_elements() == 1 && self.dtype != DType::String;
        number.then(|| self.to_f32()[0])
    }
}

/// Appends elements `start..start + n` of a matrix of `rows` rows as it is read column by column.
fn columns_of(from: &Tensor, rows: u64, start: u64, n: u64, out: &mut Vec<f32>) {
    if n == 0 {
        return;
    }
    let columns = from.n_elements() / rows;
    let (first, last) = (start / rows, (start + n - 1) / rows);
    let width = (last - first + 1) as usize;
    let mut block = vec![0.0; width * rows as usize];
    let mut row = Vec::with_capacity(width);
    for i in 0..rows {
        row.clear();
        from.floats(i * columns + first, width as u64, &mut row);
        for (j, &x) in row.iter().enumerate() {
            block[j * rows as usize + i as usize] = x;
        }
    }
    let skipped = (start - first * rows) as usize;
    out.extend_from_slice(&block[skipped..skipped + n as usize]);
}

/// A float that can be computed here, not only read.
fn is_wide(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
}

/// Rounds values to those `dtype` can hold, so that a chain of steps equals one after the other.
fn round(dtype: DType, values: &mut [f32]) {
    match dtype {
        DType::F16 => values.iter_mut().for_each(|v| *v = f16::from_f32(*v).to_f32()),
        DType::BF16 => values.iter_mut().for_each(|v| *v = bf16::from_f32(*v).to_f32()),
        _ => {}
    }
}

fn encode(dtype: DType, values: &[f32], out: &mut Vec<u8>) {
    match dtype {
        DType::F32 => out.extend(values.iter().flat_map(|v| v.to_le_bytes())),
        DType::F64 => out.extend(values.iter().flat_map(|v| f64::from(*v).to_le_bytes())),
        DType::F16 => {
            let mut halves = vec![f16::ZERO; values.len()];
            halves.convert_from_f32_slice(values);
            out.extend(halves.iter().flat_map(|v| v.to_le_bytes()));
        }
        DType::BF16 => {
            out.extend(values.iter().flat_map(|v| bf16::from_f32(*v).to_bits().to_le_bytes()));
        }
        // Only compressed weights make integers: of 8 bits at most, packed in a row.
        _ => {
            let bits = dtype.bits();
            let mut packed = vec![0u8; dtype.bytes(values.len() as u64).unwrap_or(0) as usize];
            for (i, &x) in values.iter().enumerate() {
                let raw = (x as i64 as u64) & ((1 << bits.min(63)) - 1);
                for bit in (0..bits).filter(|bit| raw >> bit & 1 == 1) {
                    let at = i as u64 * bits + bit;
                    packed[(at / 8) as usize] |= 1 << (at % 8);
                }
            }
            out.extend(packed);
        }
    }
}

fn decode(dtype: DType, bytes: &[u8], start: u64, n: u64, out: &mut Vec<f32>) {
    let (start, n) = (start as usize, n as usize);
    let words = |width: usize| bytes[start * width..(start + n) * width].chunks_exact(width);
    let two = |c: &[u8]| u16::from_le_bytes([c[0], c[1]]);
    match dtype {
        DType::F32 => {
            out.extend(words(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])));
        }
        DType::F64 => out.extend(
            words(8).map(|c| f64::from_le_bytes(c.try_into().expect("eight bytes")) as f32),
        ),
        DType::F16 => {
            let bits: Vec<u16> = words(2).map(two).collect();
            let first = out.len();
            out.resize(first + n, 0.0);
            bits.reinterpret_cast::<f16>().convert_to_f32_slice(&mut out[first..]);
        }
        DType::BF16 => out.extend(words(2).map(|c| bf16::from_bits(two(c)).to_f32())),
        DType::F8E4M3 => out.extend(words(1).map(|c| f8(c[0], 4, 3))),
        DType::F8E5M2 => out.extend(words(1).map(|c| f8(c[0], 5, 2))),
        _ => out.extend((start..start + n).map(|i| integer(dtype, bytes, i as u64) as f32)),
    }
}

/// An 8-bit float (OCP FP8): E5M2 keeps infinities, E4M3 ("fn") has only NaN.
fn f8(bits: u8, exponent_bits: i32, mantissa_bits: i32) -> f32 {
    let sign = if bits & 0x80 != 0 { -1.0 } else { 1.0 };
    let mantissa = i32::from(bits) & ((1 << mantissa_bits) - 1);
    let exponent = (i32::from(bits) >> mantissa_bits) & ((1 << exponent_bits) - 1);
    let top = (1 << exponent_bits) - 1;
    let all_ones = mantissa == (1 << mantissa_bits) - 1;
    let bias = (1 << (exponent_bits - 1)) - 1;
    match (exponent, exponent_bits) {
        (e, 5) if e == top && mantissa == 0 => sign * f32::INFINITY,
        (e, 5) if e == top => f32::NAN,
        (e, 4) if e == top && all_ones => f32::NAN,
        (0, _) => sign * mantissa as f32 * 2f32.powi(1 - bias - mantissa_bits),
        (e, _) => {
            let scale = 2f32.powi(e - bias - mantissa_bits);
            sign * ((1 << mantissa_bits) + mantissa) as f32 * scale
        }
    }
}

/// Element `i` of packed integers: least significant bit first, elements may cross bytes.
fn integer(dtype: DType, bytes: &[u8], i: u64) -> i64 {
    let bits = dtype.bits();
    let (first, shift) = ((i * bits / 8) as usize, i * bits % 8);
    let n_bytes = (shift + bits).div_ceil(8) as usize;
    let mut word = [0u8; 16];
    word[..n_bytes].copy_from_slice(&bytes[first..first + n_bytes]);
    let raw = (u128::from_le_bytes(word) >> shift) as u64;
    let unused = 64 - bits;
    use DType::*;
    match dtype {
        I4 | I8 | I16 | I32 | I64 => ((raw << unused) as i64) >> unused,
        _ => ((raw << unused) >> unused) as i64,
    }
}

/// Equal types and equal contents. Derived contents are computed to compare them.
impl PartialEq for Tensor {
    fn eq(&self, other: &Tensor) -> bool {
        self.dtype == other.dtype
            && self.shape == other.shape
            && match (&self.data, &other.data) {
                (Data::Strings(a), Data::Strings(b)) => a == b,
                (Data::Strings(_), _) | (_, Data::Strings(_)) => false,
                _ => self.to_bytes() == other.to_bytes(),
            }
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({})", self.ty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_applied_in_order_and_by_the_piece() {
        let n = CHUNK as usize + 5;
        let values: Vec<f32> = (0..n).map(|i| i as f32 / 7.0).collect();
        let t = Tensor::f32(vec![n as u64], &values).scaled(0.25).cast(DType::F16);
        let want: Vec<f32> = values.iter().map(|v| f16::from_f32(v * 0.25).to_f32()).collect();
        assert_eq!(t.to_f32(), want);
        assert_eq!(t.to_bytes().len(), 2 * n);
        let tail = t.rows(CHUNK, 5);
        assert_eq!(tail.to_f32(), want[CHUNK as usize..]);
    }

    #[test]
    fn columns_are_read_by_the_piece() {
        let (rows, columns) = (301, 257);
        let values: Vec<f32> = (0..rows * columns).map(|i| i as f32).collect();
        let t = Tensor::f32(vec![rows, columns], &values).transposed();
        assert!(rows * columns > CHUNK);
        let at = |i: u64, j: u64| (i * columns + j) as f32;
        let want: Vec<f32> = (0..columns).flat_map(|j| (0..rows).map(move |i| at(i, j))).collect();
        assert_eq!((t.shape.as_slice(), t.to_f32()), (&[columns, rows][..], want.clone()));
        assert_eq!(t.elements(rows - 1, 3), want[rows as usize - 1..rows as usize + 2]);
        assert_eq!(t.rows(5, 2).to_f32(), want[5 * rows as usize..7 * rows as usize]);
        assert_eq!(Tensor::f32(t.shape.clone(), &want), t);
        let halves = t.scaled(0.5).cast(DType::F16).rows(1, 1).to_f32();
        assert_eq!(halves[..3], [0.5, 129.0, 257.5]);
        let bytes = Tensor::new(DType::I8, vec![2, 3], vec![1, 2, 3, 0xff, 5, 6].into()).unwrap();
        assert_eq!(bytes.transposed().to_i64().unwrap(), [1, -1, 2, 5, 3, 6]);
        assert_eq!(bytes.transposed().to_bytes()[..], [1, 0xff, 2, 5, 3, 6]);
    }

    #[test]
    fn sub_byte_elements_cross_bytes() {
        // 3-bit values 0..8, least significant bit first.
        let mut stream = 0u32;
        (0..8).for_each(|i| stream |= i << (3 * i));
        let bytes = stream.to_le_bytes()[..3].to_vec();
        let t = Tensor::new(DType::U3, vec![8], bytes.into()).unwrap();
        assert_eq!(t.to_i64().unwrap(), (0..8).collect::<Vec<_>>());
        let t = Tensor::new(DType::I4, vec![2], vec![0x7f].into()).unwrap();
        assert_eq!(t.to_i64().unwrap(), [-1, 7]);
    }

    #[test]
    fn fp8_landmarks() {
        assert_eq!(f8(0x7e, 4, 3), 448.0); // OCP FP8: largest E4M3
        assert!(f8(0x7f, 4, 3).is_nan());
        assert_eq!(f8(0x7b, 5, 2), 57344.0); // largest E5M2
        assert_eq!(f8(0xfc, 5, 2), f32::NEG_INFINITY);
        assert_eq!(f8(0x01, 4, 3), 2f32.powi(-9));
    }

    #[test]
    fn what_a_cast_loses_is_counted() {
        let t = Tensor::f32(vec![4], &[1.0, -7e4, f32::INFINITY, 65519.0]);
        assert_eq!(t.cast(DType::F16).overflow(), Some((1, 7e4)));
        assert_eq!(t.cast(DType::BF16).overflow(), None);
        assert_eq!(t.overflow(), None);
        assert_eq!(t.cast(DType::F16).rows(2, 2).overflow(), None);
    }

    #[test]
    fn sizes_are_checked() {
        assert!(Tensor::new(DType::F32, vec![2], vec![0; 7].into()).is_err());
        assert!(Tensor::new(DType::F32, vec![u64::MAX, 2], vec![0; 8].into()).is_err());
        assert!(Tensor::strings(vec![2], vec!["a".into()]).is_err());
    }

    #[test]
    fn the_same_steps_over_the_same_bytes_are_the_same() {
        let t = Tensor::f32(vec![2, 2], &[1.0, 2.0, 3.0, 4.0]);
        assert!(t.cast(DType::F16).is_same(&t.clone().cast(DType::F16)));
        assert!(t.transposed().scaled(2.0).is_same(&t.transposed().scaled(2.0)));
        assert!(!t.scaled(2.0).is_same(&t.scaled(3.0)));
        assert!(!t.cast(DType::F16).is_same(&t.cast(DType::BF16)));
        assert!(!t.cast(DType::F16).rows(0, 1).is_same(&t.cast(DType::F16).rows(1, 1)));
        assert!(!t.is_same(&Tensor::f32(vec![2, 2], &[1.0, 2.0, 3.0, 4.0])));
    }
}
