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
import re
import shutil
import subprocess
import sys
import tempfile

from peer.common import TARGETS, converted, ct, mb, np
from peer.drawn import KINDS, RECIPES, Draw

from coremltools.converters.mil.mil import get_new_symbol

# Disagreements that are meant, each with its name in docs/semantics.md: what russet's sentence looks like.
MEANT = {
    # The op's documentation says that a box with the index of its image is cut out of that image alone; the type rule
    # of the same op says that it is cut out of all.
    "crop_resize of indexed boxes": re.compile(r"`crop_resize` .* stated as \w+\[\d+, \d+, .* not as \w+\[\d+, 1, "),
    # It keeps diagonals of matrices, and coremltools computes nothing for a vector either.
    "band_part of a vector": re.compile(r"`band_part` has rank 1,"),
    # Core ML has nothing to reflect there; coremltools does not ask.
    "pad beyond what can be reflected": re.compile(r"`pad` .* along axis"),
}
OPS_EACH = 6
EXTENT_MAX = 12


class Program:
    """What all programs of a seed have in common: an opset, and whether extents may be unknown."""

    def __init__(self, seed):
        self.seed = seed
        rng = np.random.default_rng(seed)
        self.opset = str(rng.choice(list(TARGETS)))
        self.flexible = bool(rng.random() < 0.4)

    def build(self, names):
        """The program of these ops, and what it says of its inputs; an exception when coremltools refuses one of them."""
        recipes, specs = [], []
        for name in names:
            # Each op has its own choices, whatever stands beside it.
            made = RECIPES[name](Draw([self.seed, *name.encode()], self.opset, self.flexible))
            wanted = next(made)
            recipes.append((made, len(specs), len(wanted)))
            specs += wanted
        inputs, declared = [], []
        for i, (shape, kind) in enumerate(specs):
            shape = tuple(shape) or (1,)  # Core ML hands over no scalars
            inputs.append(mb.TensorSpec(tuple(get_new_symbol() if n is None else n for n in shape), dtype=KINDS[kind]))
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
        parameters = ", ".join(f"in{i}" for i in range(len(specs)))
        exec(f"def function({parameters}): return body({parameters})", scope)  # noqa: S102
        return mb.program(input_specs=inputs, opset_version=TARGETS[self.opset])(scope["function"]), declared

    def model(self, names):
        program, declared = self.build(names)
        return converted(program, TARGETS[self.opset], inputs=declared)


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
    parser.add_argument("--verbose", action="store_true", help="also say what coremltools refuses, which is drawn again")
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    refused, covered, meant, failures = collections.Counter(), collections.Counter(), collections.Counter(), 0
    order = []
    with tempfile.TemporaryDirectory() as temp:
        made = 0
        while made < args.n:
            # Every op comes by in turn.
            if len(order) < OPS_EACH:
                order += list(rng.permutation(list(RECIPES)))
            names, order = order[:OPS_EACH], order[OPS_EACH:]
            seed = int(rng.integers(1 << 31))
            drawn, good = Program(seed), []
            for name in names:
                try:
                    drawn.build([name])
                    good.append(name)
                except Exception as e:  # noqa: BLE001 - the builder raises anything
                    refused[name] += 1
                    if args.verbose:
                        print(f"{name} cannot be: {type(e).__name__}: {str(e)[:200]}")
            if not good:
                continue
            try:
                model = drawn.model(good)
            except Exception as e:  # noqa: BLE001
                print(f"seed {seed}, {' '.join(good)}: coremltools cannot: {type(e).__name__}: {str(e)[:200]}")
                continue
            made += 1
            covered.update(good)
            path = pathlib.Path(temp) / f"{made}.mlpackage"
            model.save(str(path))
            for finding in inspect(args.russet, path):
                rule = next((name for name, sentence in MEANT.items() if sentence.search(finding["message"])), None)
                if rule:
                    meant[rule] += 1
                    continue
                failures += 1
                print(f"program {made} (seed {seed}, {drawn.opset}, {' '.join(good)}): {finding['message']} ({finding['place']})")
                if args.keep:
                    shutil.copytree(path, args.keep / path.name, dirs_exist_ok=True)
            shutil.rmtree(path)
    never = sorted(set(RECIPES) - set(covered))
    print(f"{args.n} programs of {sum(covered.values())} drawn ops ({len(covered)} of {len(RECIPES)} kinds"
          f"{', never: ' + ' '.join(never) if never else ''}): {failures} disagreements"
          + "".join(f", {n} meant: {rule}" for rule, n in meant.items()))
    sys.exit(failures > 0 or bool(never))


main()
