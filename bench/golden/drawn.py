"""Cases of drawn numbers, where their distribution leaves no choice, and of boxes."""

import numpy as np

from .common import case, floats, random

FLOATS = (np.float32, np.float16)


def i(*values):
    return np.array(values, np.int32)


def both(op, expected, **arguments):
    case(op, expected, infer=False, **arguments)
    case(op, expected, infer=False, dynamic=True, **arguments)


for dtype in FLOATS:
    one = lambda v: np.array(v, dtype)
    for shape in [(1,), (5,), (2, 3), (1, 2, 1, 2), (2, 1, 3, 1, 1), (0, 2)]:
        for seed in (-1, 0, 7, 2**31 - 1):
            for p in (0, 1):
                both("random_bernoulli", np.full(shape, p), shape=i(*shape), prob=one(p), seed=seed, out=dtype)
            both("random_normal", np.full(shape, 1.5), shape=i(*shape), mean=one(1.5), stddev=one(0), seed=seed, out=dtype)
            both("random_uniform", np.full(shape, -2.5), shape=i(*shape), low=one(-2.5), high=one(-2.5), seed=seed, out=dtype)
    for rows, n, size in [((), 4, 3), ((2,), 3, 1), ((2, 1), 5, 2), ((), 1, 4)]:
        chosen = random.integers(0, n, rows)
        only = (np.arange(n) == np.asarray(chosen)[..., None])
        expected = np.broadcast_to(np.asarray(chosen)[..., None], (*rows, size)).astype(np.float64)
        for seed in (-1, 3):
            case("random_categorical", expected, x=only.astype(dtype), mode="probs", size=size, seed=seed, infer=False)
            case("random_categorical", expected, x=np.where(only, 1, -np.inf).astype(dtype), mode="logits", size=size, seed=seed, infer=False)
    case("random_categorical", np.array([1.0]), x=np.array([-np.inf, 0], dtype), infer=False)


def suppressed(boxes, scores, iou, low, most, per_class):
    """Places of the boxes kept, the best first: one after another, in f64."""
    classes, best = scores.argmax(1), scores.max(1)
    order = [k for k in np.argsort(-best, kind="stable") if best[k] >= low]
    kept = []
    for k in order:
        def overlap(j):
            a, b = boxes[k].astype(np.float64), boxes[j].astype(np.float64)
            sides = [max(0, min(a[d] + a[d + 2] / 2, b[d] + b[d + 2] / 2) - max(a[d] - a[d + 2] / 2, b[d] - b[d + 2] / 2)) for d in (0, 1)]
            both = sides[0] * sides[1]
            return both / (a[2] * a[3] + b[2] * b[3] - both)
        if all(overlap(j) <= iou for j in kept if not per_class or classes[j] == classes[k]):
            kept.append(k)
    return kept[:most]


for dtype in FLOATS:
    for n, n_boxes, n_classes, most in [(1, 1, 1, 1), (1, 5, 1, 3), (2, 7, 2, 7), (1, 6, 3, 9), (3, 11, 4, 2)]:
        for per_class in (False, True):
            for iou in (0.0, 0.25, 0.5):
                boxes = np.concatenate([floats(n, n_boxes, 2, low=0, high=4), floats(n, n_boxes, 2, low=1, high=4)], 2).astype(dtype)
                scores = random.permutation(n * n_boxes * n_classes).reshape(n, n_boxes, n_classes) / 128
                scores = scores.astype(dtype)
                for low in (0.25, None):
                    kept = [suppressed(boxes[b], scores[b], iou, -np.inf if low is None else low, most, per_class) for b in range(n)]
                    y, s = np.zeros((n, most, 4)), np.zeros((n, most, n_classes))
                    at = np.full((n, most), -1)
                    for b, k in enumerate(kept):
                        y[b, : len(k)], s[b, : len(k)], at[b, : len(k)] = boxes[b][k], scores[b][k], k
                    how = dict(iou_threshold=dtype(iou), max_boxes=most, per_class_suppression=per_class, infer=False)
                    if low is None:
                        turn = lambda v: v.transpose(0, 2, 1)
                        case("non_maximum_suppression", [turn(y), turn(s), at], boxes=turn(boxes), scores=turn(scores),
                             out=[dtype, dtype, np.int32], **how)
                    else:
                        counts = np.array([len(k) for k in kept])
                        case("non_maximum_suppression", [y, s, at, counts], boxes=boxes, scores=scores, score_threshold=dtype(low),
                             out=[dtype, dtype, np.int32, np.int32], opset=ct.target.iOS16, **how)
