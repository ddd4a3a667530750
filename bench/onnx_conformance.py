#!/usr/bin/env python3
"""Runs the conformance cases of the ONNX project and writes docs/onnx.md: what is imported, op by op.

usage: onnx_conformance.py [--cases FOLDER] [--check]

FOLDER is `onnx/backend/test/data` of the Python package `onnx`; without it, that of the installed package, or of the wheel of
onnx 1.22.0 (the last that brings the cases of single nodes), fetched with pip. With --check nothing is written, and the exit code says
whether the page is up to date. Each case is imported, verified, run in f32 and compared within the tolerances of the ONNX project (1e-3
relative). Models of `light` are image classifiers whose weights are all alike; their input counts up from zero to one, as in the ONNX
project's own runner.

Needs: pip install numpy onnx
"""
import argparse
import collections
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

import numpy as np
import onnx
from onnx import numpy_helper

ROOT = pathlib.Path(__file__).resolve().parent.parent
WHEEL = "onnx==1.22.0"
# Groups of cases that are whole models.
MODELS = ["simple", "pytorch-converted", "pytorch-operator", "light"]
# What no program of MIL is about. The first that fits counts.
OUT_OF_SCOPE = [
    ("training", r"training|[Tt]rains?\b"),
    ("strings", r"strings|n-grams"),
    ("sequences, optional values", r"no tensor, and|no sequences"),
    ("ai.onnx.ml", r"trees, encoders"),
    ("ops still in preview", r"ops of ai\.onnx\.preview"),
    ("types MIL does not have", r"float8|float4|fnuz|unknown type|rounds nothing to"),
    ("files", r"decodes no files"),
]


def cases_folder(given, work):
    if given:
        return pathlib.Path(given)
    installed = pathlib.Path(importlib.util.find_spec("onnx").origin).parent / "backend/test/data"
    if (installed / "node").is_dir():
        return installed
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", work, WHEEL], check=True)
    with zipfile.ZipFile(next(pathlib.Path(work).glob("onnx-*.whl"))) as z:
        z.extractall(work, [n for n in z.namelist() if "backend/test/data/" in n])
    return pathlib.Path(work) / "onnx/backend/test/data"


def gathered(data, work):
    """All cases in one folder, by name; those of models are named after their group."""
    folder = pathlib.Path(work) / "cases"
    folder.mkdir()
    for case in (data / "node").iterdir():
        (folder / case.name).symlink_to(case.resolve())
    for group in MODELS[:-1]:
        for case in (data / group).iterdir():
            (folder / f"{group}.{case.name}").symlink_to(case.resolve())
    for model in (data / "light").glob("*.onnx"):
        case = folder / f"light.{model.stem}"
        (case / "test_data_set_0").mkdir(parents=True)
        (case / "model.onnx").symlink_to(model.resolve())
        graph = onnx.load(model).graph
        known = {i.name for i in graph.initializer}
        for i, info in enumerate(i for i in graph.input if i.name not in known):
            shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
            n = int(np.prod(shape))
            value = (np.arange(n).astype(np.float32) / n).reshape(shape)
            (case / f"test_data_set_0/input_{i}.pb").write_bytes(numpy_helper.from_array(value, info.name).SerializeToString())
        for i, _ in enumerate(graph.output):
            (case / f"test_data_set_0/output_{i}.pb").symlink_to(model.with_name(f"{model.stem}_output_{i}.pb").resolve())
    return folder


def run(folder, work):
    report = pathlib.Path(work) / "report.jsonl"
    env = {**os.environ, "RUSSET_ONNX_CASES": str(folder), "RUSSET_ONNX_REPORT": str(report)}
    command = ["cargo", "test", "--quiet", "-p", "russet-testing", "--test", "onnx_cases"]
    subprocess.run(command, check=True, cwd=ROOT, env=env, stdout=subprocess.DEVNULL)
    return [json.loads(line) for line in report.read_text().splitlines()]


def ops_of(folder, case):
    """What the case is about: its only op, or what its name says when a function was written out; of a model, its group."""
    if (group := case.split(".")[0]) in MODELS:
        return f"(models: {group})"
    nodes = onnx.load(folder / case / "model.onnx", load_external_data=False).graph.node
    kinds = {n.op_type if n.domain in ("", "ai.onnx") else f"{n.domain}.{n.op_type}" for n in nodes} - {"Constant"}
    return kinds.pop() if len(kinds) == 1 else "(functions written out, several ops)"


def plain(why):
    """A reason without names and places."""
    why = re.sub(r"^\[unsupported-node\] .*?: ", "", why)
    return re.sub(r"`[^`]*` is an optional", "it is an optional", why).strip()


def scope(reasons):
    return next((name for name, pattern in OUT_OF_SCOPE if any(re.search(pattern, r) for r in reasons)), None)


def published():
    """What bench/onnx_models.py says; it is run by itself, since it fetches some 100 MB."""
    return [
        "## Published models",
        "",
        "`python bench/onnx_models.py --compile` runs 27 models of PyPI packages (voice activity, speech quality, pitch, ends of turns, file",
        "types, detection and recognition of text, page layouts, detection and classes of images) and compiles each to a package: outputs are",
        "within 7e-6 of ONNX Runtime's largest number. `python bench/onnx_chain.py` times the reading: 8 us a node for 10,000 and for 100,000.",
        "",
    ]


def page(results, ops):
    table = collections.defaultdict(lambda: collections.Counter())
    reasons = collections.defaultdict(collections.Counter)
    outside = collections.Counter()
    for r in results:
        op, status = ops[r["case"]], r["status"]
        why = r["why"][0] if r["why"] else ""
        if status == "unsupported" and (name := scope(r["why"])):
            outside[name] += 1
            status = "outside"
        table[op][status] += 1
        if status != "passed":
            reasons[op][plain(why)] += 1
    total = collections.Counter()
    for counts in table.values():
        total.update(counts)
    inside = sum(total.values()) - total["outside"]
    failed = total["wrong"] + total["failed"] + total["panicked"]
    lines = [
        "# ONNX",
        "",
        "`russet compile model.onnx`, `run`, `inspect`, `compare` and `simulate` read ONNX files (op sets 7 to 26 of the standard set, and the",
        "ops of `com.microsoft` that ONNX Runtime's optimizers and quantizers write). Each node becomes the ops of MIL that compute the",
        "same; what cannot be said is reported at once, by node, with the reason.",
        "",
        "- **Shapes.** Extents with a name (`dim_param`) become symbols. `--shapes INPUT=1x128` binds those of an input (may be given for",
        "  several inputs), `1x128,1x256` makes alternatives of them.",
        "- **Types.** `int64` is computed as int32; numbers beyond it become the nearest there is. `double` and `bfloat16` are computed as",
        "  fp32, narrow integers as int32 that keeps their low bits, `bool` at the interface is int32.",
        "- **Weights** stay in the file, or in the files beside it (never outside of the model's folder). `DequantizeLinear` of constants and",
        "  `MatMulNBits` stay compressed in the package (from iOS 16, blocks from iOS 18).",
        "- **Control.** `If` is decided where its condition is known, else becomes `cond`; `Loop` and `Scan` of known length are written out,",
        "  a `Loop` that collects nothing becomes `while_loop`. Functions of the model's own are written out.",
        "- **Recognition.** Linear layers, `gelu` (erf, tanh, sigmoid), `silu`, layer norms and attention are found in their arithmetic by the",
        "  passes of `compile`; exported encoders end in the very form their folder does (`crates/testing/tests/onnx_golden.rs`).",
        "- **com.microsoft.** Every op imported is held against ONNX Runtime's numbers, form by form (`bench/onnx_contrib.py`): 2e-5 of the",
        "  largest number, one step for integers. Products of quantized models are computed in floats; weights stay bytes.",
        "- **Where the standard and ONNX Runtime differ** the standard is followed (`Resize` by scales with aligned corners).",
        "- **Names** of inputs and outputs are kept, with `_` for what MIL's names do not have; every message names the node.",
        "",
        "## Conformance",
        "",
        f"`python bench/onnx_conformance.py` runs the cases of the ONNX project ({WHEEL.replace('==', ' ')}). Where a case gives axes or shapes as inputs of",
        "the graph, they are constants of the program.",
        "",
        "| cases | number |",
        "| --- | --- |",
        f"| all | {sum(total.values())} |",
        f"| in scope | {inside} |",
        f"| passed | {total['passed']} ({100 * total['passed'] / inside:.1f} % of those in scope) |",
        f"| wrong or failed | {failed} |",
        f"| not expressible, or not imported | {total['unsupported']} |",
        "",
        "Cases of whole models are those of onnx' `simple`, `pytorch-converted`, `pytorch-operator` and `light`.",
        "",
        "Out of scope: " + ", ".join(f"{name} ({n})" for name, n in sorted(outside.items())) + ".",
        "",
        *published(),
        "## Op by op",
        "",
        "| op | passed | failed | not expressible | why |",
        "| --- | --- | --- | --- | --- |",
    ]
    for op in sorted(table, key=str.lower):
        c = table[op]
        bad = c["wrong"] + c["failed"] + c["panicked"]
        why = "; ".join(re.sub(r"\|", "/", w)[:110] for w, _ in reasons[op].most_common(2))
        lines.append(f"| {op} | {c['passed']} | {bad} | {c['unsupported'] + c['outside']} | {why} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        folder = gathered(cases_folder(args.cases, work), work)
        results = run(folder, work)
        made = page(results, {r["case"]: ops_of(folder, r["case"]) for r in results})
    file = ROOT / "docs/onnx.md"
    if args.check:
        sys.exit(made != file.read_text())
    file.write_text(made)
    print("\n".join(line for line in made.splitlines() if line.startswith(("| passed", "| in scope", "| wrong", "| not"))))


if __name__ == "__main__":
    main()
