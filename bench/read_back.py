#!/usr/bin/env python3
"""Holds packages that russet writes against coremltools' reader, and against the shared validator where one is named.

usage: read_back.py FOLDER [--russet target/release/russet] [--only PART_OF_NAME] [--validator validate_mlpackage.py]

FOLDER is that of coremltools_packages.py. Each of its packages is compiled in three ways:

- with all passes;
- with one pass that finds nothing, through a `.mlmodelc`, so that every operation is encoded anew from what russet inferred;
- with every single pass that changes it, where several do.

coremltools must load what was written (its reader infers every type again and refuses others), every constant and compressed
weight must decode to the numbers that russet holds, all values that both packages name must have the types they had, and
what is computed must stay (within fp16, where passes make it that). Weights that were compressed must still be.
Prints what fails, and a summary; the exit code says whether anything failed.
Needs: pip install coremltools==9.0 numpy
"""

import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np

from peer import common  # before coremltools, which it keeps quiet
from peer.compressed import materialized

from coremltools import proto
from coremltools.converters.mil.frontend.milproto.load import load

TOLERANCE = 5e-3


def loaded(package):
    """The program as coremltools reads it; not through its loader, which would write a new manifest."""
    spec = proto.Model_pb2.Model()
    data = package / "Data" / "com.apple.CoreML"
    spec.ParseFromString((data / "model.mlmodel").read_bytes())
    return load(spec, specification_version=spec.specificationVersion, file_weights_dir=str(data / "weights"))


def stated(package):
    """Types of all values of the message, by function and name."""
    spec = proto.Model_pb2.Model()
    spec.ParseFromString((package / "Data" / "com.apple.CoreML" / "model.mlmodel").read_bytes())
    found = {}

    def block(function, b):
        for op in b.operations:
            for o in op.outputs:
                # coremltools states the first length of a list that grows, russet none.
                kind = o.type.listType.type if o.type.HasField("listType") else o.type
                found[function, o.name] = (op.type, kind.SerializeToString(deterministic=True))
            for inner in op.blocks:
                block(function, inner)

    for name, f in spec.mlProgram.functions.items():
        for b in f.block_specializations.values():
            block(name, b)
    return found


def operations(block):
    for op in block.operations:
        yield op
        for inner in op.blocks:
            yield from operations(inner)


def weights(program, function):
    """Every constant and compressed weight of a function, decoded."""
    found = {}
    for op in operations(program.functions[function]):
        # What makes the two parts of a sparse weight is decoded with the op that joins them.
        found |= dict.fromkeys(o.name for o in op.outputs if op.op_type.startswith("constexpr_"))
        if op.op_type == "const" or op.op_type.startswith("constexpr_"):
            if len(op.outputs) == 1:
                value = materialized(op.outputs[0]) if op.op_type != "const" else op.outputs[0].val
                found[op.outputs[0].name] = np.asarray(value)
    return found


def different_weights(binary, package):
    """Where the two decode a constant to other numbers: its smallest and largest, how many are zero."""
    program = loaded(package)
    for function in program.functions:
        theirs = weights(program, function)
        said = common.russet(binary, "inspect", package, "--weights", "--function", function)["weights"]
        for w in said:
            value = theirs.get(w["name"])
            if value is None and w["name"] in theirs:
                continue
            if value is None:
                yield f"{function}: coremltools has no constant `{w['name']}`"
                continue
            if list(value.shape) != w["shape"]:
                yield f"{function}: `{w['name']}` is {w['shape']} and {list(value.shape)}"
                continue
            if value.dtype.kind not in "fiub" or value.size == 0 or w.get("min") is None:
                continue
            value = value.astype(np.float32)
            mine, other = (w["min"], w["max"], w["n_zero"]), (value.min(), value.max(), int((value == 0).sum()))
            if not np.allclose(mine, other, 1e-3, 1e-6):
                yield f"{function}: `{w['name']}` decodes to {mine} and {other}"


def different_types(before, after):
    a, b = stated(before), stated(after)
    for key in a.keys() & b.keys():
        # Of a weight, the operation says what it is made of; passes may change the type of anything to fp16.
        if a[key][1] != b[key][1]:
            yield f"`{key[1]}` of {key[0]}: the type of {a[key][0]} differs"


def compressed_kinds(package):
    return collections.Counter(kind for kind, _ in stated(package).values() if kind.startswith("constexpr_"))


def different_outputs(binary, written, folder, calls):
    for one in calls:
        yield from common.differences(binary, written, folder, one | {"tolerance": max(one["tolerance"], TOLERANCE)}, any_float=True)


def refused(validator, packages):
    """What the validator says of each package it refuses."""
    done = subprocess.run([sys.executable, validator, "--json", *map(str, packages)], capture_output=True, text=True, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if len(found) != len(packages):
        sys.exit(f"the validator stopped: {done.stderr[-500:]}")
    return {package: one["errors"] for package, one in zip(packages, found) if one["errors"]}


def written(binary, model, out, declined):
    """What russet writes of a package, by the way it was made."""
    ways = {}

    def compiled(source, *more, to="mlpackage"):
        target = out / f"{len(list(out.iterdir()))}.{to}"
        return target, common.russet(binary, "compile", source, "-o", target, *more)

    try:
        ways["all passes"], said = compiled(model)
        passes = dict.fromkeys(r["pass"] for r in said["rewrites"])
        for one in passes if len(passes) > 1 else ():
            ways[f"only {one}"] = compiled(model, "--passes", one)[0]
    except common.Refused as e:
        declined[re.sub(r"/\S+", "", str(e))[:300]] += 1
    try:
        ways["anew"] = compiled(compiled(model, to="mlmodelc")[0], "--passes", "cancel-layout", "--no-proof")[0]
    except common.Refused as e:
        declined[re.sub(r"/\S+", "", str(e))[:300]] += 1
    return ways


def problems(binary, folder, way, package):
    """Everything that is wrong with a package that was written."""
    model = folder / "model.mlpackage"
    calls = json.loads((folder / "calls.json").read_text())
    checks = [lambda: different_weights(binary, package), lambda: different_outputs(binary, package, folder, calls)]
    if way == "anew":
        checks.append(lambda: different_types(model, package))
        checks.append(lambda: [] if compressed_kinds(model) == compressed_kinds(package) else ["compressed weights are no longer"])
    for check in checks:
        try:
            yield from check()
        except Exception as e:  # noqa: BLE001 - whatever the reader raises
            yield f"{type(e).__name__}: {str(e)[:300]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--russet", default="target/release/russet")
    parser.add_argument("--only", default="")
    parser.add_argument("--validator", default=os.environ.get("MLPACKAGE_VALIDATOR"))
    args = parser.parse_args()
    names = sorted(p.parent.name for p in args.folder.glob("*/calls.json") if args.only in p.parent.name)
    if not names:
        sys.exit(f"no packages in {args.folder}; coremltools_packages.py makes them")
    declined, every = collections.Counter(), {}
    with tempfile.TemporaryDirectory() as temp:
        for name in names:
            folder = args.folder / name
            out = pathlib.Path(temp) / name
            out.mkdir()
            for way, package in written(args.russet, folder / "model.mlpackage", out, declined).items():
                every[package] = (f"{name}, {way}", list(problems(args.russet, folder, way, package)))
        if args.validator:
            # It cannot decode a table that is compressed itself, whoever wrote it.
            sources = [args.folder / name / "model.mlpackage" for name in names]
            not_seen = {s.parent.name for s in refused(args.validator, sources)}
            for package, errors in refused(args.validator, list(every)).items():
                if package.parent.name in not_seen:
                    continue
                every[package][1].extend(f"the validator: {e}" for e in errors)
    for label, wrong in every.values():
        for line in wrong:
            print(f"{label}: {line}")
    for why, n in declined.items():
        print(f"not written, {n} times: {why}")
    n_failed = sum(bool(wrong) for _, wrong in every.values())
    print(f"{len(names)} packages, {len(every)} written, {n_failed} that differ, {sum(declined.values())} not written; "
          f"{f'the validator cannot read {len(not_seen)} of the sources' if args.validator else 'no validator was named'}")
    sys.exit(n_failed > 0)


main()
