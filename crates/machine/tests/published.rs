//! The formula against published measurements of single weight-streaming layers, and placement.

use russet_ir::text::parse;
use russet_machine::{Engine, Profile, estimate, place, streaming_s};

const STREAMING: &str = include_str!("../../../measurements/streaming.csv");

/// Relative error of the predicted latency of each published row, by chip.
fn errors() -> Vec<(String, u64, f64)> {
    let rows = STREAMING.lines().skip(1);
    rows.map(|row| {
        let f: Vec<&str> = row.split(',').collect();
        let (c_in, c_out): (u64, u64) = (f[1].parse().unwrap(), f[2].parse().unwrap());
        let columns: u64 = f[3].parse().unwrap();
        let measured_s = f[4].parse::<f64>().unwrap() * 1e-3;
        let ane = Profile::named(f[0]).unwrap().engines.ane;
        let bytes = 2 * c_in * c_out;
        let per_core = c_out.div_ceil(16) * c_in * 2;
        let (stream, _) = streaming_s(&ane, bytes, Some(per_core));
        let compute = 2.0 * (c_in * c_out * columns) as f64 / ane.peak_flops_per_s.value;
        let predicted = ane.dispatch_s.value + stream.max(compute);
        (f[0].to_owned(), c_in, predicted / measured_s - 1.0)
    })
    .collect()
}

#[test]
fn single_layers_are_predicted_within_a_quarter() {
    let errors = errors();
    assert!(errors.len() > 25);
    let mut sizes: Vec<f64> = errors.iter().map(|e| e.2.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let median = sizes[sizes.len() / 2];
    assert!(median < 0.05, "median error {median}");
    for (chip, c_in, e) in &errors {
        assert!(e.abs() < 0.25, "{chip}, {c_in} channels: {:.0} % off", 100.0 * e);
    }
}

#[test]
fn the_notch_is_where_it_was_measured() {
    // M3, 2048 -> 4096: 1 MiB per core. 2016 -> 4096 is 16 KiB away and fast.
    let ane = Profile::named("m3").unwrap().engines.ane;
    let time = |d: u64| streaming_s(&ane, 2 * d * 4096, Some(256 * d * 2));
    let (on, lost) = time(2048);
    assert!((0.00095..0.00105).contains(&(on + ane.dispatch_s.value)), "{on}");
    assert!(lost > 0.0005);
    assert_eq!(time(2016).1, 0.0);
    assert_eq!(
        streaming_s(&Profile::named("m1").unwrap().engines.ane, 1 << 24, Some(1 << 20)).1,
        0.0
    );
}

#[test]
fn every_op_gets_an_engine_and_a_reason() {
    let text = "program ios18 func main(%ids: int32[1, 128]) {
        %table = const(val=fp16[1000, 512] splat(0.1))
        %e = gather(x=%table, indices=%ids, axis=0)
        %t = transpose(x=%e, perm=[0, 2, 1])
        %x = expand_dims(x=%t, axes=[2])
        %w = const(val=fp16[2048, 512, 1, 1] splat(0.1))
        %y = conv(x=%x, weight=%w)
        %f = cast(x=%y, dtype=\"fp32\")
        %g = relu(x=%f)
    } -> %g";
    let graph = parse(text).unwrap().functions.remove(0);
    let chip = Profile::named("m4").unwrap();
    let placement = place(&graph, &chip);
    let by: Vec<_> = placement.ops.iter().map(|p| (p.engine, p.rule)).collect();
    assert_eq!(by[0], (Engine::Cpu, Some("no-gather")));
    assert_eq!(by[3], (Engine::Ane, None));
    assert_eq!(by[5], (Engine::Cpu, Some("fp16")));
    assert_eq!(placement.n_handoffs(), 2);
    let estimate = estimate(&graph, &placement, &chip);
    assert_eq!(estimate.macs_on_ane, 128 * 512 * 2048);
    assert_eq!(estimate.weight_bytes, 2 * 512 * 2048, "the table stays with the CPU");
    assert!(estimate.latency_s() > chip.engines.ane.dispatch_s.value);
}

#[test]
fn a_tiny_program_stays_on_the_cpu() {
    let text = "func main(%x: fp16[4, 4], %y: fp16[4, 4]) { %z = matmul(x=%x, y=%y) } -> %z";
    let graph = parse(text).unwrap().functions.remove(0);
    let placement = place(&graph, &Profile::named("m4").unwrap());
    assert_eq!(placement.ops[0].rule, Some("size-floor"));
}
