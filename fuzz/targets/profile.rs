//! Chip profiles: every number that is accepted is positive, and a small program can be predicted.
#![no_main]

use libfuzzer_sys::fuzz_target;
use russet_ir::text;
use russet_machine::{Profile, estimate, place};

const SMALL: &str = "func main(%x: fp16[1, 512, 1, 512]) {
  %w = const(val=fp16[512, 512, 1, 1] splat(0.5))
  %y = conv(x=%x, weight=%w)
  %z = relu(x=%y)
} -> %z";

fuzz_target!(|data: &[u8]| {
    let Ok(toml) = std::str::from_utf8(data) else { return };
    let Ok(profile) = Profile::parse("x", toml) else { return };
    for (name, fact) in profile.facts() {
        assert!(fact.value > 0.0 && fact.value.is_finite(), "{name}");
    }
    let program = text::parse(SMALL).expect("a program");
    let graph = &program.functions[0];
    let placement = place(graph, &profile);
    assert!(!estimate(graph, &placement, &profile).latency_s().is_nan());
});
