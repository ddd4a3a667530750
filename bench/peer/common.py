"""How a package is made and kept with its calls, and how russet is asked about one.

Each package has a folder of its own: `model.mlpackage`, `calls.json`, and the arrays that are named there. A call is a
function (none: the default one), the files of one or more sets of inputs, run one after the other on states that
are kept, and the files of what must come out.
"""

import json
import logging
import os
import pathlib
import subprocess
import warnings

import numpy as np

os.environ.setdefault("TQDM_DISABLE", "1")
logging.disable(logging.CRITICAL)
warnings.filterwarnings("ignore")
import coremltools as ct  # noqa: E402
from coremltools.converters.mil import Builder as mb  # noqa: E402, F401
from coremltools.converters.mil.mil import types  # noqa: E402, F401

TARGETS = {"ios15": ct.target.iOS15, "ios16": ct.target.iOS16, "ios17": ct.target.iOS17, "ios18": ct.target.iOS18,
           "ios26": ct.target.iOS26}
# Our names of opsets in the order of Core ML's specification versions.
FIRST_SPECIFICATION = 6

random = np.random.default_rng(20261130)
made = {}


def floats(*shape, dtype=np.float32):
    return np.round(random.uniform(-2, 2, shape), 2).astype(dtype)


def ints(*shape, low=-9, high=10, dtype=np.int32):
    return random.integers(low, high, shape).astype(dtype)


def converted(program, target, passes="none", **more):
    """The program as a model; as it was built, or rewritten by coremltools' default passes."""
    pipeline = {"none": ct.PassPipeline.EMPTY, "default": ct.PassPipeline.DEFAULT}[passes]
    return ct.convert(program, convert_to="mlprogram", minimum_deployment_target=target, pass_pipeline=pipeline,
                      skip_model_load=True, **more)


def package(name):
    """Registers a function that returns a model (or the path of a saved one) and its calls."""
    def register(function):
        assert name not in made, name
        made[name] = function
        return function
    return register


def call(*pairs, function=None, tolerance=1e-5):
    """Sets of inputs with the outputs of each."""
    return {"function": function, "pairs": pairs, "tolerance": tolerance}


def save(folder, model, calls):
    """Writes the model and its calls into `folder`, which must be empty."""
    folder.mkdir(parents=True)
    if isinstance(model, pathlib.Path):
        model.rename(folder / "model.mlpackage")
    else:
        model.save(str(folder / "model.mlpackage"))
    written = []
    for i, one in enumerate(calls):
        files = []
        for k, (inputs, outputs) in enumerate(one["pairs"]):
            names = f"call{i}-in{k}.npz", f"call{i}-out{k}.npz"
            for file, arrays in zip(names, (inputs, outputs)):
                np.savez(folder / file, **arrays)
            files.append(names)
        written.append({"function": one["function"], "tolerance": one["tolerance"],
                        "inputs": [f[0] for f in files], "outputs": [f[1] for f in files]})
    (folder / "calls.json").write_text(json.dumps(written, indent=1))


class Refused(Exception):
    """What russet said instead of doing it."""


def russet(binary, *arguments):
    """Runs russet; its JSON."""
    done = subprocess.run([binary, *map(str, arguments), "--json"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(f"russet {' '.join(map(str, arguments[:2]))}: {(done.stderr or done.stdout).strip()[-600:]}")
    return json.loads(done.stdout)


def outputs_of(binary, model, folder, one):
    """What russet makes of a call: arrays by name, for each set of inputs."""
    target = folder / "made.npz"
    function = ["--function", one["function"]] if one["function"] else []
    russet(binary, "run", model, "--inputs", *[folder / f for f in one["inputs"]], *function, "-o", target)
    with np.load(target) as found:
        arrays = dict(found)
    target.unlink()
    n = len(one["inputs"])
    if n == 1:
        return [arrays]
    # Several calls are stacked, or numbered where their shapes differ.
    names = {k.rsplit("_", 1)[0] if f"{k.rsplit('_', 1)[0]}_{n - 1}" in arrays else k for k in arrays}
    return [{name: arrays[f"{name}_{k}"] if f"{name}_{k}" in arrays else arrays[name][k] for name in names}
            for k in range(n)]


def differences(binary, model, folder, one, any_float=False):
    """Where the outputs of a call are not the expected ones; passes may make fp16 of fp32."""
    for k, found in enumerate(outputs_of(binary, model, folder, one)):
        with np.load(folder / one["outputs"][k]) as expected:
            for name in expected:
                if name not in found:
                    yield f"call {k}: no output `{name}` among {sorted(found)}"
                    continue
                a, b = found[name], expected[name]
                same_type = a.dtype == b.dtype or any_float and a.dtype.kind == b.dtype.kind == "f"
                if a.shape != b.shape or not same_type:
                    yield f"call {k}: `{name}` is {a.dtype}{list(a.shape)}, not {b.dtype}{list(b.shape)}"
                elif not np.allclose(a.astype(np.float64), b.astype(np.float64), one["tolerance"], one["tolerance"]):
                    yield f"call {k}: `{name}` is {a.ravel()[:6]}, not {b.ravel()[:6]}"
