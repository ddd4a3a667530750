"""Programs with states, blocks and lists, and constants of types that few models have."""

import numpy as np

from .common import call, converted, ct, floats, ints, mb, package, types


@package("state-sum")
def _():
    @mb.program(input_specs=[mb.TensorSpec((1, 4)), mb.StateTensorSpec((1, 4), dtype=types.fp16)], opset_version=ct.target.iOS18)
    def program(x, total):
        before = mb.read_state(input=total)
        after = mb.coreml_update_state(state=total, value=mb.add(x=before, y=mb.cast(x=x, dtype="fp16")))
        return mb.cast(x=mb.mul(x=after, y=np.float16(2)), dtype="fp32", name="out")

    pairs, total = [], np.zeros((1, 4), np.float32)
    for _ in range(3):
        x = ints(1, 4).astype(np.float32)
        total = total + x
        pairs.append(({"x": x}, {"out": total * 2}))
    return converted(program, ct.target.iOS18), call(*pairs)


@package("state-cache")
def _():
    """Keys of a growing sequence: each call writes one row at `position` and attends to all that were written."""
    length, width = 6, 4

    @mb.program(input_specs=[mb.TensorSpec((1, width), dtype=types.fp16), mb.TensorSpec((1,), dtype=types.int32),
                             mb.StateTensorSpec((length, width), dtype=types.fp16)], opset_version=ct.target.iOS18)
    def program(key, position, cache):
        after = mb.add(x=position, y=np.array([1], np.int32))
        begin = mb.concat(values=[position, np.array([0], np.int32)], axis=0)
        end = mb.concat(values=[after, np.array([width], np.int32)], axis=0)
        rows = mb.slice_update(x=mb.read_state(input=cache), update=key, begin=begin, end=end)
        rows = mb.coreml_update_state(state=cache, value=rows)
        scores = mb.matmul(x=key, y=rows, transpose_y=True)
        places = np.arange(length, dtype=np.int32).reshape(1, length)
        seen = mb.less_equal(x=places, y=mb.expand_dims(x=position, axes=[0]))
        masked = mb.select(cond=seen, a=scores, b=np.float16(-1e4))
        return mb.matmul(x=mb.softmax(x=masked, axis=-1), y=rows, name="out")

    pairs, cache = [], np.zeros((length, width), np.float32)
    for at in range(4):
        key = floats(1, width, dtype=np.float16)
        cache[at] = key
        scores = (key.astype(np.float32) @ cache.T)[:, :at + 1]
        weight = np.exp(scores - scores.max())
        out = (weight / weight.sum()) @ cache[:at + 1]
        pairs.append(({"key": key, "position": np.array([at], np.int32)}, {"out": out.astype(np.float16)}))
    return converted(program, ct.target.iOS18), call(*pairs, tolerance=5e-3)


@package("state-two")
def _():
    """Two states, one of them written twice in a call; the other is only read after it is written."""
    @mb.program(input_specs=[mb.TensorSpec((3,), dtype=types.fp16), mb.StateTensorSpec((3,), dtype=types.fp16),
                             mb.StateTensorSpec((3,), dtype=types.fp16)], opset_version=ct.target.iOS26)
    def program(x, a, b):
        first = mb.coreml_update_state(state=a, value=mb.add(x=mb.read_state(input=a), y=x))
        second = mb.coreml_update_state(state=a, value=mb.mul(x=first, y=np.float16(2)))
        mb.coreml_update_state(state=b, value=mb.sub(x=second, y=x))
        return mb.add(x=mb.read_state(input=a), y=mb.read_state(input=b), name="out")

    pairs, a = [], np.zeros(3, np.float16)
    for _ in range(3):
        x = ints(3).astype(np.float16)
        a = (a + x) * 2
        pairs.append(({"x": x}, {"out": a + a - x}))
    return converted(program, ct.target.iOS26), call(*pairs)


@package("cond")
def _():
    @mb.program(input_specs=[mb.TensorSpec((1,), dtype=types.int32), mb.TensorSpec((3,))], opset_version=ct.target.iOS15)
    def program(choice, x):
        pred = mb.squeeze(x=mb.greater(x=choice, y=np.int32(0)))
        y, n = mb.cond(pred=pred, _true_fn=lambda: (mb.mul(x=x, y=np.float32(3)), mb.add(x=choice, y=np.int32(1))),
                       _false_fn=lambda: (mb.sub(x=x, y=np.float32(1)), choice))
        return mb.identity(x=y, name="out"), mb.identity(x=n, name="n")

    calls = []
    for choice in (1, 0, -2):
        x, c = floats(3), np.array([choice], np.int32)
        calls.append(call(({"choice": c, "x": x}, {"out": x * 3 if choice > 0 else x - 1, "n": c + 1 if choice > 0 else c})))
    return converted(program, ct.target.iOS15), *calls


@package("while-nested")
def _():
    """Collatz: steps until 1, with a cond within the loop."""
    @mb.program(input_specs=[mb.TensorSpec((1,), dtype=types.int32)], opset_version=ct.target.iOS17)
    def program(n):
        def body(i, value):
            odd = mb.squeeze(x=mb.equal(x=mb.mod(x=value, y=np.int32(2)), y=np.int32(1)))
            up = lambda: mb.add(x=mb.mul(x=value, y=np.int32(3)), y=np.int32(1))  # noqa: E731
            down = lambda: mb.floor_div(x=value, y=np.int32(2))  # noqa: E731
            return mb.add(x=i, y=np.array([1], np.int32)), mb.cond(pred=odd, _true_fn=up, _false_fn=down)

        steps, _ = mb.while_loop(_cond=lambda i, value: mb.squeeze(x=mb.greater(x=value, y=np.int32(1))), _body=body,
                                 loop_vars=(np.array([0], np.int32), n))
        return mb.identity(x=steps, name="out")

    calls = [call(({"n": np.array([n], np.int32)}, {"out": np.array([steps], np.int32)})) for n, steps in [(1, 0), (6, 8), (27, 111)]]
    return converted(program, ct.target.iOS17), *calls


@package("while-list")
def _():
    """Rows of `x`, doubled one after another into a list, then gathered, read and counted."""
    @mb.program(input_specs=[mb.TensorSpec((4, 3))], opset_version=ct.target.iOS15)
    def program(x):
        rows = mb.make_list(init_length=np.int32(1), dynamic_length=True, elem_shape=(np.int32(3),), dtype="fp32")

        def body(i, rows):
            row = mb.squeeze(x=mb.gather(x=x, indices=i, axis=0), axes=[0])
            rows = mb.list_write(ls=rows, index=i, value=mb.mul(x=row, y=np.float32(2)))
            return mb.add(x=i, y=np.array([1], np.int32)), rows

        _, rows = mb.while_loop(_cond=lambda i, rows: mb.squeeze(x=mb.less(x=i, y=np.int32(4))), _body=body,
                                loop_vars=(np.array([0], np.int32), rows))
        rows = mb.list_scatter(ls=rows, indices=np.array([2, 0], np.int32), value=np.array([[9, 9, 9], [7, 7, 7]], np.float32))
        some = mb.list_gather(ls=rows, indices=np.array([3, 0, 1], np.int32), name="some")
        one = mb.list_read(ls=rows, index=np.int32(2), name="one")
        return some, one, mb.identity(x=mb.expand_dims(x=mb.list_length(ls=rows), axes=[0]), name="length")

    x = floats(4, 3)
    rows = x * 2
    rows[2], rows[0] = 9, 7
    return (converted(program, ct.target.iOS15),
            call(({"x": x}, {"some": rows[[3, 0, 1]], "one": rows[2], "length": np.array([4], np.int32)})))


def constants(name, opset, dtype, n):
    def make():
        low, high = (0, 2) if dtype == np.bool_ else (0, 100)
        table = ints(n, low=low, high=high).astype(dtype)

        @mb.program(input_specs=[mb.TensorSpec((2,), dtype=types.int32)], opset_version=opset)
        def program(i):
            x = table if dtype != np.bool_ else mb.cast(x=table, dtype="int32")
            x = mb.gather(x=x, indices=i, axis=0, validate_indices=False)
            return mb.cast(x=x, dtype="int32", name="out")

        i = np.array([n - 1, 1], np.int32)
        return converted(program, opset), call(({"i": i}, {"out": table[i].astype(np.int32)}))
    package(name)(make)


# Few elements are within the message, many in the file of weights.
for kind in (np.int8, np.uint8, np.int16, np.uint16, np.bool_, np.float16, np.int32):
    for count in (4, 40):
        constants(f"constant-{np.dtype(kind).name}-{count}", ct.target.iOS17, kind, count)
for kind in (np.int8, np.uint8, np.int16, np.uint16, np.float16):
    constants(f"constant-{np.dtype(kind).name}-ios18", ct.target.iOS18, kind, 40)
    constants(f"constant-{np.dtype(kind).name}-ios26", ct.target.iOS26, kind, 40)


# Both forms of an op that changed with iOS 17
def boxes(opset, before):
    def make():
        target = opset
        shape = [(1, 4, 4), (1, 4, 2)] if before else [(1, 4, 4), (1, 2, 4)]

        @mb.program(input_specs=[mb.TensorSpec(s) for s in shape], opset_version=target)
        def program(places, scores):
            more = {"score_threshold": np.float32(0.2)} if before else {}
            made = mb.non_maximum_suppression(boxes=places, scores=scores, iou_threshold=np.float32(0.5), max_boxes=np.int32(2), **more)
            named = [mb.identity(x=y, name=name) for y, name in zip(made, ("chosen", "chosen_scores", "at", "count"))]
            return tuple(named)

        # Two that overlap, one apart, one whose score is low.
        places = np.array([[[5, 5, 4, 4], [5, 5, 4, 3.9], [20, 20, 4, 4], [40, 40, 4, 4]]], np.float32)
        scores = np.array([[[0.9, 0.1], [0.2, 0.8], [0.3, 0.6], [0.1, 0.1]]], np.float32)
        at = np.array([[0, 2]], np.int32)
        chosen, best = places[:, [0, 2]], scores[:, [0, 2]]
        turn = (lambda a: a) if before else (lambda a: a.transpose(0, 2, 1).copy())
        expected = {"chosen": turn(chosen), "chosen_scores": turn(best), "at": at}
        if before:
            expected["count"] = np.array([2], np.int32)
        return converted(program, target), call(({"places": turn(places), "scores": turn(scores)}, expected))
    return make


package("boxes-ios15")(boxes(ct.target.iOS15, True))
package("boxes-ios16")(boxes(ct.target.iOS16, True))
package("boxes-ios17")(boxes(ct.target.iOS17, False))
package("boxes-ios18")(boxes(ct.target.iOS18, False))


# A small net as converters leave it
@package("convolution-default-passes")
def _():
    weight, bias = floats(5, 3, 3, 3), floats(5)

    @mb.program(input_specs=[mb.TensorSpec((1, 3, 6, 6))], opset_version=ct.target.iOS16)
    def program(x):
        y = mb.conv(x=x, weight=weight, bias=bias, pad_type="valid")
        y = mb.relu(x=y)
        y = mb.reduce_mean(x=y, axes=[2, 3], keep_dims=False)
        return mb.linear(x=y, weight=np.eye(5, dtype=np.float32)[:4] * 2, name="out")

    x = floats(1, 3, 6, 6)
    made = np.zeros((1, 5, 4, 4), np.float32)
    for r in range(4):
        for c in range(4):
            made[0, :, r, c] = np.einsum("chw,ochw->o", x[0, :, r:r + 3, c:c + 3], weight) + bias
    expected = np.maximum(made, 0).mean((2, 3))[:, :4] * 2
    return converted(program, ct.target.iOS16, passes="default"), call(({"x": x}, {"out": expected}), tolerance=1e-2)
