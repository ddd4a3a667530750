#!/usr/bin/env python3
"""Makes a package with 2 GB of weights (a sparse file, so it takes no room) and times `russet inspect` on it.

usage: big_package.py [--russet target/release/russet] [--gigabytes 2] [--rounds 5]

Prints the shortest time and the largest memory of a whole process. Needs: pip install coremltools (for its protobuf messages)
"""
import argparse
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import time

SIDE = 4096
FP16, STRING, ARRAY_FP16 = 10, 2, 65552


def tensor_type(to, shape):
    to.tensorType.dataType, to.tensorType.rank = FP16, len(shape)
    for n in shape:
        to.tensorType.dimensions.add().constant.size = n


def name(op, text):
    value = op.attributes["name"]
    value.type.tensorType.dataType = STRING
    value.immediateValue.tensor.strings.values.append(text)


def make(package, layers):
    """A chain of linear layers of SIDE features, each with a weight of its own."""
    from coremltools.proto import Model_pb2

    model = Model_pb2.Model(specificationVersion=7)
    for feature, to in (("x", model.description.input), ("y", model.description.output)):
        one = to.add(name=feature)
        one.type.multiArrayType.shape.extend([1, SIDE])
        one.type.multiArrayType.dataType = ARRAY_FP16
    model.mlProgram.version = 1
    function = model.mlProgram.functions["main"]
    function.opset = "CoreML6"
    tensor_type(function.inputs.add(name="x").type, [1, SIDE])
    block = function.block_specializations["CoreML6"]
    last, place, places = "x", 64, []
    for i in range(layers):
        op = block.operations.add(type="const")
        tensor_type(op.outputs.add(name=f"w{i}").type, [SIDE, SIDE])
        value = op.attributes["val"]
        tensor_type(value.type, [SIDE, SIDE])
        value.blobFileValue.fileName, value.blobFileValue.offset = "@model_path/weights/weight.bin", place
        name(op, f"w{i}")
        op = block.operations.add(type="linear")
        op.inputs["x"].arguments.add().name = last
        op.inputs["weight"].arguments.add().name = f"w{i}"
        last = "y" if i == layers - 1 else f"h{i}"
        tensor_type(op.outputs.add(name=last).type, [1, SIDE])
        name(op, last)
        places.append(place)
        place += 64 + SIDE * SIDE * 2
    block.outputs.append("y")
    folder = package / "Data" / "com.apple.CoreML"
    (folder / "weights").mkdir(parents=True)
    (folder / "model.mlmodel").write_bytes(model.SerializeToString())
    with open(folder / "weights" / "weight.bin", "wb") as file:
        file.write(struct.pack("<II", layers, 2))
        for at in places:
            file.seek(at)
            file.write(struct.pack("<IIQQQ", 0xDEADBEEF, 1, SIDE * SIDE * 2, at + 64, 0))
        file.truncate(place)
    item = {"author": "com.apple.CoreML", "description": ""}
    (package / "Manifest.json").write_text(json.dumps({
        "fileFormatVersion": "1.0.0", "rootModelIdentifier": "model",
        "itemInfoEntries": {"model": item | {"name": "model.mlmodel", "path": "com.apple.CoreML/model.mlmodel"},
                            "weights": item | {"name": "weights", "path": "com.apple.CoreML/weights"}}}))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--russet", default="target/release/russet")
    parser.add_argument("--gigabytes", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--make", help=argparse.SUPPRESS)
    args = parser.parse_args()
    layers = max(1, round(args.gigabytes * 1e9 / (SIDE * SIDE * 2)))
    if args.make:
        make(pathlib.Path(args.make), layers)
        return
    with tempfile.TemporaryDirectory() as folder:
        package = pathlib.Path(folder) / "big.mlpackage"
        # In a process of its own: what a process takes before it becomes another counts as the other's.
        command = [sys.executable, __file__, "--gigabytes", str(args.gigabytes), "--make", str(package)]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        size = sum(f.stat().st_size for f in package.rglob("*.bin"))
        seconds, memory = [], []
        for _ in range(args.rounds):
            before = time.time()
            process = subprocess.Popen([args.russet, "inspect", str(package)], stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            seconds.append(time.time() - before)
            memory.append(usage.ru_maxrss * 1024)
            assert status == 0
        print(f"inspect of {size / 1e9:.1f} GB: {1000 * min(seconds):.0f} ms, {max(memory) / 1e6:.0f} MB")


main()
