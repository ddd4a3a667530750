//! Arithmetics on the command line: `f32`, `bf16`, `fp16`, `ane`, `ane:m1`, less some rules.

use std::str::FromStr;

use clap::Args;
use russet_exec::Arithmetic;
use russet_exec::ane::{Ane, Family, RULES, Rule};

use crate::diagnostic::{Failure, Outcome};

/// An arithmetic that has a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArithmeticName(Arithmetic);

impl ArithmeticName {
    pub const F32: ArithmeticName = ArithmeticName(Arithmetic::F32);
    pub const ANE: ArithmeticName = ArithmeticName(Arithmetic::ANE);

    pub fn get(self) -> Arithmetic {
        self.0
    }

    /// What would be typed to get it, rules that are left out in words.
    pub fn name(self) -> String {
        let ane = match self.0 {
            Arithmetic::F32 => return "f32".into(),
            Arithmetic::Bf16 => return "bf16".into(),
            Arithmetic::FP16 => return "fp16".into(),
            Arithmetic::Ane(ane) => ane,
        };
        let whole = Ane::of(ane.family);
        let mut name = match ane.family == Family::default() {
            true => "ane".to_owned(),
            false => format!("ane:{}", ane.family.name()),
        };
        let left_out: Vec<&str> =
            whole.rules.iter().filter(|&r| !ane.rules.has(r)).map(|r| r.row().id).collect();
        if !left_out.is_empty() {
            name += &format!(" without {}", left_out.join(", "));
        }
        name
    }

    /// The same less some rules, which only an engine has.
    pub fn without(self, rules: &[RuleName]) -> Outcome<ArithmeticName> {
        match (self.0, rules) {
            (_, []) => Ok(self),
            (Arithmetic::Ane(ane), rules) => {
                let less = rules.iter().fold(ane, |ane, r| ane.without(r.0));
                Ok(ArithmeticName(Arithmetic::Ane(less)))
            }
            _ => Err(Failure::usage(format!("{} has no rules to leave out", self.name()))
                .help("--without is for --arithmetic ane")),
        }
    }
}

impl FromStr for ArithmeticName {
    type Err = String;

    fn from_str(s: &str) -> Result<ArithmeticName, String> {
        let arithmetic = match s {
            "f32" => Arithmetic::F32,
            "bf16" => Arithmetic::Bf16,
            "fp16" => Arithmetic::FP16,
            "ane" => Arithmetic::ANE,
            s => {
                let family = s.strip_prefix("ane:").and_then(family);
                let family =
                    family.ok_or("f32, bf16, fp16, ane, or ane: and a chip from m1 to m5")?;
                Arithmetic::Ane(Ane::of(family))
            }
        };
        Ok(ArithmeticName(arithmetic))
    }
}

/// The family of a chip such as `m2-max`, or the one of this name.
fn family(chip: &str) -> Option<Family> {
    let (base, suffix) = chip.split_once('-').unwrap_or((chip, ""));
    let of_chip = match base {
        "m1" => Some(Family::H13),
        "m2" => Some(Family::H14),
        "m3" => Some(Family::H15),
        "m4" => Some(Family::H16),
        "m5" => Some(Family::H17),
        _ => None,
    };
    let known = ["", "pro", "max", "ultra"].contains(&suffix);
    of_chip.filter(|_| known).or_else(|| Family::named(chip))
}

/// A rule that has a name.
#[derive(Debug, Clone, Copy)]
pub struct RuleName(pub Rule);

impl FromStr for RuleName {
    type Err = String;

    fn from_str(s: &str) -> Result<RuleName, String> {
        Rule::named(s).map(RuleName).ok_or_else(|| {
            let all: Vec<&str> = RULES.iter().map(|r| r.id).collect();
            format!("one of {}", all.join(", "))
        })
    }
}

#[derive(Args, Debug, Clone)]
pub struct ArithmeticChoice {
    /// The rules numbers obey: f32; bf16 or fp16 storage; ane, as the Neural Engine of an M4 does;
    /// ane:m1 to ane:m5.
    #[arg(long, value_name = "ARITHMETIC", default_value = "f32")]
    pub arithmetic: ArithmeticName,
    /// Rules of the engine to leave out.
    #[arg(long, value_name = "RULE", value_delimiter = ',')]
    pub without: Vec<RuleName>,
}

impl ArithmeticChoice {
    pub fn chosen(&self) -> Outcome<ArithmeticName> {
        self.arithmetic.without(&self.without)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for name in ["f32", "bf16", "fp16", "ane", "ane:h13", "ane:h17"] {
            assert_eq!(name.parse::<ArithmeticName>().unwrap().name(), name);
        }
        let m2 = "ane:m2-max".parse::<ArithmeticName>().unwrap();
        assert_eq!(m2.name(), "ane:h14");
        let less = m2.without(&[RuleName(Rule::OffsetSlice)]).unwrap();
        assert_eq!(less.name(), "ane:h14 without offset-slice");
        for wrong in ["ane:m9", "ane:m1-mini", "f64", "ane:"] {
            assert!(wrong.parse::<ArithmeticName>().is_err(), "{wrong}");
        }
        assert!(ArithmeticName::F32.without(&[RuleName(Rule::OffsetSlice)]).is_err());
    }
}
