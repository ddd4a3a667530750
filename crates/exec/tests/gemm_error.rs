//! The error of a product against its depth has the published shape.

#[path = "../examples/gemm_error.rs"]
#[allow(dead_code)]
mod example;

use russet_exec::ane::{Ane, Family, Rule};
use russet_exec::kernels::rounding::Rounding;

#[test]
fn the_error_grows_with_the_depth() {
    let ane = Ane::of(Family::H16);
    for (depth, published) in &example::PUBLISHED[..4] {
        let found = example::error(*depth, Rounding::Ane(ane.rules));
        let share = found / published;
        assert!((0.55..1.05).contains(&share), "{found:e} of {published:e} at {depth}");
    }
    let grows = |ane: Ane| {
        let rounding = Rounding::Ane(ane.rules);
        example::error(4096, rounding) / example::error(512, rounding)
    };
    assert!((7.0..9.0).contains(&grows(ane)), "{}", grows(ane));
    let without = ane.without(Rule::FixedAccumulator);
    assert!((0.9..1.1).contains(&grows(without)), "{}", grows(without));
}
