//! Scalar functions without branches, which LLVM vectorises inside the kernels.
//!
//! The standard library calls libm once per number and differs between systems; these are a few
//! multiply-adds and the same everywhere. The polynomials are our own weighted fits over Chebyshev
//! nodes. Each function states its largest error; the tests check it over a dense range.

/// `e^x`, within 1e-7 of the true value (relative), down to the smallest subnormal.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Written as selections, not `min` and `max`, so that NaN stays NaN.
    let x = if x > 89.0 { 89.0 } else { x };
    // A masked score. Its exponential is zero, but an underflow would cost a hundred cycles.
    let vanishes = x < -104.0;
    let x = if vanishes { 0.0 } else { x };
    // Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    // ln 2 in two parts: the first has 15 zero bits, so that n times it is exact.
    let r = n.mul_add(-0.693_145_75, x);
    let r = n.mul_add(-1.428_606_8e-6, r);
    let q = 0.001_395_297f32;
    let q = q.mul_add(r, 0.008_370_321);
    let q = q.mul_add(r, 0.041_666_17);
    let q = q.mul_add(r, 0.166_665_06);
    let q = q.mul_add(r, 0.5);
    let y = (q * r).mul_add(r, r) + 1.0;
    // 2^n in two factors: one alone would overflow before the product does.
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    let half = n >> 1;
    let y = y * power_of_two(half) * power_of_two(n - half);
    if vanishes { 0.0 } else { y }
}

#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// The error function, within 1.2e-7 of the true value.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let s = x * x;
    let q = 8.215_423_4e-5f32;
    let q = q.mul_add(s, -0.000_810_596_5);
    let q = q.mul_add(s, 0.005_197_797);
    let q = q.mul_add(s, -0.026_858_104);
    let q = q.mul_add(s, 0.112_836_726);
    let q = q.mul_add(s, -0.376_126_32);
    let q = q.mul_add(s, 0.128_379_17);
    let near = q.mul_add(x, x);

    // erfc(t) = e^(t q(t) - t); at 4 and above erf rounds to one.
    let t = x.abs();
    let t = if t > 4.0 { 4.0 } else { t };
    let q = -1.043_319_8e-5f32;
    let q = q.mul_add(t, 0.000_314_858_86);
    let q = q.mul_add(t, -0.003_610_344_6);
    let q = q.mul_add(t, 0.023_694_571);
    let q = q.mul_add(t, -0.106_159_054);
    let q = q.mul_add(t, -0.635_198_06);
    let q = q.mul_add(t, -0.128_637_08);
    let far = (1.0 - exp(q.mul_add(t, -t))).copysign(x);

    if t < 0.925 { near } else { far }
}

/// The hyperbolic tangent, within 2e-7 of the true value (relative).
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let s = x * x;
    let q = 0.002_064_662_3f32;
    let q = q.mul_add(s, -0.008_091_965);
    let q = q.mul_add(s, 0.021_666_344);
    let q = q.mul_add(s, -0.053_940_564);
    let q = q.mul_add(s, 0.133_331_58);
    let q = q.mul_add(s, -0.333_333_28);
    let near = (q * s).mul_add(x, x);

    let t = x.abs();
    let far = (1.0 - 2.0 / (exp(2.0 * t) + 1.0)).copysign(x);

    if t < 0.625 { near } else { far }
}

/// `1 / (1 + e^-x)`, within 3e-7 of the true value (relative).
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    // For x < 0 the form e^x / (1 + e^x) keeps the small values exact.
    let e = exp(-x.abs());
    let top = if x < 0.0 { e } else { 1.0 };
    top / (1.0 + e)
}

/// `x` times the share of a normal distribution below `x`: `x (1 + erf(x / sqrt 2)) / 2`.
#[inline(always)]
pub fn gelu(x: f32) -> f32 {
    let half = 0.5 * x;
    half.mul_add(erf(x * std::f32::consts::FRAC_1_SQRT_2), half)
}

/// The older approximation of [`gelu`]: `x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2`.
#[inline(always)]
pub fn gelu_tanh(x: f32) -> f32 {
    let half = 0.5 * x;
    let inner = 0.797_884_6 * (0.044_715 * x * x).mul_add(x, x);
    half.mul_add(tanh(inner), half)
}

/// `x sigmoid(x)`.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

/// `x`, or zero where it is negative; NaN stays NaN.
#[inline(always)]
pub fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every `step`-th f32 between 0 and `max`, and its negative.
    fn dense(max: f32, step: usize) -> impl Iterator<Item = f32> {
        (0..=max.to_bits()).step_by(step).map(f32::from_bits).flat_map(|x| [x, -x])
    }

    /// erf in f64: its Taylor series near zero, the continued fraction of erfc far away.
    fn erf_f64(x: f64) -> f64 {
        let t = x.abs();
        let y = if t < 3.0 {
            let (mut term, mut sum, mut n) = (t, t, 0.0);
            while term.abs() > 1e-18 * sum.abs() {
                n += 1.0;
                term *= -t * t / n;
                sum += term / (2.0 * n + 1.0);
            }
            sum * std::f64::consts::FRAC_2_SQRT_PI
        } else {
            let fraction = (1..60).rev().fold(t, |f, k| t + 0.5 * k as f64 / f);
            1.0 - (-t * t).exp() / fraction / std::f64::consts::PI.sqrt()
        };
        y.copysign(x)
    }

    fn relative(found: f32, exact: f64) -> f64 {
        (found as f64 - exact).abs() / exact.abs().max(f32::MIN_POSITIVE as f64)
    }

    fn worst(max: f32, distance: impl Fn(f32) -> f64) -> f64 {
        dense(max, if cfg!(miri) { 9_999_991 } else { 1_009 }).map(distance).fold(0.0, f64::max)
    }

    #[test]
    fn errors_are_as_stated() {
        let exp_error = worst(87.0, |x| relative(exp(x), (x as f64).exp()));
        assert!(exp_error <= 1e-7, "exp: {exp_error:e}");
        let erf_error = worst(6.0, |x| (erf(x) as f64 - erf_f64(x as f64)).abs());
        assert!(erf_error <= 1.2e-7, "erf: {erf_error:e}");
        let tanh_error = worst(20.0, |x| relative(tanh(x), (x as f64).tanh()));
        assert!(tanh_error <= 2e-7, "tanh: {tanh_error:e}");
        let sigmoid_error = worst(80.0, |x| relative(sigmoid(x), 1.0 / (1.0 + (-x as f64).exp())));
        assert!(sigmoid_error <= 3e-7, "sigmoid: {sigmoid_error:e}");
        let gelu_error = worst(10.0, |x| {
            let x64 = x as f64;
            let exact = 0.5 * x64 * (1.0 + erf_f64(x64 * std::f64::consts::FRAC_1_SQRT_2));
            (gelu(x) as f64 - exact).abs() / x64.abs().max(1.0)
        });
        assert!(gelu_error <= 1.2e-7, "gelu: {gelu_error:e}");
    }

    #[test]
    fn ends_of_the_range() {
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(88.8), f32::INFINITY);
        assert!(exp(88.7).is_finite());
        assert_eq!(exp(-103.2), f32::from_bits(1));
        assert_eq!((erf(f32::INFINITY), erf(f32::NEG_INFINITY)), (1.0, -1.0));
        assert_eq!((tanh(f32::INFINITY), tanh(f32::NEG_INFINITY)), (1.0, -1.0));
        assert_eq!((sigmoid(f32::INFINITY), sigmoid(f32::NEG_INFINITY)), (1.0, 0.0));
        for f in [exp, erf, tanh, sigmoid, gelu, gelu_tanh, silu, relu] {
            assert!(f(f32::NAN).is_nan());
        }
    }
}
