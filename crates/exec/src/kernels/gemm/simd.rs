//! The few vector operations a matrix product needs, per instruction set.
//!
//! LLVM does not keep a tile of plain arrays in registers (measured: 5 GFLOP/s instead of 178), so
//! the multiply-add loop is written once over this trait and the trait has one small
//! implementation per instruction set. A value of an implementing type is the proof that the
//! processor has its instructions: only `with_isa` makes one, after asking
//! [`Isa`](crate::kernels::Isa).

/// One instruction set's register, and how to fill, multiply-add and empty it.
pub(super) trait Simd: Copy + Send + Sync {
    /// A register.
    type V: Copy;
    /// The numbers in a register.
    type Lanes: Copy;
    /// How many numbers a register holds.
    const LANES: usize;
    /// Rows of a full tile: with `VECTORS` columns of registers it fills the register file.
    const ROWS: usize;

    /// The whole registers in a slice.
    fn lanes(of: &[f32]) -> &[Self::Lanes];
    fn lanes_mut(of: &mut [f32]) -> &mut [Self::Lanes];
    fn splat(self, x: f32) -> Self::V;
    fn load(self, from: &Self::Lanes) -> Self::V;
    fn store(self, v: Self::V, to: &mut Self::Lanes);
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// Asks for the cache line `at` numbers into `data`; beyond its end this does nothing useful.
    fn prefetch(self, data: &[f32], at: usize);
    /// Runs `task` as a function of its own, compiled for this instruction set.
    fn call<T: Task>(self, task: T) -> T::Output;
}

/// Work that is compiled once per instruction set.
pub(super) trait Task {
    type Output;
    /// Always inlined, so that it is compiled with the instructions of its caller.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// Registers across a full tile.
pub(super) const VECTORS: usize = 3;

/// Arrays of four, for targets without an implementation of their own.
#[cfg(any(not(target_arch = "aarch64"), miri))]
#[derive(Clone, Copy)]
pub(super) struct Portable;

#[cfg(any(not(target_arch = "aarch64"), miri))]
impl Simd for Portable {
    type V = [f32; 4];
    type Lanes = [f32; 4];
    const LANES: usize = 4;
    const ROWS: usize = 4;

    #[inline(always)]
    fn lanes(of: &[f32]) -> &[[f32; 4]] {
        of.as_chunks().0
    }

    #[inline(always)]
    fn lanes_mut(of: &mut [f32]) -> &mut [[f32; 4]] {
        of.as_chunks_mut().0
    }

    #[inline(always)]
    fn splat(self, x: f32) -> [f32; 4] {
        [x; 4]
    }

    #[inline(always)]
    fn load(self, from: &[f32; 4]) -> [f32; 4] {
        *from
    }

    #[inline(always)]
    fn store(self, v: [f32; 4], to: &mut [f32; 4]) {
        *to = v;
    }

    #[inline(always)]
    fn fma(self, a: [f32; 4], b: [f32; 4], c: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
    }

    #[inline(always)]
    fn prefetch(self, _: &[f32], _: usize) {}

    #[inline(never)]
    fn call<T: Task>(self, task: T) -> T::Output {
        task.run(self)
    }
}

/// Implements [`Simd`] with four intrinsics of one instruction set.
macro_rules! simd {
    ($(#[$meta:meta])* $name:ident: $features:literal, $v:ty, $lanes:literal lanes, $rows:literal rows,
     $splat:ident, $load:ident, $store:ident, |$a:ident, $b:ident, $c:ident| $fma:expr) => {
        $(#[$meta])*
        #[derive(Clone, Copy)]
        pub(in crate::kernels::gemm) struct $name(());

        impl $name {
            /// # Safety
            /// The processor has the instructions this type stands for.
            pub(in crate::kernels::gemm) unsafe fn new() -> $name {
                $name(())
            }
        }

        impl Simd for $name {
            type V = $v;
            type Lanes = [f32; $lanes];
            const LANES: usize = $lanes;
            const ROWS: usize = $rows;

            #[inline(always)]
            fn lanes(of: &[f32]) -> &[Self::Lanes] {
                of.as_chunks().0
            }

            #[inline(always)]
            fn lanes_mut(of: &mut [f32]) -> &mut [Self::Lanes] {
                of.as_chunks_mut().0
            }

            #[inline(always)]
            fn splat(self, x: f32) -> $v {
                // SAFETY: `self` proves the instructions exist; no memory is touched.
                unsafe { $splat(x) }
            }

            #[inline(always)]
            fn load(self, from: &Self::Lanes) -> $v {
                // SAFETY: as in `splat`; the array is one register long, any alignment is allowed.
                unsafe { $load(from.as_ptr()) }
            }

            #[inline(always)]
            fn store(self, v: $v, to: &mut Self::Lanes) {
                // SAFETY: as in `load`, and the array is borrowed mutably.
                unsafe { $store(to.as_mut_ptr(), v) }
            }

            #[inline(always)]
            fn fma(self, $a: $v, $b: $v, $c: $v) -> $v {
                // SAFETY: as in `splat`.
                unsafe { $fma }
            }

            #[inline(always)]
            fn prefetch(self, data: &[f32], at: usize) {
                prefetch(data.as_ptr().wrapping_add(at));
            }

            #[inline(always)]
            fn call<T: Task>(self, task: T) -> T::Output {
                #[target_feature(enable = $features)]
                #[inline(never)]
                fn run<T: Task>(simd: $name, task: T) -> T::Output {
                    task.run(simd)
                }

                // SAFETY: `self` proves the instructions exist.
                unsafe { run(self, task) }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Simd, Task};
    use std::arch::x86_64::*;

    /// Into the second-level cache.
    #[inline(always)]
    fn prefetch(at: *const f32) {
        // SAFETY: a prefetch reads nothing and never faults; SSE is part of the baseline.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
    }

    simd! {
        /// 32 registers of 16: a tile of 8 x 48 takes 24, its operands 4.
        Avx512: "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c", __m512, 16 lanes, 8 rows,
        _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps, |a, b, c| _mm512_fmadd_ps(a, b, c)
    }

    simd! {
        /// 16 registers of 8: a tile of 4 x 24 takes 12, its operands 4.
        Avx2: "avx2,fma,f16c", __m256, 8 lanes, 4 rows,
        _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps, |a, b, c| _mm256_fmadd_ps(a, b, c)
    }
}

#[cfg(target_arch = "aarch64")]
pub(super) use arm::Neon;

#[cfg(target_arch = "aarch64")]
mod arm {
    use super::{Simd, Task};
    use std::arch::aarch64::*;

    /// Not stable on aarch64, whose cores prefetch such streams by themselves.
    #[inline(always)]
    fn prefetch(_: *const f32) {}

    simd! {
        /// 32 registers of 4: a tile of 8 x 12 takes 24, its operands 4.
        Neon: "neon", float32x4_t, 4 lanes, 8 rows,
        vdupq_n_f32, vld1q_f32, vst1q_f32, |a, b, c| vfmaq_f32(c, a, b)
    }
}
