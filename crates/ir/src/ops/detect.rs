//! Ops on boxes in images.

use crate::infer::{Outputs, TypeError, Types};
use crate::{DType, Dim, OpDef, TensorType, Value, Work, op};

op! {
    /// Of boxes `[N, B, 4]` (the middle's x and y, width, height) and scores `[N, B, K]`, at most
    /// `max_boxes` by falling score, without those below `score_threshold` and those that overlap a
    /// better one by more than `iou_threshold`: the boxes, their scores, their places, their number.
    "non_maximum_suppression" since Ios15 until Ios17 => NonMaximumSuppressionCounted {
        boxes: Value;
        scores: Value;
        iou_threshold: f32;
        score_threshold: f32;
        max_boxes: i32;
        per_class_suppression: bool = false;
    }
}
op! {
    /// The same of boxes `[N, 4, B]` and scores `[N, K, B]`, however low; their number is no result.
    "non_maximum_suppression" since Ios17 => NonMaximumSuppression {
        boxes: Value;
        scores: Value;
        iou_threshold: f32;
        max_boxes: i32;
        per_class_suppression: bool = false;
    }
}

/// The boxes, scores and places that are chosen, of an op whose places are along `places` (1 or 2).
fn chosen(
    types: &Types<'_>,
    (boxes, scores): (Value, Value),
    places: usize,
    max_boxes: i32,
) -> Result<[TensorType; 3], TypeError> {
    let (at_boxes, at_scores) = (boxes, scores);
    let boxes = types.float(at_boxes)?;
    let scores = types.same_dtype(at_scores, boxes.dtype)?;
    for (at, t) in [(at_boxes, boxes), (at_scores, scores)] {
        if t.rank() != 3 {
            return Err(TypeError::Rank { at, found: t.rank(), expected: "3" });
        }
    }
    let max = u64::try_from(max_boxes);
    let max = max.map_err(|_| TypeError::param(format!("at most {max_boxes} boxes")))?;
    types.same_extent(at_boxes, 3 - places, &Dim::Fixed(4))?;
    types.same_extent(at_scores, places, &boxes.shape[places])?;
    types.same_extent(at_scores, 0, &boxes.shape[0])?;
    let some = |t: &TensorType| {
        let mut t = t.clone();
        t.shape[places] = Dim::Fixed(max);
        t
    };
    let shape = vec![boxes.shape[0].clone(), Dim::Fixed(max)];
    Ok([some(boxes), some(scores), TensorType { dtype: DType::I32, shape }])
}

/// Each box may be held against each other.
fn pairs(types: &Types<'_>, boxes: Value) -> Work {
    let n = types.n_elements(boxes);
    Work { flops: n.saturating_mul(n), ..Work::default() }
}

impl OpDef for NonMaximumSuppressionCounted {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let chosen = chosen(types, (self.boxes, self.scores), 1, self.max_boxes)?;
        let counts = TensorType { dtype: DType::I32, shape: vec![chosen[2].shape[0].clone()] };
        Ok(Outputs::of(chosen.into_iter().chain([counts])))
    }

    fn work(&self, types: &Types<'_>) -> Work {
        pairs(types, self.boxes)
    }
}

impl OpDef for NonMaximumSuppression {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        Ok(Outputs::of(chosen(types, (self.boxes, self.scores), 2, self.max_boxes)?))
    }

    fn work(&self, types: &Types<'_>) -> Work {
        pairs(types, self.boxes)
    }
}
