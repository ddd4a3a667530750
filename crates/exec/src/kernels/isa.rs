//! Which vector instructions this processor has, asked once, and the one door into them.

use std::sync::OnceLock;

/// A set of vector instructions a kernel is compiled for; a later one contains the earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Whatever the compilation target guarantees: NEON on aarch64, SSE2 on x86-64.
    Baseline,
    /// AVX2, FMA and F16C: x86-64 since 2013.
    Avx2,
    /// AVX-512 F, BW, DQ and VL on top of [`Isa::Avx2`].
    Avx512,
}

impl Isa {
    /// The widest set this processor has, or [`Isa::Baseline`] under Miri, which runs few intrinsics.
    pub fn best() -> Isa {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(Isa::detect)
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn detect() -> Isa {
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        match (avx2, avx512) {
            (true, true) => Isa::Avx512,
            (true, false) => Isa::Avx2,
            _ => Isa::Baseline,
        }
    }

    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    fn detect() -> Isa {
        Isa::Baseline
    }
}

/// Declares a function that runs `$body`, compiled once per [`Isa`], in the best version.
///
/// `$body` is an ordinary `#[inline(always)]` function: LLVM vectorises it anew in each wrapper.
macro_rules! per_isa {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? = $body:path) => {
        $(#[$meta])*
        $vis fn $name($($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            {
                use $crate::kernels::isa::Isa;

                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
                fn avx512($($arg: $ty),*) $(-> $ret)? {
                    $body($($arg),*)
                }

                #[target_feature(enable = "avx2,fma,f16c")]
                fn avx2($($arg: $ty),*) $(-> $ret)? {
                    $body($($arg),*)
                }

                match Isa::best() {
                    // SAFETY: `best` answers `Avx512` only where all these features were detected.
                    Isa::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: `best` answers `Avx2` only where all these features were detected.
                    Isa::Avx2 => return unsafe { avx2($($arg),*) },
                    Isa::Baseline => {}
                }
            }
            $body($($arg),*)
        }
    };
}
