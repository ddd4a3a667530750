#!/usr/bin/env python3
"""Times coremltools and russet converting the same sentence encoder, and prints the ratio.

usage: vs_coremltools.py MODEL_FOLDER [--russet target/release/russet] [--length 128] [--rounds 3]

coremltools' way is what its users do: load with transformers, trace with PyTorch, `ct.convert` to an fp16 ML Program, save. Time and
peak memory are of a whole process each, imports included, and once more without imports (`convert and save`).
Needs: pip install torch==2.7.0 transformers==4.51.3 coremltools==9.0 numpy==1.26.4
"""
import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

PEER = r"""
import json, resource, sys, time
start = time.time()
import coremltools as ct, numpy as np, torch
from transformers import AutoModel
imported = time.time()
folder, length, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
model = AutoModel.from_pretrained(folder, attn_implementation="eager", torchscript=True).eval()
class Encoder(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
    def forward(self, ids, mask):
        hidden = self.inner(input_ids=ids, attention_mask=mask)[0]
        weight = mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
        return hidden, torch.nn.functional.normalize(mean, dim=1)
ids = torch.ones((1, length), dtype=torch.int32)
traced = torch.jit.trace(Encoder(model), (ids, ids))
kind = lambda name: ct.TensorType(name=name, shape=(1, length), dtype=np.int32)
converted = ct.convert(traced, inputs=[kind("input_ids"), kind("attention_mask")], minimum_deployment_target=ct.target.iOS18,
                       compute_precision=ct.precision.FLOAT16, skip_model_load=True)
converted.save(out)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"convert": time.time() - imported, "imports": imported - start, "peak_bytes": peak}))
"""


def measured(command):
    """Seconds and peak bytes of a command, and what it printed."""
    before = time.time()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"failed: {' '.join(command)}")
    return time.time() - before, usage.ru_maxrss * 1024, out


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--russet", default="target/release/russet")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    rows = {"coremltools, whole process": [], "coremltools, convert and save": [], "russet, with proof": [], "russet, --no-proof": []}
    peaks = {name: 0 for name in rows}
    with tempfile.TemporaryDirectory() as temp:
        ours = [args.russet, "--quiet", "compile", args.folder, "--seq", str(args.length), "-o", f"{temp}/ours.mlpackage"]
        for _ in range(args.rounds):  # interleaved, so that load on the machine falls on all
            seconds, peak, out = measured([sys.executable, "-c", PEER, args.folder, str(args.length), f"{temp}/peer.mlpackage"])
            rows["coremltools, whole process"].append(seconds)
            rows["coremltools, convert and save"].append(json.loads(out.strip().splitlines()[-1])["convert"])
            peaks["coremltools, whole process"] = peaks["coremltools, convert and save"] = peak
            for name, more in (("russet, with proof", []), ("russet, --no-proof", ["--no-proof"])):
                seconds, peak, _ = measured(ours + more)
                rows[name].append(seconds)
                peaks[name] = max(peaks[name], peak)
            shutil.rmtree(f"{temp}/peer.mlpackage", ignore_errors=True)
    print(f"{'':32} {'median s':>9} {'peak MB':>8}")
    for name, times in rows.items():
        print(f"{name:32} {statistics.median(times):9.2f} {peaks[name] / 1e6:8.0f}")
    base = statistics.median(rows["russet, with proof"])
    print(f"ratio, whole process against with proof: {statistics.median(rows['coremltools, whole process']) / base:.1f}x")
    print(f"ratio, convert and save against with proof: {statistics.median(rows['coremltools, convert and save']) / base:.1f}x")


if __name__ == "__main__":
    main()
