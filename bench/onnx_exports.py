#!/usr/bin/env python3
"""Tiny random transformers as torch.onnx and ONNX Runtime's optimizer write them, with what ONNX Runtime computes for them.

usage: onnx_exports.py [OUTPUT_FOLDER]      (committed as crates/testing/data/onnx_exports)

For each model NAME.onnx, and NAME.npz with its inputs and outputs by name (int64 as int32). `bert_*` have the weights of
crates/testing/data/families/bert, so that what is made of them can be held against what is made of that folder. `legacy` is the exporter
of TorchScript, `dynamo` that of torch.export, `fused` what onnxruntime.transformers.optimizer makes of the first. `*_dynamic`, `*_qdq`,
`*_qoperator` and `*_4bit` are what onnxruntime.quantization makes of them. Weights of the others are seeded, but are only equal between
runs of one version of torch.

Needs: pip install torch==2.15 transformers==5.24 onnx==1.23 onnxruntime==1.32 onnxscript numpy
"""
import pathlib
import sys
import tempfile
import warnings

import numpy as np
import onnx
import onnxruntime as ort
import torch
import transformers as t
from onnxruntime import quantization as q
from onnxruntime.transformers import optimizer
from onnxruntime.transformers.fusion_options import FusionOptions

ROOT = pathlib.Path(__file__).resolve().parent.parent
BERT = ROOT / "crates/testing/data/families/bert"
BATCH, LENGTH, VOCAB = 1, 8, 60
FIXED_OPSET, DYNAMO_OPSET = 17, 20


class Outputs(torch.nn.Module):
    """The first tensor a model returns, so that exporters have nothing else to name."""

    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs):
        caches = {"use_cache": False} if isinstance(self.model, (t.GPT2LMHeadModel, t.LlamaForCausalLM)) else {}
        return self.model(**dict(zip(self.names, inputs)), return_dict=True, **caches)[0]


def spread(model):
    """Initial weights are so small that every layer is nearly the identity."""
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.15)
    return model.eval()


def ids(high=VOCAB):
    return torch.randint(1, high, (BATCH, LENGTH))


def models():
    """By name: the model, the names of its inputs, the inputs."""
    torch.manual_seed(5)
    mask = torch.ones(BATCH, LENGTH, dtype=torch.int64)
    mask[:, -2:] = 0
    sized = dict(attn_implementation="eager")
    yield "bert", t.BertModel.from_pretrained(BERT, **sized).eval(), {"input_ids": ids(100), "attention_mask": mask}
    yield "bert_sdpa", t.BertModel.from_pretrained(BERT, attn_implementation="sdpa").eval(), {"input_ids": ids(100), "attention_mask": mask}
    vit = t.ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=24, patch_size=8, num_labels=5)
    yield "vit", spread(t.ViTForImageClassification._from_config(vit, **sized)), {"pixel_values": torch.randn(1, 3, 24, 24)}
    gpt2 = t.GPT2Config(vocab_size=VOCAB, n_positions=16, n_embd=32, n_layer=2, n_head=4, n_inner=48)
    causal = {"attention_mask": torch.ones(BATCH, LENGTH, dtype=torch.int64), "position_ids": torch.arange(LENGTH)[None]}
    yield "gpt2", spread(t.GPT2LMHeadModel._from_config(gpt2, **sized)), {"input_ids": ids(), **causal}
    whisper = t.WhisperConfig(vocab_size=VOCAB, d_model=32, encoder_layers=2, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4,
                              encoder_ffn_dim=48, decoder_ffn_dim=32, num_mel_bins=8, max_source_positions=10, max_target_positions=8, pad_token_id=0,
                              bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
    yield "whisper_encoder", spread(t.WhisperModel._from_config(whisper, **sized)).encoder, {"input_features": torch.randn(1, 8, 20)}
    llama = t.LlamaConfig(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
                          max_position_embeddings=32)
    yield "llama", spread(t.LlamaForCausalLM._from_config(llama, **sized)), {"input_ids": ids(), **causal}


def legacy(module, inputs, names, file, opset=FIXED_OPSET):
    torch.onnx.export(module, inputs, str(file), input_names=names, output_names=["out"], opset_version=opset, dynamo=False)


def legacy14(module, inputs, names, file):
    """Before opset 17 a layer norm is written out."""
    legacy(module, inputs, names, file, 14)


def dynamo(module, inputs, names, file):
    torch.onnx.export(module, inputs, str(file), input_names=names, output_names=["out"], opset_version=DYNAMO_OPSET, dynamo=True, external_data=False,
                      verbose=False, optimize=True)
    model = onnx.load(file)
    # What the exporter notes about the Python code would be most of the file.
    for node in list(model.graph.node) + [n for f in model.functions for n in f.node]:
        del node.metadata_props[:]
        node.doc_string = ""
    for part in list(model.graph.value_info) + list(model.graph.input) + list(model.graph.output) + list(model.graph.initializer):
        del part.metadata_props[:]
    del model.graph.value_info[:]
    del model.graph.metadata_props[:]
    del model.metadata_props[:]
    onnx.save(model, file)


def golden(file, feeds):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    feeds = {i.name: feeds[i.name] for i in session.get_inputs()}
    outs = session.run(None, feeds)
    arrays = {f"in.{k}": v.astype(np.int32) if v.dtype == np.int64 else v for k, v in feeds.items()}
    arrays |= {f"out.{i.name}": v for i, v in zip(session.get_outputs(), outs)}
    np.savez_compressed(file.with_suffix(".npz"), **arrays)


class Feeds(q.CalibrationDataReader):
    def __init__(self, feeds):
        self.left = [feeds]

    def get_next(self):
        return self.left.pop() if self.left else None


def quantized(folder, name, feeds, ops=None):
    """Of NAME.onnx, what onnxruntime.quantization makes; of an encoder its products alone, since its mask leaves a scale nothing else."""
    source = folder / f"{name}.onnx"
    made = folder / f"{name}_dynamic.onnx"
    q.quantize_dynamic(source, made, weight_type=q.QuantType.QInt8)
    golden(made, feeds)
    for kind, form in (("qdq", q.QuantFormat.QDQ), ("qoperator", q.QuantFormat.QOperator)):
        made = folder / f"{name}_{kind}.onnx"
        q.quantize_static(source, made, Feeds(feeds), quant_format=form, per_channel=kind == "qdq", weight_type=q.QuantType.QInt8,
                          activation_type=q.QuantType.QUInt8, op_types_to_quantize=ops)
        golden(made, feeds)


def four_bits(folder, name, feeds):
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(onnx.load(folder / f"{name}.onnx"), block_size=16, is_symmetric=False)
    quantizer.process()
    made = folder / f"{name}_4bit.onnx"
    onnx.save(quantizer.model.model, made)
    golden(made, feeds)


def conv_net():
    torch.manual_seed(3)
    n = torch.nn
    net = n.Sequential(n.Conv2d(3, 8, 3, padding=1, stride=2), n.BatchNorm2d(8), n.ReLU(), n.Conv2d(8, 8, 3, padding=1, groups=4), n.Hardswish(),
                       n.MaxPool2d(2), n.Conv2d(8, 12, 1), n.Sigmoid(), n.AdaptiveAvgPool2d(1), n.Flatten(), n.Linear(12, 5))
    return spread(net), torch.randn(1, 3, 16, 16)


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "crates/testing/data/onnx_exports"
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    for name, model, inputs in models():
        names = list(inputs)
        feeds = {k: v.numpy() for k, v in inputs.items()}
        kinds = {"legacy": legacy, "dynamo": dynamo, "opset14": legacy14}
        left_out = {"bert": [], "bert_sdpa": ["legacy", "opset14"]}.get(name, ["opset14"])
        for kind, export in kinds.items():
            if kind in left_out:
                continue
            file = folder / f"{name}_{kind}.onnx"
            try:
                with torch.no_grad():
                    export(Outputs(model, names).eval(), tuple(inputs.values()), names, file)
                golden(file, feeds)
                print(f"{file.name:32} {file.stat().st_size:>8} bytes", flush=True)
            except Exception as e:  # an exporter that cannot is said, the others go on
                file.unlink(missing_ok=True)
                print(f"{file.name:32} not exported: {(str(e).splitlines() or [repr(e)])[0][:150]}", flush=True)
        if name in ("bert", "gpt2") and (folder / f"{name}_legacy.onnx").exists():
            kind, heads = name, 4
            options = FusionOptions(kind)
            made = optimizer.optimize_model(str(folder / f"{name}_legacy.onnx"), kind, num_heads=heads, hidden_size=32, optimization_options=options, opt_level=0)
            file = folder / f"{name}_fused.onnx"
            made.save_model_to_file(str(file))
            golden(file, feeds)
            print(f"{file.name:32} {file.stat().st_size:>8} bytes, {made.get_fused_operator_statistics()}", flush=True)
        if name == "bert":
            quantized(folder, "bert_legacy", feeds, ["MatMul", "Gather"])
        if name == "llama":
            for source in ("llama_legacy", "llama_dynamo"):
                if (folder / f"{source}.onnx").exists():
                    four_bits(folder, source, feeds)
                    break
    net, x = conv_net()
    file = folder / "conv.onnx"
    legacy(net, (x,), ["x"], file)
    golden(file, {"x": x.numpy()})
    quantized(folder, "conv", {"x": x.numpy()})


if __name__ == "__main__":
    main()
