//! The arithmetic of the Neural Engine: rules, one by one, and the families of chips they hold for.
//!
//! A rule is a row of [`RULES`]: what it says, who measured it, where it holds. Kernels ask an
//! arithmetic whether it has a rule, so each can be taken away alone and its cost seen.

pub(crate) mod node;
mod rules;
pub(crate) mod special;
pub(crate) mod table;

pub use rules::{Known, RULES, Rule, RuleRow, RuleSet};

/// A generation of engines, named as Apple's compiler names its targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// M1.
    H13,
    /// M2.
    H14,
    /// M3.
    H15,
    /// M4.
    #[default]
    H16,
    /// M5.
    H17,
}

impl Family {
    /// Every family, the oldest first.
    pub const ALL: [Family; 5] = [Family::H13, Family::H14, Family::H15, Family::H16, Family::H17];

    /// The name, such as `h16`.
    pub fn name(self) -> &'static str {
        match self {
            Family::H13 => "h13",
            Family::H14 => "h14",
            Family::H15 => "h15",
            Family::H16 => "h16",
            Family::H17 => "h17",
        }
    }

    /// The family of this name.
    pub fn named(name: &str) -> Option<Family> {
        Family::ALL.into_iter().find(|f| f.name() == name)
    }
}

/// A family and those of its rules that are obeyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ane {
    /// Whose engine it is.
    pub family: Family,
    /// What is obeyed.
    pub rules: RuleSet,
}

impl Default for Ane {
    fn default() -> Ane {
        Ane::of(Family::default())
    }
}

impl Ane {
    /// Every rule that holds for a family.
    pub const fn of(family: Family) -> Ane {
        Ane { family, rules: rules::of(family) }
    }

    /// fp16 storage and nothing else: the rounding any fp16 hardware with wide sums has.
    pub const fn fp16() -> Ane {
        let rules = RuleSet::NONE.with(Rule::Fp16Storage).with(Rule::Fp16Residual);
        Ane { family: Family::H16, rules: rules.with(Rule::Fp16Weights) }
    }

    /// The same without a rule.
    pub const fn without(self, rule: Rule) -> Ane {
        Ane { rules: self.rules.without(rule), ..self }
    }

    /// The same with a rule, whether or not it holds for the family.
    pub const fn with(self, rule: Rule) -> Ane {
        Ane { rules: self.rules.with(rule), ..self }
    }
}
