"""Holds the declarations of ops against coremltools': which are missing, and whose parameters, first
opsets or defaults differ.

    python bench/check_ops.py         # needs coremltools

Reads `op!` declarations from crates/ir/src/ops. Prints one line for each difference; those that are
meant are listed below with their reasons.
"""

import logging
import pathlib
import re
import sys

import numpy as np

logging.disable(logging.CRITICAL)
from coremltools.converters.mil._deployment_compatibility import AvailableTarget  # noqa: E402
from coremltools.converters.mil.mil.ops.registry import SSAOpRegistry  # noqa: E402

OPS = pathlib.Path(__file__).parent.parent / "crates" / "ir" / "src" / "ops"
DECLARATION = re.compile(r'"(\w+)" since (Ios\d+)(?: until (Ios\d+))?\s*=>\s*\w+\s*\{(.*?)\n?\s*\}\n\}', re.S)
FIELD = re.compile(r"^(\w+): ((?:[^=,<]|<[^>]*>+)+?)(?: = (.+?))?((?:, (?:since|until) Ios\d+)*)$", re.S)
TARGETS = {"Ios15": "iOS15", "Ios16": "iOS16", "Ios17": "iOS17", "Ios18": "iOS18"}

MEANT = {
    ("const", "val"): "coremltools' const has other names for what it takes",
    ("cond", "pred"): "its blocks are parameters in coremltools",
    ("conv_quantized", None): "only the older neural network format has it",
}


def declared():
    """Name to the op's versions: first opset, the one it ends with, and fields, each with its type, default, first and
    last opset."""
    found = {}
    for path in sorted(OPS.glob("*.rs")):
        for name, since, until, body in DECLARATION.findall(path.read_text()):
            body = re.sub(r"//.*", "", body)
            fields = {}
            for text in filter(None, (" ".join(f.split()) for f in body.split(";"))):
                match = FIELD.match(text)
                if not match:
                    sys.exit(f"{path.name}: {name}: `{text}` is not understood")
                field, kind, default, opsets = match.groups()
                first, last = re.search(r"since (\w+)", opsets), re.search(r"until (\w+)", opsets)
                fields[field] = (kind, default, first and first[1], last and last[1])
            found.setdefault(name, []).append((since, until or None, fields))
    return found


def registered():
    """Name to opset to operation class."""
    return {name: {t.name: cls for t, cls in versions.items()} for name, versions in SSAOpRegistry.core_ops.items()}


def parameters(cls):
    """Names of parameters, and whether they may be absent."""
    return {n: t.optional for n, t in cls.input_spec.input_types.items() if not n.startswith("_")}


def differences(ours, theirs):
    for name, versions in sorted(theirs.items()):
        if name.startswith("_"):
            continue
        if name not in ours:
            yield name, None, "is not declared"
            continue
        since = min(since for since, _, _ in ours[name])
        first = next((t for t in TARGETS.values() if t in versions), None)
        if TARGETS[since] != first:
            yield name, None, f"exists from {first} on, declared since {since}"
        for opset, target in TARGETS.items():
            if target not in versions:
                continue
            wanted = parameters(versions[target])
            here = [fields for since, until, fields in ours[name] if since <= opset and (until is None or opset < until)]
            if len(here) != 1:
                yield name, None, f"has {len(here)} versions in {target}"
                continue
            fields = here[0]
            have = {f: (kind, default) for f, (kind, default, a, b) in fields.items()
                    if (a is None or a <= opset) and (b is None or opset < b)}
            for field in wanted.keys() - have.keys():
                yield name, field, f"is missing in {target}"
            for field in have.keys() - wanted.keys():
                yield name, field, f"is not a parameter in {target}"
            for field in wanted.keys() & have.keys():
                kind, default = have[field]
                optional = kind.startswith("Option<") or default is not None
                if optional != wanted[field]:
                    yield name, field, f"{'may' if wanted[field] else 'must not'} be absent in {target}"
    for name in ours.keys() - theirs.keys():
        yield name, None, "is not an op of coremltools"


all_differences = dict.fromkeys(d for d in differences(declared(), registered()))
shown = [d for d in all_differences if (d[0], d[1]) not in MEANT]
for name, field, why in shown:
    print(f"{name}{'.' + field if field else ''} {why}")
print(f"{len(declared())} ops declared, {len(shown)} differences")
