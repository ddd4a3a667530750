use super::*;
use crate::ane::{Rule, RuleSet};
use crate::kernels::rounding::Rounding;

const ISAS: [Isa; 3] = [Isa::Baseline, Isa::Avx2, Isa::Avx512];

/// Numbers without structure, the same every time.
pub(super) fn numbers(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_769).wrapping_add(1);
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(n).collect()
}

/// How an operand lies in memory.
#[derive(Clone, Copy, Debug)]
enum Layout {
    Rows,
    Columns,
    Sparse,
}

const LAYOUTS: [Layout; 3] = [Layout::Rows, Layout::Columns, Layout::Sparse];

fn laid_out(data: &[f32], rows: usize, cols: usize, layout: Layout) -> View<'_> {
    match layout {
        Layout::Rows => View::strided(data, rows, cols, cols + 3, 1),
        Layout::Columns => View::strided(data, rows, cols, 1, rows + 1),
        Layout::Sparse => View::strided(data, rows, cols, 2 * cols + 1, 2),
    }
}

fn shapes() -> Vec<(usize, usize, usize)> {
    let mut shapes = vec![(1, 1, 1), (3, 5, 2), (8, 4, 48), (9, 7, 50), (13, 195, 33), (2, 3, 97)];
    if !cfg!(miri) {
        shapes.extend([
            (24, 400, 96),
            (5, 64, 145),
            (70, 193, 101),
            (1, 300, 49),
            (4, 0, 3),
            (0, 4, 3),
        ]);
    }
    shapes
}

#[test]
fn every_instruction_set_gives_the_bits_of_the_definition() {
    for (m, k, n) in shapes() {
        let (a, b) = (numbers(3 * (m + 1) * (k + 3), 1), numbers(3 * (k + 1) * (n + 3), 2));
        for layout in LAYOUTS {
            let (left, right) = (laid_out(&a, m, k, layout), laid_out(&b, k, n, layout));
            let mut expected = vec![0.0; m * n];
            multiply_plainly(left, right, &mut Rows::new(&mut expected, m, n));
            for isa in ISAS.into_iter().filter(|isa| *isa <= Isa::best()) {
                let rows = with_isa(isa, PackRows(left));
                let cols = with_isa(isa, PackCols { view: right, memory: Strips::default() });
                for left in [Left::View(left), Left::Strips(&rows)] {
                    let mut found = vec![f32::NAN; m * n];
                    let part = Part { out: Rows::new(&mut found, m, n), row: 0, col: 0 };
                    let epilogue = &Epilogue::default();
                    with_isa(isa, Run { left, right: &cols, first: 0, epilogue, part });
                    assert_eq!(found, expected, "{isa:?}, {layout:?}, {m}x{k}x{n}");
                }
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "slow, and made of the parts tested above")]
fn the_number_of_threads_does_not_show() {
    for (m, k, n) in [(128, 384, 384), (300, 200, 100), (7, 500, 1500), (1, 2000, 1100)] {
        let (a, b) = (numbers(m * k, 3), numbers(k * n, 4));
        let (left, right) = (View::new(&a, m, k), View::new(&b, k, n));
        let run = |n_threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
            let mut out = vec![f32::NAN; m * n];
            let epilogue = Epilogue { activation: Activation::Gelu, ..Epilogue::default() };
            pool.install(|| multiply(left, right, Rows::new(&mut out, m, n), &epilogue));
            out
        };
        let one = run(1);
        assert_eq!(one, run(2));
        assert_eq!(one, run(3));
    }
}

#[test]
fn the_epilogue_takes_its_steps_in_order() {
    let (m, k, n) = (10, 6, 51);
    let (a, b, c) = (numbers(m * k, 5), numbers(k * n, 6), numbers(m * n, 7));
    let (left, right, residual) = (View::new(&a, m, k), View::new(&b, k, n), View::new(&c, m, n));
    let (rows, cols) = (numbers(m, 8), numbers(n, 9));
    let mut plain = vec![0.0; m * n];
    multiply_plainly(left, right, &mut Rows::new(&mut plain, m, n));
    for bias in [Bias::None, Bias::PerRow(&rows), Bias::PerColumn(&cols)] {
        for rounding in [Rounding::F32, Rounding::Bf16, Rounding::FP16] {
            let epilogue =
                Epilogue { bias, activation: Activation::Silu, residual: Some(residual), rounding };
            let mut found = vec![0.0; m * n];
            multiply(left, &PackedRight::new(right), Rows::new(&mut found, m, n), &epilogue);
            let store = |x: f32| {
                let mut x = [x];
                rounding.store(&mut x);
                x[0]
            };
            for (i, (found, plain)) in found.iter().zip(&plain).enumerate() {
                let biased = match bias {
                    Bias::None => *plain,
                    Bias::PerRow(bias) => plain + bias[i / n],
                    Bias::PerColumn(bias) => plain + bias[i % n],
                };
                let expected = store(store(crate::kernels::math::silu(store(biased))) + c[i]);
                assert_eq!(*found, expected, "{bias:?}, {rounding:?}");
            }
        }
    }
}

#[test]
fn large_products_become_infinite_on_the_engine() {
    let (left, right) = (View::new(&[200.0, -200.0], 2, 1), View::new(&[200.0, 100.0], 1, 2));
    let mut out = [0.0; 4];
    let epilogue = Epilogue { rounding: Rounding::ANE, ..Epilogue::default() };
    multiply(left, right, Rows::new(&mut out, 2, 2), &epilogue);
    assert_eq!(out, [f32::INFINITY, 20_000.0, f32::NEG_INFINITY, -20_000.0]);
}

/// The engine's sums, one product after another.
fn added_as_the_engine_does(a: &[f32], b: &[f32], rounding: Rounding) -> f32 {
    let mut sum = 0.0f64;
    for (a, b) in a.chunks(4).zip(b.chunks(4)) {
        let mut tile = 0.0f32;
        let keep = |x: f32| match rounding.has(Rule::FlushDenormals) {
            true if x.abs() < 6.1e-5 => 0.0,
            _ => x,
        };
        let step = |x: f64| (x * 65_536.0).round_ties_even() / 65_536.0;
        for (a, b) in a.iter().zip(b) {
            let product = f64::from(keep(*a)) * f64::from(keep(*b));
            if rounding.has(Rule::Fp16Tiles) {
                let exponent = f64::from(tile).abs().max(product.abs()).log2().floor();
                let unit = (exponent - 11.0).exp2();
                let sum = f64::from(tile) + product;
                tile =
                    if sum == 0.0 { 0.0 } else { ((sum / unit).round_ties_even() * unit) as f32 };
            } else {
                sum = step(sum + product);
            }
        }
        sum = step(sum + f64::from(tile));
    }
    match rounding.has(Rule::FlushDenormals) && sum.abs() < 6.1e-5 {
        true => 0.0,
        false => sum as f32,
    }
}

#[test]
fn sums_of_the_engine_go_in_steps() {
    let (m, n) = (9, 53);
    for k in [1, 6, 400] {
        let small = |n, seed| numbers(n, seed).iter().map(|x| x * 0.01).collect::<Vec<f32>>();
        let (a, b) = (small(m * k, 11), small(k * n, 12));
        let (left, right) = (View::new(&a, m, k), View::new(&b, k, n));
        let step = RuleSet::NONE.with(Rule::FixedAccumulator);
        for rules in [step, step.with(Rule::Fp16Tiles), step.with(Rule::FlushDenormals)] {
            let rounding = Rounding::Ane(rules);
            let mut found = vec![0.0; m * n];
            let epilogue = Epilogue { rounding, ..Epilogue::default() };
            multiply(left, &PackedRight::new(right), Rows::new(&mut found, m, n), &epilogue);
            for (i, found) in found.iter().enumerate() {
                let column: Vec<f32> = (0..k).map(|r| b[r * n + i % n]).collect();
                let row = &a[i / n * k..][..k];
                assert_eq!(*found, added_as_the_engine_does(row, &column, rounding), "{k}");
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "slow, and made of the parts tested above")]
fn heads_side_by_side() {
    let (n_heads, s, d) = (12, 64, 32);
    let (q, k) = (numbers(n_heads * s * d, 10), numbers(n_heads * s * d, 11));
    fn head(data: &[f32], h: usize) -> View<'_> {
        View::strided(&data[h * 32..], 64, 32, 12 * 32, 1)
    }
    let mut found = vec![0.0; n_heads * s * s];
    let mut out = Rows::new(&mut found, s, n_heads * s);
    let products = (0..n_heads)
        .map(|h| Product {
            left: head(&q, h),
            right: head(&k, h).transposed(),
            out: out.take_cols(s),
        })
        .collect();
    multiply_each(products, &Epilogue::default());
    for h in 0..n_heads {
        let mut expected = vec![0.0; s * s];
        multiply_plainly(
            head(&q, h),
            head(&k, h).transposed(),
            &mut Rows::new(&mut expected, s, s),
        );
        for r in 0..s {
            assert_eq!(found[(r * n_heads + h) * s..][..s], expected[r * s..][..s]);
        }
    }
}
