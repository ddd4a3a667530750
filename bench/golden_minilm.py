#!/usr/bin/env python3
"""Embeddings of crates/testing/data/sentences.txt by PyTorch and transformers, as golden values.

usage: golden_minilm.py MODEL_FOLDER

MODEL_FOLDER holds all-MiniLM-L6-v2 in Hugging Face form. Writes crates/testing/data/minilm.npz with
`embedding` (float32, one row for each sentence): the mean over tokens of the last hidden state,
scaled to length one, as sentence-transformers defines it for this model.
Needs: pip install torch==2.7.0 transformers==4.51.3 numpy
"""
import pathlib
import sys

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

data = pathlib.Path(__file__).resolve().parent.parent / "crates/testing/data"
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModel.from_pretrained(sys.argv[1], attn_implementation="eager").eval()
rows = []
with torch.no_grad():
    for sentence in (data / "sentences.txt").read_text().splitlines():
        tokens = tokenizer(sentence, return_tensors="pt", padding=False, truncation=False)
        hidden = model(**tokens).last_hidden_state[0]
        mean = hidden.mean(dim=0)
        rows.append((mean / mean.norm()).numpy())
np.savez(data / "minilm.npz", embedding=np.stack(rows).astype(np.float32))
print(len(rows), "embeddings of", rows[0].shape[0])
