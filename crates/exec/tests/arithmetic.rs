//! Every rule of the engine's arithmetic in a case that fails without it, on the families it is for.

use std::collections::BTreeMap;
use std::fmt::Write;

use russet_exec::ane::{Ane, Family, Known, RULES, Rule};
use russet_exec::{Arithmetic, Array, Session};
use russet_ir::text::parse;

const INF: f32 = f32::INFINITY;
const NAN: f32 = f32::NAN;

/// A function of `%x`, what goes in, and what comes out as long as the rule is obeyed.
struct Case {
    rule: Rule,
    text: String,
    x: Vec<f32>,
    expected: Vec<f32>,
    /// How near, relative to the numbers.
    within: f32,
}

fn case(rule: Rule, body: &str, x: &[f32], expected: &[f32]) -> Case {
    let text = function(x.len(), body);
    Case { rule, text, x: x.to_vec(), expected: expected.to_vec(), within: 0.0 }
}

/// A function of a row of `n` numbers.
fn function(n: usize, body: &str) -> String {
    format!("program ios18\nfunc main(%x: fp16[1, {n}]) {{\n{body}\n}} -> %y")
}

fn run(text: &str, x: &[f32], arithmetic: Arithmetic) -> Vec<f32> {
    let program = parse(text).unwrap_or_else(|e| panic!("{e} in\n{text}"));
    let graph = &program.functions[0];
    let shape = graph.ty(graph.inputs()[0]).tensor().unwrap().fixed_shape().unwrap();
    let shape = shape.iter().map(|&n| n as usize).collect();
    let inputs = BTreeMap::from([("x".to_owned(), Array::f32(shape, x.to_vec()))]);
    let session = Session::new(graph, arithmetic).unwrap_or_else(|e| panic!("{e} in\n{text}"));
    let mut made = session.run(&inputs).unwrap_or_else(|e| panic!("{e} in\n{text}"));
    made.remove("y").expect("y").as_f32().expect("floats").to_vec()
}

fn near(a: f32, b: f32, within: f32) -> bool {
    let same = a == b && a.is_sign_negative() == b.is_sign_negative();
    same || a.is_nan() && b.is_nan() || (a - b).abs() <= within * b.abs()
}

/// A constant of `n` numbers that are all `value`.
fn all(name: &str, shape: &str, n: usize, value: f32) -> String {
    let mut text = format!("%{name} = const(val=fp16[{shape}] [");
    for i in 0..n {
        write!(text, "{}{value:?}", if i > 0 { ", " } else { "" }).unwrap();
    }
    text + "])\n"
}

/// The sum of a row as a product with ones.
fn summed(n: usize) -> String {
    all("ones", &format!("1, {n}"), n, 1.0) + "%y = linear(x=%x, weight=%ones)"
}

/// One large number, its negative and a one, sixteen times.
fn cancelling(large: f32) -> Vec<f32> {
    [large, -large, 1.0].repeat(16)
}

fn cases() -> Vec<Case> {
    let mut ones = vec![1.0; 1025];
    ones[0] = 4096.0;
    let slice = "%b = const(val=int32[2] [0, 1])\n%e = const(val=int32[2] [1, 5])\n\
                 %y = slice_by_index(x=%x, begin=%b, end=%e)";
    let residual = "%h = add(x=%x, y=%x)\n%q = const(val=fp16 [0.25])\n%r = mul(x=%h, y=%q)\n\
                    %s = add(x=%h, y=%r)\n%y = sub(x=%s, y=%h)";
    let eye = "%w = const(val=fp16[1, 1] [1.0])\n%h = linear(x=%x, weight=%w)\n";
    let affine = "%q = const(val=int8[1, 1] [3])\n%z = const(val=int8 [0])\n\
                  %s = const(val=fp32 [0.1])\n\
                  %w = constexpr_affine_dequantize(quantized_data=%q, zero_point=%z, scale=%s, axis=0)\n\
                  %y = linear(x=%x, weight=%w)";
    let int8 = "%s = const(val=fp16 [0.0999755859375])\n\
                %q = quantize(input=%x, scale=%s, output_dtype=\"int8\")\n\
                %d = dequantize(input=%q, scale=%s)\n%w = const(val=fp16[1, 1] [100.0])\n\
                %y = linear(x=%d, weight=%w)";
    let log = "%y = log(x=%x, epsilon=0.0)";
    vec![
        // exp and square end where fp16 does.
        case(Rule::Fp16Storage, "%y = exp(x=%x)", &[11.0859375, 11.09375], &[65_248.0, INF]),
        case(Rule::Fp16Storage, "%y = square(x=%x)", &[255.875, 256.0], &[65_472.0, INF]),
        case(Rule::Fp16Storage, "%y = add(x=%x, y=%x)", &[1.000244], &[2.0]),
        // 2050 + 512.5 is no fp16: a half is gone when 2050 is taken off again.
        case(Rule::Fp16Residual, residual, &[1025.0], &[512.0]),
        // 0.3 is no fp16, and the product falls on the other side of a middle.
        case(Rule::Fp16Weights, affine, &[9.0], &[2.701_171_9]),
        case(
            Rule::HalfUpSums,
            "%y = reduce_sum(x=%x, axes=[1], keep_dims=false)",
            &[257.0, 256.0, 256.0, 256.0, 256.0, 256.0, 256.0, 256.0],
            &[2050.0],
        ),
        case(Rule::FlushDenormals, &summed(2), &[3.0e-5, 3.0e-5], &[0.0]),
        case(Rule::ProductLimit, &summed(2), &[16_376.0, 16_384.0], &[INF]),
        case(Rule::FixedAccumulator, &summed(2), &[1.0e-5, 7.0e-6], &[1.525_878_9e-5]),
        case(Rule::Fp16Tiles, &summed(48), &cancelling(4_096.0), &[4.0]),
        case(Rule::Fp16Tiles, &summed(1025), &ones, &[5_116.0]),
        case(
            Rule::OffsetSlice,
            slice,
            &[5_000.0, 4_094.0, 4_096.0, -5_000.0, 1.0],
            &[4_094.0, INF, -INF, 1.0],
        ),
        case(Rule::NanIsInfinity, "%y = relu(x=%x)", &[NAN, -NAN, 1.0], &[INF, INF, 1.0]),
        case(Rule::NanIsInfinity, "%y = sigmoid(x=%x)", &[NAN], &[1.0]),
        case(Rule::InvalidIsZero, "%y = sub(x=%x, y=%x)", &[INF, -INF, 1.0], &[0.0; 3]),
        case(Rule::InvalidIsZero, "%y = sqrt(x=%x)", &[-1.0, 4.0], &[0.0, 2.0]),
        case(Rule::InvalidIsZero, log, &[-1.0, 1.0], &[0.0, 0.0]),
        case(Rule::InvalidIsZero, "%y = rsqrt(x=%x, epsilon=0.0)", &[-1.0, 0.25], &[0.0, 2.0]),
        case(
            Rule::InvalidIsZero,
            "%z = const(val=fp16 [0.0])\n%y = mul(x=%x, y=%z)",
            &[INF, 3.0],
            &[0.0, 0.0],
        ),
        case(Rule::InvalidIsZero, "%y = softmax(x=%x, axis=1)", &[1.0, INF, 2.0], &[0.0, 1.0, 0.0]),
        case(Rule::InvalidIsZero, "%y = softmax(x=%x, axis=1)", &[-INF; 4], &[0.25; 4]),
        case(
            Rule::UnsignedZero,
            "%z = const(val=fp16 [0.0])\n%i = const(val=fp16 [1.0])\n%n = mul(x=%x, y=%z)\n\
             %y = real_div(x=%i, y=%n)",
            &[-1.0, 1.0],
            &[INF, INF],
        ),
        case(Rule::LogOfZero, log, &[0.0, 1.0], &[-45_440.0, 0.0]),
        case(
            Rule::SoftplusCollapse,
            "%y = softplus(x=%x)",
            &[10.390625, 10.3984375, 50.0],
            &[10.390625, 0.0, 0.0],
        ),
        case(Rule::InvalidIsZero, "%y = softsign(x=%x)", &[INF, 1.0], &[0.0, 0.5]),
        case(
            Rule::LogSumExpCollapse,
            "%y = reduce_log_sum_exp(x=%x, axes=[1], keep_dims=false)",
            &[8.0; 32],
            &[0.0],
        ),
        case(
            Rule::PowOfTwo,
            "%t = const(val=fp16 [2.0])\n%y = pow(x=%t, y=%x)",
            &[3.0, 0.0, -1.0],
            &[9.0, 0.0, 1.0],
        ),
        Case {
            within: 0.01,
            ..case(Rule::ActivationTables, "%y = gelu(x=%x, mode=\"EXACT\")", &[0.0], &[-0.000_543])
        },
        Case {
            within: 0.01,
            ..case(Rule::ActivationTables, "%y = silu(x=%x)", &[0.0], &[-0.001_259])
        },
        Case {
            within: 1e-3,
            ..case(
                Rule::FusedActivation,
                &(eye.to_owned() + "%y = silu(x=%h)"),
                &[-1.0],
                &[-0.271_98],
            )
        },
        Case { within: 0.01, ..case(Rule::TrigSeams, "%y = sin(x=%x)", &[3.140625], &[0.0406]) },
        case(Rule::Int8Products, int8, &[0.3], &[30.0]),
    ]
}

/// The arithmetic of a family in which nothing but rule `rule` decides what its case shows.
fn with(rule: Rule, family: Family) -> Ane {
    let ane = Ane::of(family);
    match rule {
        // A table in front of the other, or a step below the smallest number.
        Rule::FusedActivation => ane.without(Rule::ActivationTables),
        Rule::FlushDenormals => ane.without(Rule::FixedAccumulator),
        Rule::FixedAccumulator => ane.without(Rule::FlushDenormals),
        // An adder of its own rounds before the product is stored.
        Rule::Fp16Weights => ane.without(Rule::Fp16Tiles),
        Rule::NanIsInfinity => ane.without(Rule::ActivationTables),
        _ => ane,
    }
}

#[test]
fn every_rule_has_a_case_that_fails_without_it() {
    let cases = cases();
    for row in &RULES {
        assert!(cases.iter().any(|c| c.rule == row.rule), "{} has no case", row.id);
    }
    let mut wrong = String::new();
    for c in &cases {
        let right = |found: &[f32]| {
            found.len() == c.expected.len()
                && found.iter().zip(&c.expected).all(|(&a, &b)| near(a, b, c.within))
        };
        for family in Family::ALL {
            let ane = with(c.rule, family);
            let holds = c.rule.row().families.contains(&family);
            let found = run(&c.text, &c.x, Arithmetic::Ane(ane));
            if right(&found) != holds {
                let not = if holds { "" } else { " not" };
                let expected = &c.expected;
                writeln!(
                    wrong,
                    "{:?} on {family:?}: {found:?}, should{not} be {expected:?}",
                    c.rule
                )
                .unwrap();
            }
            let found = run(&c.text, &c.x, Arithmetic::Ane(ane.without(c.rule)));
            if right(&found) {
                writeln!(wrong, "{:?} on {family:?}: {found:?} without the rule", c.rule).unwrap();
            }
        }
        let found = run(&c.text, &c.x, Arithmetic::F32);
        if right(&found) {
            writeln!(wrong, "{:?}: f32 has it too", c.rule).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// `docs/arithmetic.md` has these rows; `BLESS=1 cargo test -p russet-exec --test arithmetic`
/// writes them.
#[test]
fn the_rules_are_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/arithmetic.md");
    let text = std::fs::read_to_string(path).expect("docs/arithmetic.md");
    let (head, rest) = text.split_once("<!-- rules -->\n").expect("where the table begins");
    let (_, tail) = rest.split_once("<!-- end of rules -->").expect("where the table ends");
    let mut table = String::from(
        "| rule | families | what it says | source | known |\n| --- | --- | --- | --- | --- |\n",
    );
    for row in &RULES {
        let families = match row.families.len() == Family::ALL.len() {
            true => "all".to_owned(),
            false => row.families.iter().map(|f| f.name()).collect::<Vec<_>>().join(", "),
        };
        let known = match row.known {
            Known::Measured => "measured",
            Known::Inferred => "inferred",
        };
        writeln!(table, "| `{}` | {families} | {} | {} | {known} |", row.id, row.says, row.source)
            .unwrap();
    }
    let expected = format!("{head}<!-- rules -->\n{table}<!-- end of rules -->{tail}");
    if text != expected {
        assert!(std::env::var_os("BLESS").is_some(), "docs/arithmetic.md is out of date");
        std::fs::write(path, expected).expect("docs/arithmetic.md");
    }
}

#[test]
fn what_holds_of_the_wide_sum() {
    let sum = |x: &[f32], family| {
        run(&function(x.len(), &summed(x.len())), x, Arithmetic::Ane(Ane::of(family)))[0]
    };
    for family in Family::ALL {
        // Sixteen thousand ones are exact, as published.
        assert_eq!(sum(&[1.0; 16_000], family), 16_000.0);
        assert_eq!(sum(&[4_094.0; 8], family), 32_752.0);
    }
    // The published survivors of sixteen ones on M1.
    for (large, survivors) in
        [(1024.0, 16.0), (3000.0, 16.0), (4090.0, 16.0), (4096.0, 4.0), (8000.0, 4.0)]
    {
        assert_eq!(sum(&cancelling(large), Family::H13), survivors, "{large}");
    }
    assert_eq!(sum(&cancelling(16_000.0), Family::H13), 4.0);
    assert_eq!(sum(&cancelling(30_000.0), Family::H13), 4.0);
    assert_eq!(sum(&cancelling(4_096.0), Family::H16), 16.0);
}
