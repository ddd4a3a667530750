//! The error of a matrix product against its depth, beside what was published of the engine.
//!
//! `cargo run --release -p russet-exec --example gemm_error`
//!
//! The experiment is that of ANEForge's `bench/device_saturation_sweep.py`: both operands are normal
//! numbers over the root of the depth, and the reference is in f64. 64 rows and 96 columns are made
//! of each product, since each number of it is one sample.

use russet_exec::ane::{Ane, Family, Rule};
use russet_exec::kernels::gemm::{Epilogue, Rows, View, multiply};
use russet_exec::kernels::half::nearest_fp16;
use russet_exec::kernels::rounding::Rounding;

/// Depth, and the relative error measured on an M5 Pro, the same on all hosts that published one.
pub const PUBLISHED: [(usize, f64); 6] = [
    (512, 2.58e-3),
    (1024, 5.53e-3),
    (2048, 1.21e-2),
    (4096, 2.72e-2),
    (6144, 4.40e-2),
    (8192, 6.16e-2),
];

const ROWS: usize = 64;
const COLS: usize = 96;

/// Normal numbers by the method of Box and Muller, from a linear congruence.
struct Normal(u64);

impl Normal {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn next(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (2.0 * std::f64::consts::PI * self.uniform()).cos()
    }

    fn over_root(&mut self, n: usize, depth: usize) -> Vec<f32> {
        (0..n).map(|_| (self.next() / (depth as f64).sqrt()) as f32).collect()
    }
}

pub fn error(depth: usize, rounding: Rounding) -> f64 {
    let mut normal = Normal(depth as u64);
    let (x, w) = (normal.over_root(ROWS * depth, depth), normal.over_root(COLS * depth, depth));
    let halves = |v: &[f32]| v.iter().map(|&x| nearest_fp16(x)).collect::<Vec<f32>>();
    let (hx, hw) = (halves(&x), halves(&w));
    let mut out = vec![0.0; ROWS * COLS];
    let epilogue = Epilogue { rounding, ..Epilogue::default() };
    let right = View::new(&hw, COLS, depth).transposed();
    multiply(View::new(&hx, ROWS, depth), right, Rows::new(&mut out, ROWS, COLS), &epilogue);
    let (mut difference, mut size) = (0.0, 0.0);
    for (i, found) in out.iter().enumerate() {
        let (x, w) = (&x[i / COLS * depth..][..depth], &w[i % COLS * depth..][..depth]);
        let exact: f64 = x.iter().zip(w).map(|(&x, &w)| f64::from(x) * f64::from(w)).sum();
        difference += (f64::from(*found) - exact).powi(2);
        size += exact * exact;
    }
    (difference / size).sqrt()
}

fn main() {
    let ane = |family| Rounding::Ane(Ane::of(family).rules);
    let without = Rounding::Ane(Ane::of(Family::H16).without(Rule::FixedAccumulator).rules);
    println!("depth  published   ane        over it  ane:m1     without fixed-accumulator");
    for (depth, published) in PUBLISHED {
        let found = error(depth, ane(Family::H16));
        println!(
            "{depth:5}  {published:.2e}    {found:.2e}   {:.2}     {:.2e}   {:.2e}",
            found / published,
            error(depth, ane(Family::H13)),
            error(depth, without)
        );
    }
}
