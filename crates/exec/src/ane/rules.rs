//! The rules: the table that the kernels, the program and `docs/arithmetic.md` share.

use super::Family;
use super::Family::{H13, H14, H15, H16, H17};

/// One deviation of the engine from 32-bit arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Rule {
    /// Results are fp16.
    Fp16Storage,
    /// So is the residual stream.
    Fp16Residual,
    /// Decoded weights are fp16.
    Fp16Weights,
    /// Ties of reductions go away from zero.
    HalfUpSums,
    /// Products have no subnormal operands or results.
    FlushDenormals,
    /// Products are infinite from 32,768.
    ProductLimit,
    /// Products are summed in steps of 2^-16.
    FixedAccumulator,
    /// Four products at a time are added with twelve bits.
    Fp16Tiles,
    /// Slices that begin inside a row end at 4,094.
    OffsetSlice,
    /// NaN that comes in is infinite.
    NanIsInfinity,
    /// Operations without a result give zero.
    InvalidIsZero,
    /// There is no negative zero.
    UnsignedZero,
    /// log(0) is finite.
    LogOfZero,
    /// softplus of large numbers is zero.
    SoftplusCollapse,
    /// log(sum(exp)) overflows to zero.
    LogSumExpCollapse,
    /// 2^y with a constant 2 is y^2.
    PowOfTwo,
    /// Activations are piecewise linear.
    ActivationTables,
    /// Activations right after a product are piecewise linear, and coarser.
    FusedActivation,
    /// Trigonometric functions have seams.
    TrigSeams,
    /// Products of int8 take integers.
    Int8Products,
}

/// How well a rule is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Someone measured it, or Apple documents it.
    Measured,
    /// It explains published measurements, and nobody saw it directly.
    Inferred,
}

/// What is known of a rule.
#[derive(Clone, Copy, Debug)]
pub struct RuleRow {
    pub rule: Rule,
    /// Its name on the command line.
    pub id: &'static str,
    /// What it says, and what is unsure about it.
    pub says: &'static str,
    /// Who found it.
    pub source: &'static str,
    pub known: Known,
    /// The families it is on for.
    pub families: &'static [Family],
}

const ALL: &[Family] = &[H13, H14, H15, H16, H17];

/// Every rule, in the order of [`Rule`].
pub const RULES: [RuleRow; 20] = [
    RuleRow {
        rule: Rule::Fp16Storage,
        id: "fp16-storage",
        says: "Every result is stored as the nearest fp16, halves to even; 65,520 and above are \
               infinite, so exp is from 11.094 and a square from 256 on.",
        source: "ane-guide ch. 3; ch. 12: at most one unit in the last place between chips",
        known: Known::Measured,
        families: ALL,
    },
    RuleRow {
        rule: Rule::Fp16Residual,
        id: "fp16-residual",
        says: "The residual stream is fp16 too. Without this rule, sums of two results of one shape \
               of which one is read elsewhere, and which no product reads, stay 32-bit floats.",
        source: "article on a guided diffusion transformer on an M4 Pro",
        known: Known::Measured,
        families: ALL,
    },
    RuleRow {
        rule: Rule::Fp16Weights,
        id: "fp16-weights",
        says: "A compressed weight (int8, int4, palette, sparse) is decoded as scale times \
               (number - zero point) and rounded to fp16 once, before it is multiplied by.",
        source: "ane-guide ch. 3; coremltools documentation, quantization algorithms",
        known: Known::Measured,
        families: ALL,
    },
    RuleRow {
        rule: Rule::HalfUpSums,
        id: "half-up-sums",
        says: "A sum in the middle of two fp16 numbers is stored as the larger in magnitude: whole \
               numbers are exact to 2048, and 2049 reads 2050. On M1 it reads 2048. M3 is not \
               measured and taken to be like M2 and M4.",
        source: "ANEForge docs/numeric-cliffs.md (M2 Pro, M2 Max, M4 Pro, M5); ane-guide ch. 3 (M1, M5)",
        known: Known::Measured,
        families: &[H14, H15, H16, H17],
    },
    RuleRow {
        rule: Rule::FlushDenormals,
        id: "flush-denormals",
        says: "Subnormal operands and results of matrix products and convolutions count as zero; \
               elsewhere subnormals are kept. M5 keeps them; M2 to M4 are not measured and taken to \
               keep them.",
        source: "ane-guide ch. 3",
        known: Known::Measured,
        families: &[H13],
    },
    RuleRow {
        rule: Rule::ProductLimit,
        id: "product-limit",
        says: "A matrix product or convolution is infinite from 32,768; 32,752 is the last finite \
               result. Sums on the way that pass the limit and come back are not watched.",
        source: "ANEForge docs/numeric-cliffs.md and issue #115 (M1 to M6)",
        known: Known::Measured,
        families: ALL,
    },
    RuleRow {
        rule: Rule::FixedAccumulator,
        id: "fixed-accumulator",
        says: "Products are summed in steps of 2^-16: each is rounded to a whole number of steps. \
               Nobody saw the register; a signed 32-bit number with 16 bits behind the point would \
               end at 32,768, as products do, explains why the published error of a product grows \
               with its depth, and why scaling queries by 1/1024 costs precision. On M5 a subnormal \
               product was seen to survive, which speaks against it there.",
        source: "eiln, notes on the ANE (Q16.16); ANEForge bench/results/device_saturation_sweep; \
                 article on a guided diffusion transformer on an M4 Pro",
        known: Known::Inferred,
        families: ALL,
    },
    RuleRow {
        rule: Rule::Fp16Tiles,
        id: "fp16-tiles",
        says: "Four neighbouring products are added one after another, each sum rounded, before \
               they enter the accumulator. An adder that keeps twelve bits of the larger operand reproduces the published \
               survivors of a cancellation (16 below 4096, 4 from there on) and 4096 + 1024 ones = \
               5116; eleven bits do not. Measured on M1 alone.",
        source: "ane-guide ch. 3 and 20",
        known: Known::Measured,
        families: &[H13],
    },
    RuleRow {
        rule: Rule::OffsetSlice,
        id: "offset-slice",
        says: "A slice of the last axis that does not begin at zero goes through a crop with a gain \
               of 16: what is above 4094 becomes infinite. Absent on M4 and M5; M3 is not measured \
               and taken to be without it.",
        source: "ANEForge docs/numeric-cliffs.md; ane-guide ch. 3 and 12",
        known: Known::Measured,
        families: &[H13, H14],
    },
    RuleRow {
        rule: Rule::NanIsInfinity,
        id: "nan-is-infinity",
        says: "NaN in an input or a constant is plus infinity before any op sees it.",
        source: "ane-guide ch. 3; FluidAudio issue #679",
        known: Known::Measured,
        families: ALL,
    },
    RuleRow {
        rule: Rule::InvalidIsZero,
        id: "invalid-is-zero",
        says: "What has no result is plus zero: 0 * inf, inf - inf, sqrt(-1), rsqrt(-1), log(-1), \
               softsign(inf). So softmax gives all to an infinite score, and equal shares to a row of minus \
               infinity. A product of matrices with such a term is zero as a whole, which nobody \
               measured.",
        source: "ane-guide ch. 3",
        known: Known::Measured,
        families: ALL,
    },
    RuleRow {
        rule: Rule::UnsignedZero,
        id: "unsigned-zero",
        says: "A zero has no sign: 1 / -0 is plus infinity.",
        source: "ane-guide ch. 3",
        known: Known::Measured,
        families: ALL,
    },
    RuleRow {
        rule: Rule::LogOfZero,
        id: "log-of-zero",
        says: "log(0) is -45,440.",
        source: "ane-guide ch. 3",
        known: Known::Measured,
        families: ALL,
    },
    RuleRow {
        rule: Rule::SoftplusCollapse,
        id: "softplus-collapse",
        says: "softplus is log(1 + exp(x)) whose inner sum ends at 32,768: zero above 10.397. \
               One report on M5 saw softplus(10) right and \
               softplus(11) zero, which fits.",
        source: "coremltools issue #2687 (M4), ANEForge issue #113 (M5)",
        known: Known::Measured,
        families: ALL,
    },
    RuleRow {
        rule: Rule::LogSumExpCollapse,
        id: "log-sum-exp-collapse",
        says: "reduce_log_sum_exp takes no maximum out: it is zero where the sum of exponentials \
               passes 65,504.",
        source: "coremltools pull request #2726",
        known: Known::Measured,
        families: ALL,
    },
    RuleRow {
        rule: Rule::PowOfTwo,
        id: "pow-of-two",
        says: "pow with a constant base of exactly 2 squares the exponent. It is Core ML's runtime \
               that does, on any engine.",
        source: "coremltools issue #2628 and pull request #2742",
        known: Known::Measured,
        families: ALL,
    },
    RuleRow {
        rule: Rule::ActivationTables,
        id: "activation-tables",
        says: "sigmoid, tanh, gelu and silu are 32 straight pieces between evenly spaced knots. The \
               published facts are the number of knots, sigmoid's domain [-9.94, 8.32], the largest \
               errors (sigmoid 0.0034, tanh 0.0017, gelu 0.0059), gelu(0) = -0.000543 and silu(0) = \
               -0.001259; domains and knots that meet them are ours. From M4 on an activation alone \
               was seen to be as exact as fp16, so M2 and M3 are taken to be like M1.",
        source: "ane-guide ch. 3 and 25 (M1)",
        known: Known::Measured,
        families: &[H13, H14, H15],
    },
    RuleRow {
        rule: Rule::FusedActivation,
        id: "fused-activation",
        says: "An activation right after a matrix product or convolution is less exact: SiLU was \
               seen at 2.9e-3 instead of 2.8e-4, tanh at 1.8e-2; gelu and sigmoid were not \
               measured and are taken to be like them. Our reading: silu is x times the \
               sigmoid of the table, which comes to 3.5e-3 on normal numbers; gelu likewise; tanh \
               33 knots over [-8, 8], which comes to 1.9e-2.",
        source: "article on a guided diffusion transformer on an M4 Pro",
        known: Known::Measured,
        families: ALL,
    },
    RuleRow {
        rule: Rule::TrigSeams,
        id: "trig-seams",
        says: "sin and cos are off by up to 0.04 within 0.1 of odd multiples of pi, atan within 0.1 \
               of plus and minus 1. Published: 0.04 to 0.12 near the seams of the reduction; the \
               triangle is ours.",
        source: "ane-guide ch. 3",
        known: Known::Measured,
        families: ALL,
    },
    RuleRow {
        rule: Rule::Int8Products,
        id: "int8-products",
        says: "A dequantized int8 tensor reaches what reads it as scale times whole number, not \
               rounded to fp16: products of int8 by int8 are exact until they are stored. The path \
               is documented from A17 Pro and M4 on; how it rounds is not.",
        source: "coremltools documentation, W8A8",
        known: Known::Inferred,
        families: &[H16, H17],
    },
];

impl Rule {
    /// What is known of it.
    pub fn row(self) -> &'static RuleRow {
        &RULES[self as usize]
    }

    /// The rule of this name.
    pub fn named(id: &str) -> Option<Rule> {
        RULES.iter().find(|r| r.id == id).map(|r| r.rule)
    }
}

/// The rules of a family.
pub(super) const fn of(family: Family) -> RuleSet {
    let mut rules = RuleSet::NONE;
    let mut i = 0;
    while i < RULES.len() {
        let mut k = 0;
        while k < RULES[i].families.len() {
            if RULES[i].families[k] as u8 == family as u8 {
                rules = rules.with(RULES[i].rule);
            }
            k += 1;
        }
        i += 1;
    }
    rules
}

/// Some rules, in one word, since every kernel carries them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleSet(u32);

impl RuleSet {
    /// Not one.
    pub const NONE: RuleSet = RuleSet(0);

    /// Is this one of them?
    #[inline(always)]
    pub const fn has(self, rule: Rule) -> bool {
        self.0 >> rule as u8 & 1 == 1
    }

    /// These and another one.
    pub const fn with(self, rule: Rule) -> RuleSet {
        RuleSet(self.0 | 1 << rule as u8)
    }

    /// These but one.
    pub const fn without(self, rule: Rule) -> RuleSet {
        RuleSet(self.0 & !(1 << rule as u8))
    }

    /// All of them, in the order of [`RULES`].
    pub fn iter(self) -> impl Iterator<Item = Rule> {
        RULES.iter().map(|r| r.rule).filter(move |&r| self.has(r))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_where_their_rules_look_for_them() {
        for (i, row) in RULES.iter().enumerate() {
            assert_eq!(row.rule as usize, i, "{}", row.id);
            assert_eq!(Rule::named(row.id), Some(row.rule));
            assert!(row.says.ends_with('.') && !row.source.is_empty() && !row.families.is_empty());
        }
    }
}
