//! Emulated fp16: f32 buffers that hold only numbers fp16 can represent.
//!
//! The definition is integer arithmetic on the bits of one number, without branches, which LLVM
//! vectorises. x86-64 converts to fp16 and back in two instructions instead, with the same bits,
//! NaN included.

#[cfg(target_arch = "x86_64")]
use super::Isa;
use super::parallel;

/// The fp16 nearest to `x`, ties to even, from 65,520 on infinite; NaN keeps its sign and the top
/// ten bits of its payload.
#[inline(always)]
pub fn nearest_fp16(x: f32) -> f32 {
    const DROPPED: u32 = (1 << 13) - 1;
    const INFINITY: u32 = 0x7f80_0000;
    let sign = x.to_bits() & 0x8000_0000;
    let bits = x.to_bits() & 0x7fff_ffff;
    // Half of the last kept bit, less one where that bit is even: ties go to even.
    let normal = bits.wrapping_add(DROPPED / 2 + ((bits >> 13) & 1)) & !DROPPED;
    let normal = if normal >= 65_536f32.to_bits() { INFINITY } else { normal };
    // Below 2^-14 fp16 counts in units of 2^-24, as f32 does between a half and one.
    let subnormal = ((f32::from_bits(bits) + 0.5) - 0.5).to_bits();
    let nan = (bits & !DROPPED) | 0x0040_0000;
    let finite = if bits < 0x3880_0000 { subnormal } else { normal };
    f32::from_bits(sign | if bits > INFINITY { nan } else { finite })
}

/// [`nearest_fp16`] of every number of a short slice, within a kernel.
#[inline(always)]
pub(super) fn round_each(x: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    match Isa::best() {
        // SAFETY: `best` answers `Avx512` only where these features were detected.
        Isa::Avx512 => return unsafe { x86::round_512(x, nearest_fp16) },
        // SAFETY: as above.
        Isa::Avx2 => return unsafe { x86::round_256(x, nearest_fp16) },
        Isa::Baseline => {}
    }
    x.iter_mut().for_each(|x| *x = nearest_fp16(*x));
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    /// Rounds whole registers by conversion, what is left by `rest`.
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub fn round_512(x: &mut [f32], rest: impl Fn(f32) -> f32) {
        let (whole, tail) = x.as_chunks_mut::<16>();
        for x in whole {
            // SAFETY: the array is one register long; any alignment is allowed.
            unsafe {
                let half =
                    _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm512_loadu_ps(x.as_ptr()));
                _mm512_storeu_ps(x.as_mut_ptr(), _mm512_cvtph_ps(half));
            }
        }
        tail.iter_mut().for_each(|x| *x = rest(*x));
    }

    /// [`round_512`] for half as wide registers.
    #[target_feature(enable = "avx,f16c")]
    #[inline]
    pub fn round_256(x: &mut [f32], rest: impl Fn(f32) -> f32) {
        let (whole, tail) = x.as_chunks_mut::<8>();
        for x in whole {
            // SAFETY: the array is one register long; any alignment is allowed.
            unsafe {
                let half =
                    _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(x.as_ptr()));
                _mm256_storeu_ps(x.as_mut_ptr(), _mm256_cvtph_ps(half));
            }
        }
        tail.iter_mut().for_each(|x| *x = rest(*x));
    }
}

/// [`nearest_fp16`] of every number, in place.
pub fn round(x: &mut [f32]) {
    parallel::pieces(x, 1, |_, x| round_piece(x));
}

per_isa! {
    fn round_piece(x: &mut [f32]) = round_each
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of an fp16 from its fields, the textbook way.
    fn value(code: u16) -> f64 {
        let (exponent, fraction) = ((code >> 10) & 31, (code & 1023) as f64);
        let size = match exponent {
            0 => fraction * 2f64.powi(-24),
            31 => f64::INFINITY,
            e => (1.0 + fraction / 1024.0) * 2f64.powi(e as i32 - 15),
        };
        if code >> 15 == 1 { -size } else { size }
    }

    fn check(x: f32, expected: f64) {
        let mut fast = [x; 40];
        round(&mut fast);
        let slow = nearest_fp16(x);
        assert_eq!(slow.to_bits(), (expected as f32).to_bits(), "{x:e} -> {slow:e}");
        assert!(fast.iter().all(|y| y.to_bits() == slow.to_bits()), "{x:e}");
    }

    #[test]
    fn every_fp16_is_kept_and_every_midpoint_goes_to_even() {
        for code in (0..0x7c00u16).step_by(if cfg!(miri) { 511 } else { 1 }) {
            let (low, high) = (value(code), value(code + 1));
            // The next number after the largest finite one would be 65,536; it is stored as infinity.
            let middle = (low + if high.is_finite() { high } else { 65_536.0 }) / 2.0;
            let even = if code % 2 == 0 { low } else { high };
            for sign in [1.0, -1.0] {
                let middle = (sign * middle) as f32;
                check((sign * low) as f32, sign * low);
                check(middle, sign * even);
                check(f32::from_bits(middle.to_bits() - 1), sign * low);
                check(f32::from_bits(middle.to_bits() + 1), sign * high);
            }
        }
    }

    #[test]
    fn ends_of_the_range() {
        check(f32::INFINITY, f64::INFINITY);
        check(f32::NEG_INFINITY, f64::NEG_INFINITY);
        check(f32::MAX, f64::INFINITY);
        check(f32::MIN_POSITIVE, 0.0);
        check(-0.0, -0.0);
        for bits in [0x7f80_0001, 0x7fff_ffff, 0xffc0_2000, 0xffff_ffffu32] {
            let y = nearest_fp16(f32::from_bits(bits));
            assert!(y.is_nan() && y.to_bits() == (bits & 0xffff_e000) | 0x0040_0000);
        }
    }

    #[test]
    fn slices_get_the_bits_of_the_definition() {
        let step = if cfg!(miri) { 40_000_003 } else { 4_001 };
        let x: Vec<f32> = (0..u32::MAX).step_by(step).map(f32::from_bits).collect();
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        // 61 is no multiple of a register: the last numbers go through the definition.
        for x in x.chunks(61) {
            let mut rounded = x.to_vec();
            round(&mut rounded);
            let expected: Vec<f32> = x.iter().map(|x| nearest_fp16(*x)).collect();
            assert_eq!(bits(&rounded), bits(&expected));
        }
    }

    #[test]
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn agrees_with_the_processor() {
        use std::arch::x86_64::*;

        #[target_feature(enable = "f16c")]
        fn convert(x: f32) -> f32 {
            _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtps_ph::<0>(_mm_set_ss(x))))
        }

        if is_x86_feature_detected!("f16c") {
            for bits in (0..u32::MAX).step_by(2_003) {
                let x = f32::from_bits(bits);
                // SAFETY: the feature was detected above.
                let expected = unsafe { convert(x) };
                assert_eq!(nearest_fp16(x).to_bits(), expected.to_bits(), "{bits:#x}");
            }
        }
    }
}
