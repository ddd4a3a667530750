use super::*;

fn counting(n: usize) -> Vec<f32> {
    (0..n).map(|i| i as f32).collect()
}

/// [`copy`], one number at a time.
fn copied_plainly(x: &[f32], start: usize, axes: &[Axis]) -> Vec<f32> {
    let n = axes.iter().map(|axis| axis.len).product();
    (0..n).map(|i| x[offset(start, axes, i)]).collect()
}

#[test]
fn every_permutation_of_four_axes() {
    for shape in [[2, 3, 4, 5], [1, 17, 1, 19], [3, 1, 33, 2]] {
        let x = counting(shape.iter().product());
        let from = axes(&shape);
        for code in 0..256usize {
            let p = [code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6];
            if (0..4).all(|axis| p.contains(&axis)) {
                let mut out = vec![-1.0; x.len()];
                transpose(&x, &shape, &p, &mut out);
                assert_eq!(
                    out,
                    copied_plainly(&x, 0, &p.map(|axis| from[axis])),
                    "{shape:?} {p:?}"
                );
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "slow")]
fn large_transposes_on_many_threads() {
    for (shape, p) in
        [([3, 200, 130], [0, 2, 1]), ([128, 12, 32], [1, 2, 0]), ([7, 150, 90], [2, 1, 0])]
    {
        let x = counting(shape.iter().product());
        let from = axes(&shape);
        let mut out = vec![-1.0; x.len()];
        transpose(&x, &shape, &p, &mut out);
        assert_eq!(out, copied_plainly(&x, 0, &p.map(|axis| from[axis])));
    }
}

#[test]
fn slices_step_both_ways() {
    let x = counting(24);
    let mut out = [0.0; 4];
    let parts = [Part { begin: 1, count: 2, step: 2 }, Part { begin: 5, count: 2, step: -3 }];
    slice(&x, &[4, 6], &parts, &mut out);
    assert_eq!(out, [11.0, 8.0, 23.0, 20.0]);
}

#[test]
fn broadcasts_and_tiles() {
    let mut out = [0.0; 12];
    broadcast(&[1.0, 2.0], &[2, 1], &[2, 2, 3], &mut out);
    assert_eq!(out, [1., 1., 1., 2., 2., 2., 1., 1., 1., 2., 2., 2.]);
    tile(&[1.0, 2.0, 3.0], &[1, 3], &[2, 2], &mut out);
    assert_eq!(out, [1., 2., 3., 1., 2., 3., 1., 2., 3., 1., 2., 3.]);
    broadcast(&[7.0], &[], &[2, 6], &mut out);
    assert_eq!(out, [7.0; 12]);
}

#[test]
fn what_concat_joins_split_parts() {
    let (a, b) = (counting(4), counting(6));
    let mut joined = [0.0; 10];
    concat(&[(&a, 2), (&[], 0), (&b, 3)], &mut joined);
    assert_eq!(joined, [0., 1., 0., 1., 2., 2., 3., 3., 4., 5.]);
    let (mut c, mut d) = ([0.0; 4], [0.0; 6]);
    split(&joined, &mut [(&mut c, 2), (&mut d, 3)]);
    assert_eq!((a.as_slice(), b.as_slice()), (c.as_slice(), d.as_slice()));
}

#[test]
fn gather_counts_from_both_ends_and_refuses_the_rest() {
    let x = counting(12);
    let mut out = [0.0; 8];
    gather(&x, (3, 2), &[-1, 0], &mut out).unwrap();
    assert_eq!(out, [4., 5., 0., 1., 10., 11., 6., 7.]);
    let error = gather(&x, (3, 2), &[0, 3], &mut out).unwrap_err();
    assert_eq!(error, IndexError { index: 3, position: 1, len: 3 });
    assert!(gather(&x, (3, 2), &[-4, 0], &mut out).is_err());
    assert!(gather(&[], (0, 2), &[0], &mut out).is_err());
    gather(&x, (3, 2), &[], &mut []).unwrap();
}

#[test]
fn reshapes_without_moving_when_they_can() {
    let shape = |axes: &[Axis]| axes.iter().map(|a| a.len).collect::<Vec<_>>();
    // (1, 12, 32, 1, 5) stored with the channels last, as heads side by side are.
    let from = [(1, 1920), (12, 32), (32, 1), (1, 7), (5, 384)];
    let from = from.map(|(len, stride)| Axis { len, stride });
    let x: Vec<f32> = (0..1920).map(|i| i as f32).collect();
    let mut expected = vec![0.0; 1920];
    copy(&x, 0, from.to_vec(), &mut expected);
    for to in [vec![1, 384, 1, 5], vec![4, 3, 8, 4, 5, 1], vec![384, 5], vec![1, 12, 32, 5]] {
        let axes = reshaped(&from, &to).unwrap();
        assert_eq!(shape(&axes), to);
        let mut found = vec![0.0; 1920];
        copy(&x, 0, axes, &mut found);
        assert_eq!(found, expected, "{to:?}");
    }
    assert_eq!(reshaped(&from, &[1920]), None);
    assert_eq!(reshaped(&from, &[5, 384]), None);
    assert_eq!(reshaped(&[], &[1, 1]).map(|a| shape(&a)), Some(vec![1, 1]));
    assert_eq!(reshaped(&axes(&[0, 3]), &[3, 0]).map(|a| shape(&a)), Some(vec![3, 0]));
}
