//! Ops on boxes in images.

use russet_ir::Value;
use russet_ir::ops::{NonMaximumSuppression, NonMaximumSuppressionCounted};

use super::{Operands, checked_len};
use crate::{Array, ExecError};

/// A box and the class it has the best score for.
struct Candidate {
    place: usize,
    score: f32,
    class: usize,
    /// Left, top, right, bottom.
    edges: [f32; 4],
    area: f32,
}

impl Candidate {
    /// What both cover over what either does.
    fn overlap(&self, other: &Candidate) -> f32 {
        let side = |i: usize| {
            let (from, to) =
                (self.edges[i].max(other.edges[i]), self.edges[i + 2].min(other.edges[i + 2]));
            (to - from).max(0.0)
        };
        let both = side(0) * side(1);
        let either = self.area + other.area - both;
        if either > 0.0 { both / either } else { 0.0 }
    }
}

/// What both forms of the op have in common.
struct Suppression {
    boxes: Value,
    scores: Value,
    iou_threshold: f32,
    /// Scores below are left out.
    score_threshold: f32,
    max_boxes: i32,
    per_class: bool,
    /// Is the axis of places the last, instead of that of features?
    boxes_last: bool,
}

pub(super) fn non_maximum_suppression_counted(
    x: &Operands<'_>,
    op: &NonMaximumSuppressionCounted,
) -> Result<Vec<Array>, ExecError> {
    let how = Suppression {
        boxes: op.boxes,
        scores: op.scores,
        iou_threshold: op.iou_threshold,
        score_threshold: op.score_threshold,
        max_boxes: op.max_boxes,
        per_class: op.per_class_suppression,
        boxes_last: false,
    };
    Ok(how.run(x)?.into())
}

pub(super) fn non_maximum_suppression(
    x: &Operands<'_>,
    op: &NonMaximumSuppression,
) -> Result<Vec<Array>, ExecError> {
    let how = Suppression {
        boxes: op.boxes,
        scores: op.scores,
        iou_threshold: op.iou_threshold,
        score_threshold: f32::NEG_INFINITY,
        max_boxes: op.max_boxes,
        per_class: op.per_class_suppression,
        boxes_last: true,
    };
    let [boxes, scores, places, _] = how.run(x)?;
    Ok(vec![boxes, scores, places])
}

impl Suppression {
    /// Boxes, scores, places and their number. Places that are not filled have index -1 and zeros.
    fn run(&self, x: &Operands<'_>) -> Result<[Array; 4], ExecError> {
        let (boxes, scores) = (x.array(self.boxes)?, x.array(self.scores)?);
        let boxes_last = self.boxes_last;
        let sizes = |a: &Array| match a.shape[..] {
            [n, features, places] if boxes_last => Some((n, places, features)),
            [n, places, features] => Some((n, places, features)),
            _ => None,
        };
        let (Some((n, n_boxes, 4)), Some((m, n_scores, n_classes))) =
            (sizes(&boxes), sizes(&scores))
        else {
            return Err(x.fail(format!("boxes {:?} and scores {:?}", boxes.shape, scores.shape)));
        };
        let max =
            usize::try_from(self.max_boxes).map_err(|_| x.fail("a negative number of boxes"))?;
        if (n, n_boxes) != (m, n_scores) || n_classes == 0 {
            return Err(x.fail(format!("boxes {:?} and scores {:?}", boxes.shape, scores.shape)));
        }
        let (box_data, score_data) = (x.floats(&boxes)?, x.floats(&scores)?);
        // Feature `f` of place `i` of image `b`, of `features` at `places` places.
        let at = |b: usize, i: usize, f: usize, places: usize, features: usize| match boxes_last {
            true => (b * features + f) * places + i,
            false => (b * places + i) * features + f,
        };
        checked_len(&[n, max, n_classes.max(4)])?;
        let mut out_boxes = vec![0.0; n * max * 4];
        let mut out_scores = vec![0.0; n * max * n_classes];
        let mut indices = vec![-1; n * max];
        let mut counts = vec![0; n];
        for b in 0..n {
            let candidate = |place: usize| {
                let score = |class: usize| score_data[at(b, place, class, n_boxes, n_classes)];
                let class =
                    (1..n_classes).fold(0, |best, c| if score(c) > score(best) { c } else { best });
                let [cx, cy, w, h] = [0, 1, 2, 3].map(|f| box_data[at(b, place, f, n_boxes, 4)]);
                let edges = [cx - w / 2.0, cy - h / 2.0, cx + w / 2.0, cy + h / 2.0];
                Candidate { place, score: score(class), class, edges, area: w * h }
            };
            let mut candidates: Vec<Candidate> =
                (0..n_boxes).map(candidate).filter(|c| c.score >= self.score_threshold).collect();
            candidates.sort_by(|a, b| b.score.total_cmp(&a.score));
            let mut kept: Vec<&Candidate> = Vec::new();
            for c in &candidates {
                if kept.len() == max {
                    break;
                }
                let rivals = kept.iter().filter(|k| !self.per_class || k.class == c.class);
                if rivals.into_iter().all(|k| k.overlap(c) <= self.iou_threshold) {
                    kept.push(c);
                }
            }
            counts[b] = kept.len() as i32;
            for (i, c) in kept.iter().enumerate() {
                indices[b * max + i] = c.place as i32;
                for f in 0..4 {
                    out_boxes[at(b, i, f, max, 4)] = box_data[at(b, c.place, f, n_boxes, 4)];
                }
                for k in 0..n_classes {
                    let score = score_data[at(b, c.place, k, n_boxes, n_classes)];
                    out_scores[at(b, i, k, max, n_classes)] = score;
                }
            }
        }
        let shape = |features: usize| match boxes_last {
            true => vec![n, features, max],
            false => vec![n, max, features],
        };
        Ok([
            x.stored(shape(4), out_boxes),
            x.stored(shape(n_classes), out_scores),
            Array::i32(vec![n, max], indices),
            Array::i32(vec![n], counts),
        ])
    }
}
