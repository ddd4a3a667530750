#!/usr/bin/env python3
"""Times reading of ONNX models of 10,000 and of 100,000 nodes: a chain, as layers are. The time per node must not grow.

usage: onnx_chain.py [--russet target/release/russet] [--nodes 10000,100000]

Prints the seconds of `russet inspect`, the best of three; each pair of nodes adds a constant and takes a maximum.

Needs: pip install numpy onnx
"""
import argparse
import pathlib
import subprocess
import tempfile
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def chain(n):
    nodes = []
    for i in range(n):
        name = f"/layer.{i}/out"
        before = f"/layer.{i - 1}/out" if i else "x"
        nodes.append(helper.make_node("Relu", [before], [name]) if i % 2 else helper.make_node("Add", [before, "bias"], [name]))
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 8])  # noqa: E731
    bias = numpy_helper.from_array(np.ones(8, np.float32), "bias")
    graph = helper.make_graph(nodes, "chain", [value("x")], [value(f"/layer.{n - 1}/out")], [bias])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--russet", default="target/release/russet")
    parser.add_argument("--nodes", default="10000,100000")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        for n in map(int, args.nodes.split(",")):
            file = pathlib.Path(work) / f"chain{n}.onnx"
            onnx.save(chain(n), file)
            times = []
            for _ in range(3):
                start = time.perf_counter()
                subprocess.run([args.russet, "inspect", str(file), "--quiet"], check=True, stdout=subprocess.DEVNULL)
                times.append(time.perf_counter() - start)
            print(f"{n:>8} nodes: {min(times):.2f} s, {1e6 * min(times) / n:.1f} us each", flush=True)


if __name__ == "__main__":
    main()
