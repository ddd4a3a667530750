//! Quantized types of GGUF: blocks of 32 or 256 numbers with their scales.
//!
//! In the layouts below `d` and `m` are fp16; `x` is what a number becomes. The "K" types have blocks
//! of 256 numbers with smaller scales for each 16 or 32 of them.
//! Source: ggml's `ggml-common.h` (struct layouts) and the `gguf` Python package (`quants.py`),
//! against which every type is tested.

use bytes::Bytes;
use half::f16;
use russet_ir::Elements;

/// A type of tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
}

/// Kinds by their numbers, with what is not read here by name.
const KINDS: &[(u32, &str, Option<Kind>)] = &[
    (0, "F32", Some(Kind::F32)),
    (1, "F16", Some(Kind::F16)),
    (2, "Q4_0", Some(Kind::Q4_0)),
    (3, "Q4_1", Some(Kind::Q4_1)),
    (6, "Q5_0", Some(Kind::Q5_0)),
    (7, "Q5_1", Some(Kind::Q5_1)),
    (8, "Q8_0", Some(Kind::Q8_0)),
    (9, "Q8_1", None),
    (10, "Q2_K", Some(Kind::Q2K)),
    (11, "Q3_K", Some(Kind::Q3K)),
    (12, "Q4_K", Some(Kind::Q4K)),
    (13, "Q5_K", Some(Kind::Q5K)),
    (14, "Q6_K", Some(Kind::Q6K)),
    (15, "Q8_K", None),
    (16, "IQ2_XXS", None),
    (17, "IQ2_XS", None),
    (18, "IQ3_XXS", None),
    (19, "IQ1_S", None),
    (20, "IQ4_NL", None),
    (21, "IQ3_S", None),
    (22, "IQ2_S", None),
    (23, "IQ4_XS", None),
    (30, "BF16", Some(Kind::BF16)),
    (34, "TQ1_0", None),
    (35, "TQ2_0", None),
    (39, "MXFP4", None),
];

impl Kind {
    /// The type of this number; `Err` says in words which ones there are.
    pub fn of(number: u32) -> Result<Kind, String> {
        let known = KINDS.iter().filter(|k| k.2.is_some()).map(|k| k.1).collect::<Vec<_>>();
        match KINDS.iter().find(|k| k.0 == number) {
            Some((_, _, Some(kind))) => Ok(*kind),
            Some((_, name, None)) => {
                Err(format!("it is of type {name}; read are {}", known.join(", ")))
            }
            None => Err(format!("there is no type {number}; read are {}", known.join(", "))),
        }
    }

    /// Numbers in a block.
    pub fn block(self) -> u64 {
        match self {
            Kind::F32 | Kind::F16 | Kind::BF16 => 1,
            Kind::Q4_0 | Kind::Q4_1 | Kind::Q5_0 | Kind::Q5_1 | Kind::Q8_0 => 32,
            Kind::Q2K | Kind::Q3K | Kind::Q4K | Kind::Q5K | Kind::Q6K => 256,
        }
    }

    pub fn block_bytes(self) -> u64 {
        match self {
            Kind::F32 => 4,
            Kind::F16 | Kind::BF16 => 2,
            Kind::Q4_0 => 2 + 16,
            Kind::Q4_1 => 4 + 16,
            Kind::Q5_0 => 2 + 4 + 16,
            Kind::Q5_1 => 4 + 4 + 16,
            Kind::Q8_0 => 2 + 32,
            Kind::Q2K => 16 + 64 + 4,
            Kind::Q3K => 32 + 64 + 12 + 2,
            Kind::Q4K => 4 + 12 + 128,
            Kind::Q5K => 4 + 12 + 32 + 128,
            Kind::Q6K => 128 + 64 + 16 + 2,
        }
    }

    /// The numbers of one block.
    fn decode(self, b: &[u8], out: &mut [f32]) {
        match self {
            Kind::F32 | Kind::F16 | Kind::BF16 => unreachable!("plain types are no blocks"),
            Kind::Q4_0 => quants(half(b, 0), -8, 0.0, out, |j| nibble(&b[2..], j)),
            Kind::Q4_1 => quants(half(b, 0), 0, half(b, 2), out, |j| nibble(&b[4..], j)),
            Kind::Q5_0 => quants(half(b, 0), -16, 0.0, out, |j| five(&b[2..6], &b[6..], j)),
            Kind::Q5_1 => quants(half(b, 0), 0, half(b, 2), out, |j| five(&b[4..8], &b[8..], j)),
            Kind::Q8_0 => quants(half(b, 0), 0, 0.0, out, |j| (b[2 + j] as i8).into()),
            Kind::Q2K => q2_k(b, out),
            Kind::Q3K => q3_k(b, out),
            Kind::Q4K => q4_k(b, out),
            Kind::Q5K => q5_k(b, out),
            Kind::Q6K => q6_k(b, out),
        }
    }
}

fn half(b: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([b[at], b[at + 1]]).to_f32()
}

/// `x = d * (q + zero) + m`.
fn quants(d: f32, zero: i32, m: f32, out: &mut [f32], q: impl Fn(usize) -> i32) {
    for (j, x) in out.iter_mut().enumerate() {
        *x = d * (q(j) + zero) as f32 + m;
    }
}

/// Number `j` of 32: the lower halves of 16 bytes come first, then the upper ones.
fn nibble(b: &[u8], j: usize) -> i32 {
    i32::from(if j < 16 { b[j] & 15 } else { b[j - 16] >> 4 })
}

/// The same with a fifth bit from a word of 32.
fn five(high: &[u8], low: &[u8], j: usize) -> i32 {
    nibble(low, j) | i32::from(high[j / 8] >> (j % 8) & 1) << 4
}

/// 16 scales of 4 bits with 16 minima, 2 bits a number, d, m: `x = d * scale * q - m * min`.
fn q2_k(b: &[u8], out: &mut [f32]) {
    let (scales, quants, d, m) = (&b[..16], &b[16..80], half(b, 80), half(b, 82));
    for (j, x) in out.iter_mut().enumerate() {
        let (part, lane) = (j / 128, j % 128);
        let q = quants[part * 32 + lane % 32] >> (2 * (lane / 32)) & 3;
        let scale = scales[j / 16];
        *x = d * f32::from(scale & 15) * f32::from(q) - m * f32::from(scale >> 4);
    }
}

/// A third bit for each number, 2 bits a number, 16 scales of 6 bits, d: `x = d * (scale - 32) * q`, q
/// from -4 to 3.
fn q3_k(b: &[u8], out: &mut [f32]) {
    let (high, low, packed, d) = (&b[..32], &b[32..96], &b[96..108], half(b, 108));
    let scale = |i: usize| {
        let four = if i < 8 { packed[i] & 15 } else { packed[i - 8] >> 4 };
        let two = packed[8 + i % 4] >> (2 * (i / 4)) & 3;
        i32::from(four | two << 4) - 32
    };
    for (j, x) in out.iter_mut().enumerate() {
        let (part, lane) = (j / 128, j % 128);
        let two = low[part * 32 + lane % 32] >> (2 * (lane / 32)) & 3;
        let third = high[j % 32] >> (j / 32) & 1;
        let q = i32::from(two) - if third == 1 { 0 } else { 4 };
        *x = d * scale(j / 16) as f32 * q as f32;
    }
}

/// Scale and minimum `i` of 8, six bits each: the first four in the lower bits of the first eight
/// bytes, of the others four bits in the last four bytes and two at the top of the first eight.
fn scale_min(b: &[u8], i: usize) -> (f32, f32) {
    let (scale, min) = match i < 4 {
        true => (b[i] & 63, b[i + 4] & 63),
        false => ((b[i + 4] & 15) | (b[i - 4] >> 6) << 4, (b[i + 4] >> 4) | (b[i] >> 6) << 4),
    };
    (scale.into(), min.into())
}

/// d, m, 8 scales and minima, 4 bits a number: `x = d * scale * q - m * min`.
fn q4_k(b: &[u8], out: &mut [f32]) {
    let (d, m, scales, low) = (half(b, 0), half(b, 2), &b[4..16], &b[16..144]);
    for (i, xs) in out.chunks_mut(32).enumerate() {
        let (scale, min) = scale_min(scales, i);
        let (scale, min) = (d * scale, m * min);
        for (j, x) in xs.iter_mut().enumerate() {
            let q = low[i / 2 * 32 + j] >> (4 * (i % 2)) & 15;
            *x = scale * f32::from(q) - min;
        }
    }
}

/// The same with a fifth bit, those of 32 bytes: bit `i` for the numbers of scale `i`.
fn q5_k(b: &[u8], out: &mut [f32]) {
    let (d, m, scales) = (half(b, 0), half(b, 2), &b[4..16]);
    let (high, low) = (&b[16..48], &b[48..176]);
    for (i, xs) in out.chunks_mut(32).enumerate() {
        let (scale, min) = scale_min(scales, i);
        let (scale, min) = (d * scale, m * min);
        for (j, x) in xs.iter_mut().enumerate() {
            let q = (low[i / 2 * 32 + j] >> (4 * (i % 2)) & 15) | (high[j] >> i & 1) << 4;
            *x = scale * f32::from(q) - min;
        }
    }
}

/// 4 bits a number, 2 more, 16 scales of 8 bits, d: `x = d * scale * (q - 32)`.
fn q6_k(b: &[u8], out: &mut [f32]) {
    let (low, high, scales, d) = (&b[..128], &b[128..192], &b[192..208], half(b, 208));
    for (j, x) in out.iter_mut().enumerate() {
        let (part, lane) = (j / 128, j % 128);
        let four = low[part * 64 + lane % 64] >> (4 * (lane / 64)) & 15;
        let two = high[part * 32 + lane % 32] >> (2 * (lane / 32)) & 3;
        let q = i32::from(four | two << 4) - 32;
        *x = d * f32::from(scales[j / 16] as i8) * q as f32;
    }
}

/// The blocks of a tensor.
pub struct Blocks {
    pub kind: Kind,
    pub bytes: Bytes,
}

impl Elements for Blocks {
    fn floats(&self, start: u64, n: u64, out: &mut Vec<f32>) {
        let (block, size) = (self.kind.block(), self.kind.block_bytes() as usize);
        let mut numbers = [0.0; 256];
        let numbers = &mut numbers[..block as usize];
        let (mut at, end) = (start, start + n);
        while at < end {
            let (i, from) = ((at / block) as usize, at % block);
            let to = block.min(from + (end - at));
            self.kind.decode(&self.bytes[i * size..(i + 1) * size], numbers);
            out.extend_from_slice(&numbers[from as usize..to as usize]);
            at += to - from;
        }
    }

    fn bytes(&self) -> Option<&Bytes> {
        Some(&self.bytes)
    }
}
