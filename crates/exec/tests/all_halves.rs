//! Functions of one number on every fp16, against their definition in f64.

use std::collections::BTreeMap;
use std::f64::consts::{PI, SQRT_2};

use russet_exec::kernels::half::nearest_fp16;
use russet_exec::{Arithmetic, Array, Session};
use russet_ir::text::parse;

/// Every fp16, infinities and NaN included.
fn all_halves() -> Vec<f32> {
    let value = |code: u16| {
        let (exponent, fraction) = (i32::from(code >> 10 & 31), f32::from(code & 1023));
        let size = match exponent {
            0 => fraction * 2f32.powi(-24),
            31 if fraction > 0.0 => f32::NAN,
            31 => f32::INFINITY,
            e => (1.0 + fraction / 1024.0) * 2f32.powi(e - 15),
        };
        if code >> 15 == 1 { -size } else { size }
    };
    (0..=u16::MAX).map(value).collect()
}

/// The error function: a series near zero, a continued fraction beyond.
fn erf(x: f64) -> f64 {
    let t = x.abs();
    let of_magnitude = if t < 2.5 {
        let (mut sum, mut term) = (t, t);
        for n in 1..80 {
            let n = f64::from(n);
            term *= -t * t / n;
            sum += term / (2.0 * n + 1.0);
        }
        2.0 / PI.sqrt() * sum
    } else if t < 6.0 {
        let fraction = (1..60).rev().fold(t, |f, n| t + f64::from(n) / 2.0 / f);
        1.0 - (-t * t).exp() / PI.sqrt() / fraction
    } else {
        1.0
    };
    of_magnitude.copysign(x)
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// What is published of sin and cos near odd multiples of pi, as the rule has it.
fn seam(x: f64) -> f64 {
    let distance = (x - PI).rem_euclid(2.0 * PI);
    let distance = distance.min(2.0 * PI - distance);
    0.04 * (1.0 - distance / 0.1).max(0.0)
}

fn run(op: &str, x: &[f32], arithmetic: Arithmetic) -> Vec<f32> {
    let n = x.len();
    let text = format!("program ios18\nfunc main(%x: fp16[{n}]) {{ %y = {op} }} -> %y");
    let program = parse(&text).unwrap_or_else(|e| panic!("{e} in\n{text}"));
    let session = Session::new(&program.functions[0], arithmetic).expect("a session");
    let inputs = BTreeMap::from([("x".to_owned(), Array::f32(vec![n], x.to_vec()))]);
    session.run(&inputs).expect("a run")["y"].as_f32().expect("floats").to_vec()
}

/// The place of an fp16 among all of them, zero in the middle.
fn place(x: f32) -> i64 {
    let steps = match x.abs() {
        t if t < 2f32.powi(-14) => (f64::from(t) * 2f64.powi(24)) as i64,
        t => i64::from((t.to_bits() - 2f32.powi(-14).to_bits()) >> 13) + 1024,
    };
    if x < 0.0 { -steps } else { steps }
}

type Definition = fn(f64) -> f64;

const OPS: [(&str, Definition); 16] = [
    ("exp(x=%x)", f64::exp),
    ("exp2(x=%x)", f64::exp2),
    ("erf(x=%x)", erf),
    ("tanh(x=%x)", f64::tanh),
    ("sigmoid(x=%x)", sigmoid),
    ("silu(x=%x)", |x| if x == f64::NEG_INFINITY { f64::NAN } else { x * sigmoid(x) }),
    ("gelu(x=%x, mode=\"EXACT\")", |x| match x {
        f64::NEG_INFINITY => 0.0,
        x => 0.5 * x * (1.0 + erf(x / SQRT_2)),
    }),
    ("relu(x=%x)", |x| if x < 0.0 { 0.0 } else { x }),
    ("sqrt(x=%x)", f64::sqrt),
    ("rsqrt(x=%x, epsilon=0.0)", |x| 1.0 / (x + 0.0).sqrt()),
    ("square(x=%x)", |x| x * x),
    ("inverse(x=%x, epsilon=0.0)", |x| 1.0 / (x + 0.0)),
    ("log(x=%x, epsilon=0.0)", |x| if x == 0.0 { -45_440.0 } else { x.ln() }),
    ("softplus(x=%x)", |x| match x {
        x if x.exp() + 1.0 >= 32_768.0 => 0.0,
        x => x.max(0.0) + (-x.abs()).exp().ln_1p(),
    }),
    ("sin(x=%x)", |x| x.sin() + seam(x)),
    ("cos(x=%x)", |x| x.cos() + seam(x)),
];

#[test]
fn every_function_on_every_half() {
    let x = all_halves();
    for (op, definition) in OPS {
        let found = run(op, &x, Arithmetic::ANE);
        let mut apart = 0;
        for (&x, &y) in x.iter().zip(&found) {
            // NaN comes in as infinity and does not come out; zero has no sign.
            let x = if x.is_nan() { f64::INFINITY } else { f64::from(x) };
            let exact = definition(x) as f32;
            let expected = if exact.is_nan() { 0.0 } else { nearest_fp16(exact) + 0.0 };
            assert!(!y.is_nan() && y.to_bits() != (-0.0f32).to_bits(), "{op} of {x} is {y}");
            // Kernels state absolute errors of about 1e-7: a few of the smallest fp16.
            if y != expected && (y - expected).abs() > 4.0 * 2f32.powi(-24) {
                apart += 1;
                assert_eq!((place(y) - place(expected)).abs(), 1, "{op} of {x}: {y}, {expected}");
            }
        }
        // Where the kernels' error, about 1e-7, decides which of two neighbours is nearer.
        assert!(apart <= 32, "{op}: {apart} of 65536 are the neighbour");
    }
}

#[test]
fn fp16_alone_keeps_what_floats_keep() {
    let x = all_halves();
    for (op, _) in OPS {
        let (half, float) = (run(op, &x, Arithmetic::FP16), run(op, &x, Arithmetic::F32));
        for ((x, half), float) in x.iter().zip(half).zip(float) {
            let expected = nearest_fp16(float);
            assert!(half == expected || half.is_nan() && expected.is_nan(), "{op} of {x}");
        }
    }
}
