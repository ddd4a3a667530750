//! Ops on boxes in images.

use crate::infer::{Outputs, TypeError, Types};
use crate::{DType, Dim, OpDef, TensorType, Value, Work, op};

op! {
    /// Of boxes (the middle's x and y, width, height), at most `max_boxes` by falling score, without
    /// those that overlap a better one by more than `iou_threshold`: the boxes, their scores, their
    /// places.
    ///
    /// With a `score_threshold`, as before iOS 17: boxes `[N, B, 4]` and scores `[N, B, K]` of which
    /// those below it are left out, and their number is a fourth result. Without, as since then:
    /// `[N, 4, B]` and `[N, K, B]`.
    "non_maximum_suppression" since Ios15 => NonMaximumSuppression {
        boxes: Value;
        scores: Value;
        iou_threshold: f32;
        score_threshold: Option<f32>;
        max_boxes: i32;
        per_class_suppression: bool = false;
    }
}

impl OpDef for NonMaximumSuppression {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let boxes = types.float(self.boxes)?;
        let scores = types.same_dtype(self.scores, boxes.dtype)?;
        for (at, t) in [(self.boxes, boxes), (self.scores, scores)] {
            if t.rank() != 3 {
                return Err(TypeError::Rank { at, found: t.rank(), expected: "3" });
            }
        }
        let max = u64::try_from(self.max_boxes);
        let max = max.map_err(|_| TypeError::param(format!("at most {} boxes", self.max_boxes)))?;
        let (places, features) = if self.score_threshold.is_some() { (1, 2) } else { (2, 1) };
        types.same_extent(self.boxes, features, &Dim::Fixed(4))?;
        types.same_extent(self.scores, places, &boxes.shape[places])?;
        types.same_extent(self.scores, 0, &boxes.shape[0])?;
        let batch = boxes.shape[0].clone();
        let chosen = |t: &TensorType| {
            let mut t = t.clone();
            t.shape[places] = Dim::Fixed(max);
            t
        };
        let shape = vec![batch.clone(), Dim::Fixed(max)];
        let indices = TensorType { dtype: DType::I32, shape };
        let mut all = vec![chosen(boxes), chosen(scores), indices];
        if self.score_threshold.is_some() {
            all.push(TensorType { dtype: DType::I32, shape: vec![batch] });
        }
        Ok(Outputs::of(all))
    }

    fn work(&self, types: &Types<'_>) -> Work {
        let n = types.n_elements(self.boxes);
        Work { flops: n.saturating_mul(n), ..Work::default() }
    }
}
