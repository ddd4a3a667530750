#!/usr/bin/env python3
"""Holds russet's type rules against coremltools' on drawn programs: every op, shapes, types, opsets, unknown extents.

usage: infer_types.py [N] [--russet target/release/russet] [--seed 1] [--keep FOLDER]

N programs (300 unless said) are made with coremltools' builder, saved with the type it states for every value, and read by
russet, which infers its own. `russet inspect` says of which op they differ (`kept-whole`), and that is a failure, unless a
rule of MEANT below names it with its reason; docs/semantics.md has the same. Prints the failures and a summary.
Needs: pip install coremltools==9.0 numpy
"""

import argparse
import collections
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

from peer.common import TARGETS, ct, converted, mb, np, types
from peer.drawn import KINDS, RECIPES, Draw

# Disagreements that are meant: what russet says, as a part of its sentence, and why it is right.
MEANT = {}
OPS_EACH = 6
EXTENT_MAX = 12


def symbolic(shape, symbols):
    from coremltools.converters.mil.mil import get_new_symbol
    return tuple(symbols.setdefault(len(symbols), get_new_symbol()) if n is None else n for n in shape)


def attempt(seed, names):
    """A model of these ops and the names of those it holds; None when coremltools refuses one of them."""
    rng = np.random.default_rng(seed)
    opset = str(rng.choice(list(TARGETS)))
    draw = Draw(seed, opset, flexible=bool(rng.random() < 0.4))
    recipes, specs = [], []
    for name in names:
        made = RECIPES[name](draw)
        wanted = next(made)
        recipes.append((made, len(specs), len(wanted)))
        specs += wanted
    inputs, declared = [], []
    symbols = {}
    for i, (shape, kind) in enumerate(specs):
        shape = tuple(shape) or (1,)  # Core ML hands over no scalars
        inputs.append(mb.TensorSpec(symbolic(shape, symbols), dtype=KINDS[kind]))
        free = ct.RangeDim(lower_bound=1, upper_bound=EXTENT_MAX, default=2)
        declared.append(ct.TensorType(name=f"in{i}", shape=ct.Shape(tuple(free if n is None else n for n in shape))))

    def body(*values):
        for made, at, n in recipes:
            try:
                made.send(list(values[at:at + n]))
            except StopIteration:
                pass
        return mb.identity(x=values[0], name="out")

    # The builder takes names of inputs from the parameters of the function.
    scope = {"body": body}
    names_of = ", ".join(f"in{i}" for i in range(len(specs)))
    exec(f"def function({names_of}): return body({names_of})", scope)  # noqa: S102
    program = mb.program(input_specs=inputs, opset_version=TARGETS[opset])(scope["function"])
    return converted(program, TARGETS[opset], inputs=declared), opset


def inspect(binary, model):
    done = subprocess.run([binary, "inspect", str(model), "--json"], capture_output=True, text=True, check=False)
    if done.returncode:
        return [{"message": f"russet cannot read it: {(done.stderr or done.stdout).strip()[:400]}", "place": ""}]
    return json.loads(done.stdout)["findings"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("n", type=int, nargs="?", default=300)
    parser.add_argument("--russet", default="target/release/russet")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for packages that fail")
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    refused, covered, failures, meant = collections.Counter(), collections.Counter(), 0, 0
    order = []
    with tempfile.TemporaryDirectory() as temp:
        made = 0
        while made < args.n:
            # Every op comes by in turn.
            if len(order) < OPS_EACH:
                order += list(rng.permutation(list(RECIPES)))
            names, order = order[:OPS_EACH], order[OPS_EACH:]
            seed = int(rng.integers(1 << 31))
            good = []
            for k, name in enumerate(names):  # which of them can be made at this seed
                try:
                    attempt(seed, [*good, name])
                    good.append(name)
                except Exception as e:  # noqa: BLE001 - the builder raises anything
                    refused[name] += 1
                    last = f"{type(e).__name__}: {e}"
            if not good:
                continue
            model, opset = attempt(seed, good)
            made += 1
            covered.update(good)
            path = pathlib.Path(temp) / f"{made}.mlpackage"
            model.save(str(path))
            for finding in inspect(args.russet, path):
                if any(part in finding["message"] for part in MEANT):
                    meant += 1
                    continue
                failures += 1
                print(f"program {made} (seed {seed}, {opset}, {' '.join(good)}): {finding['message']} ({finding['place']})")
                if args.keep:
                    shutil.copytree(path, args.keep / path.name, dirs_exist_ok=True)
            shutil.rmtree(path)
    never = sorted(set(RECIPES) - set(covered))
    print(f"{args.n} programs of {sum(covered.values())} drawn ops ({len(covered)} of {len(RECIPES)} kinds"
          f"{', never: ' + ' '.join(never) if never else ''}): {failures} disagreements, {meant} that are meant")
    sys.exit(failures > 0 or bool(never))


main()
