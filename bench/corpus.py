#!/usr/bin/env python3
"""Tries every file of a folder of Core ML models and prints the table in docs/corpus.md.

usage: corpus.py FOLDER [--russet target/release/russet] > docs/corpus.md

Of each file: `russet inspect` opens it and verifies it, `--text` prints it in Apple's syntax, the text is opened and printed again (the
same bytes), `russet compile` writes it unchanged as a compiled model that opens again, and where its weights are there `russet run`
runs it on seeded inputs. Nothing in FOLDER is written to. A result is `finite`, or the reason it is not stands below the table.
"""
import argparse
import json
import pathlib
import subprocess
import tempfile

import numpy as np

ENDINGS = (".mlpackage", ".mlmodelc", ".mlmodel", ".mil", ".hwx")

# Files whose result is not finite on numbers drawn at random, and why; each is run again on what it is meant for.
REASONS = {
    "DTLN": ("finite on magnitudes", "takes the logarithm of a spectrum, which random numbers below zero are not; run on their magnitudes"),
}


def call(russet, *arguments):
    done = subprocess.run([russet, *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def problem(err):
    """The code of a diagnostic and its first line."""
    try:
        return json.loads(err.strip().splitlines()[-1])["errors"][0]["code"]
    except (ValueError, KeyError, IndexError):
        line = next((line for line in err.splitlines() if line.startswith("error")), err.strip()[:80])
        return line.removeprefix("error")


def stages(model):
    """The ML Programs of a model as inspect tells them: of a pipeline, of its stages."""
    if model["content"] == "pipeline":
        return [s for stage in model["stages"] for s in stages(stage["model"])]
    return [model] if model["content"] == "program" else []


def magnitudes(model, file):
    """Inputs of a program that are never below zero; unknown extents are one."""
    random = np.random.default_rng(1)
    shapes = {i["name"]: [int(d) if d.strip().isdigit() else 1 for d in i["type"].split("[")[1].rstrip("]").split(",")] for i in model["functions"][0]["inputs"]}
    np.savez(file, **{name: np.abs(random.normal(size=shape)).astype(np.float32) for name, shape in shapes.items()})


def row(russet, path, folder, scratch):
    name = path.relative_to(folder)
    kind = path.suffix[1:]
    code, out, err = call(russet, "inspect", path, "--json")
    if code:
        return [str(name), kind, f"refused: {problem(out or err)}", "", "", "", ""], "refused"
    model = json.loads(out)
    programs = stages(model)
    found = sum(len(p["findings"]) for p in programs)
    ops = sum(f["n_ops"] for p in programs for f in p["functions"])
    what = f"{ops} ops" if programs else model["content"]
    absent = any(p["weights_absent"] for p in programs)
    if not programs:
        return [str(name), kind, what, "", "", "", "described"], "described"
    # Texts: of a pipeline stage by stage.
    n = len(model.get("stages", []))
    texts = []
    for i in range(max(n, 1)):
        which = ["--stage", i] if n else []
        code, text, err = call(russet, "inspect", path, "--text", *which)
        if code:
            texts.append(problem(err))
            continue
        file = scratch / "again.mil"
        file.write_text(text)
        code, again, err = call(russet, "inspect", file, "--text")
        texts.append("same" if code == 0 and again == text else f"differs: {problem(err)}" if code else "differs")
    text = "same" if set(texts) == {"same"} else ", ".join(texts)
    compiled = ""
    if kind in ("mlpackage", "mlmodel") and not absent:
        target = scratch / "out.mlmodelc"
        code, _, err = call(russet, "compile", path, "-o", target)
        if code == 0:
            code, _, err = call(russet, "inspect", target)
        compiled = "yes" if code == 0 else problem(err)
    if absent:
        run = "no weights"
    else:
        code, out, err = call(russet, "run", path, "--seed", 1, "--json")
        if code:
            run = problem(err)
        else:
            outputs = json.loads(out)["runs"][0]["outputs"]
            bad = sum(o["not_finite"] for o in outputs)
            run = "finite" if bad == 0 else "not finite"
            reason = next((r for k, r in REASONS.items() if k in str(name)), None)
            if bad and reason:
                magnitudes(model, scratch / "in.npz")
                code, out, err = call(russet, "run", path, "--inputs", scratch / "in.npz", "--json")
                bad = sum(o["not_finite"] for o in json.loads(out)["runs"][0]["outputs"]) if code == 0 else 1
                run = reason[0] if bad == 0 else run
    verified = "yes" if found == 0 else f"{found} findings"
    return [str(name), kind, what, verified, text, compiled, run], run


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--russet", default="target/release/russet")
    args = parser.parse_args()
    found = sorted(p for p in args.folder.rglob("*") if p.suffix in ENDINGS and not any(q.suffix in ENDINGS for q in p.relative_to(args.folder).parents))
    head = ["file", "kind", "holds", "verifies", "text, read and printed again", "compiled model", "run on seeded inputs"]
    print("# Core ML files of other makers\n")
    print("Made by `python bench/corpus.py FOLDER`, on files from public repositories that are not part of this one.\n")
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    counts = {}
    with tempfile.TemporaryDirectory() as scratch:
        for path in found:
            cells, result = row(args.russet, path, args.folder, pathlib.Path(scratch))
            counts[result] = counts.get(result, 0) + 1
            print(f"| {' | '.join(cells)} |", flush=True)
    print(f"\n{len(found)} files: " + ", ".join(f"{n} {what}" for what, n in sorted(counts.items(), key=lambda c: -c[1])) + ".")
    if any(reason[0] in counts for reason in REASONS.values()):
        print("\nWhere the result is not plainly finite:\n")
        for name, (short, long) in REASONS.items():
            print(f"- {name}, \"{short}\": {long}.")


main()
