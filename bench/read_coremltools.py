#!/usr/bin/env python3
"""Holds russet against the packages of coremltools_packages.py, one after another.

usage: read_coremltools.py FOLDER [--russet target/release/russet] [--only PART_OF_NAME]

Each must open without a finding, print as text that reads again as the same text, be written again to the same bytes, and
run to the expected outputs: every function, several calls where there are states. Prints what fails, and a summary; the
exit code says whether anything failed.
Needs: pip install coremltools==9.0 numpy
"""

import argparse
import pathlib
import json
import sys
import tempfile

from peer import common

# coremltools puts an op that nothing reads behind an output that is an input; `compile` takes it out.
WITH_DEAD_OPS = {"several-outputs"}
PARTS = ["opens without findings", "text reads again", "written unchanged", "runs as expected"]


def findings(binary, model):
    said = common.russet(binary, "inspect", model)
    yield from (f"{f['code']}: {f['message']} ({f['place']})" for f in said["findings"])


def text_again(binary, model, temp):
    text = common.russet(binary, "inspect", model, "--text")["text"]
    file = temp / "model.mil"
    file.write_text(text)
    again = common.russet(binary, "inspect", file, "--text")["text"]
    if text != again:
        a, b = next((p for p in zip(text.splitlines(), again.splitlines()) if p[0] != p[1]), ("", "its length"))
        yield f"the text of the text differs: {a} is now {b}"


def written_again(binary, model, temp):
    out = temp / "again.mlpackage"
    # One pass, which finds nothing in these programs.
    common.russet(binary, "compile", model, "-o", out, "--passes", "cancel-layout", "--no-proof")
    # Identifiers in the manifest are drawn by coremltools and made of the contents by russet; coremltools leaves an
    # empty file of weights where there are none.
    files = sorted(p.relative_to(model) for p in model.rglob("*") if p.suffix in (".mlmodel", ".bin"))
    for file in files if model.parent.name not in WITH_DEAD_OPS else ():
        if file.suffix == ".bin" and int.from_bytes((model / file).read_bytes()[:4], "little") == 0:
            continue
        if not (out / file).exists() or (out / file).read_bytes() != (model / file).read_bytes():
            yield f"{file} differs"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--russet", default="target/release/russet")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    good = dict.fromkeys(PARTS, 0)
    names = sorted(p.parent.name for p in args.folder.glob("*/calls.json") if args.only in p.parent.name)
    if not names:
        sys.exit(f"no packages in {args.folder}; coremltools_packages.py makes them")
    for name in names:
        folder = args.folder / name
        model = folder / "model.mlpackage"
        calls = json.loads((folder / "calls.json").read_text())
        with tempfile.TemporaryDirectory() as temp:
            temp = pathlib.Path(temp)
            checks = [lambda: findings(args.russet, model), lambda: text_again(args.russet, model, temp),
                      lambda: written_again(args.russet, model, temp),
                      lambda: (d for c in calls for d in common.differences(args.russet, model, folder, c))]
            for part, check in zip(PARTS, checks):
                try:
                    wrong = list(check())
                except common.Refused as e:
                    wrong = [str(e)]
                good[part] += not wrong
                for line in wrong:
                    print(f"{name}: not {part}: {line}")
    print(f"{len(names)} packages: " + ", ".join(f"{part} {n}" for part, n in good.items()))
    sys.exit(any(n < len(names) for n in good.values()))


main()
