//! What each rule of the engine costs: the distance with all of them, and without each.

use russet_exec::ane::{RULES, Rule};
use serde_json::{Value, json};

use crate::arithmetic::{ArithmeticName, RuleName};
use crate::compile::finite;
use crate::diagnostic::Outcome;
use crate::show::table;

/// The error of the outputs without one rule.
pub struct Cost {
    pub rule: Rule,
    /// The distance of the outputs from the reference, worst of all outputs.
    pub without: f64,
    /// That with every rule.
    pub with_all: f64,
}

/// The rules an arithmetic has, each with the arithmetic that lacks it.
pub fn each(arithmetic: ArithmeticName) -> Outcome<Vec<(Rule, ArithmeticName)>> {
    let russet_exec::Arithmetic::Ane(ane) = arithmetic.get() else { return Ok(Vec::new()) };
    let rules = RULES.iter().map(|r| r.rule).filter(|&r| ane.rules.has(r));
    rules.map(|rule| Ok((rule, arithmetic.without(&[RuleName(rule)])?))).collect()
}

/// The costliest first.
pub fn sort(costs: &mut [Cost]) {
    costs.sort_by(|a, b| a.without.total_cmp(&b.without));
}

pub fn text(costs: &[Cost]) -> String {
    let rows: Vec<Vec<String>> = costs
        .iter()
        .map(|c| {
            let change = match (c.without, c.with_all) {
                (a, b) if a == b => "none".to_owned(),
                (a, b) if a.is_finite() && b.is_finite() => {
                    format!("{:+.1} %", 100.0 * (a / b - 1.0))
                }
                (a, _) if a.is_finite() => "finite again".into(),
                _ => "not finite".into(),
            };
            let row = c.rule.row();
            vec![row.id.into(), format!("{:.3e}", c.without), change]
        })
        .collect();
    let all = costs.first().map_or(0.0, |c| c.with_all);
    format!(
        "\nwhat each rule costs: the worst output is {all:.3e} (relative L2) with all of them\n{}",
        table(&["without", "relative L2", "change"], &rows)
    )
}

pub fn json(costs: &[Cost]) -> Value {
    let row = |c: &Cost| {
        json!({
            "rule": c.rule.row().id, "relative_l2": finite(c.without),
            "with_all": finite(c.with_all),
        })
    };
    costs.iter().map(row).collect()
}
