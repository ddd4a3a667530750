#!/usr/bin/env python3
"""Tiny random encoders of every family we read, with what `transformers` computes for them.

usage: golden_families.py OUTPUT_FOLDER      (committed as crates/testing/data/families)

For each family a folder: config.json, model.safetensors and golden.npz, which holds input_ids,
attention_mask (the second row is padded on the right) and last_hidden_state. Values at padding
are not comparable for families whose positions depend on padding; compare where the mask is 1.
Weights are seeded, but are only equal between runs of one version of torch.
Needs: pip install torch==2.7 transformers==4.51 safetensors numpy
"""
import json
import pathlib
import sys

import numpy as np
import torch
import transformers as t

LENGTH, BATCH, VOCAB = 16, 2, 100
SHARED = dict(vocab_size=VOCAB, max_position_embeddings=40)
USUAL = dict(SHARED, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
FAMILIES = {
    "bert": (t.BertModel, t.BertConfig(**USUAL)),
    "roberta": (t.RobertaModel, t.RobertaConfig(**USUAL, hidden_act="gelu_new", type_vocab_size=1, layer_norm_eps=1e-5)),
    "distilbert": (t.DistilBertModel, t.DistilBertConfig(**SHARED, dim=32, n_layers=2, n_heads=4, hidden_dim=64)),
    "mpnet": (t.MPNetModel, t.MPNetConfig(**USUAL, layer_norm_eps=1e-5)),
}


def make(name, folder):
    torch.manual_seed(sum(name.encode()))
    model_class, config = FAMILIES[name]
    model = model_class(config).eval()
    with torch.no_grad():
        # Initial weights are so small that every layer is nearly the identity; biases are zero.
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.15)
    pad = config.pad_token_id
    ids = torch.randint(pad + 1, VOCAB, (BATCH, LENGTH))
    mask = torch.ones_like(ids)
    mask[1, LENGTH - 5:] = 0
    ids[mask == 0] = pad
    with torch.no_grad():
        hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder, safe_serialization=True)
    config_file = folder / "config.json"
    config_file.write_text(json.dumps(json.loads(config_file.read_text()), indent=2, sort_keys=True) + "\n")
    np.savez(folder / "golden.npz", input_ids=ids.int().numpy(), attention_mask=mask.int().numpy(),
             last_hidden_state=hidden.float().numpy())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for name in FAMILIES:
        make(name, pathlib.Path(sys.argv[1]) / name)
