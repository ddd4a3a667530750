#!/usr/bin/env python3
"""What transformers' processors make of one picture and one sound.

usage: golden_processors.py OUTPUT_FOLDER      (committed as crates/testing/data/processors)

For each processor of pictures a folder with its preprocessor_config.json, in newer forms and older ones, and in
images.npz what it makes of picture.png, under the folder's name. sounds.npz holds features of sound.wav.
Needs: pip install torch transformers pillow librosa numpy   (made with 2.15, 5.24, 13.0)
"""
import json
import pathlib
import sys
import wave

import numpy as np
import transformers as t
from PIL import Image

RATE = 16000


def picture():
    """Smooth areas, noise and edges."""
    rng = np.random.default_rng(7)
    y, x = np.mgrid[0:47, 0:61]
    smooth = np.stack([128 + 120 * np.sin(x / 9), 128 + 120 * np.cos(y / 7), 2.0 * (x + y)], -1)
    smooth[10:30, 20:40] += rng.normal(0, 70, (20, 20, 3))
    smooth[33:40, 5:55] = [255, 0, 0]
    return Image.fromarray(np.clip(smooth, 0, 255).astype(np.uint8))


def sound():
    """A tone that rises, and noise that fades."""
    rng = np.random.default_rng(5)
    at = np.arange(int(0.9 * RATE)) / RATE
    samples = 0.4 * np.sin(2 * np.pi * (200 + 1500 * at) * at) + 0.2 * rng.normal(size=at.size) * np.exp(-3 * at)
    return np.clip(samples * 32767, -32768, 32767).astype(np.int16)


# By folder: the class, and what its file says.
MEANS = dict(image_mean=[0.48145466, 0.4578275, 0.40821073], image_std=[0.26862954, 0.26130258, 0.27577711])
SQUARE = lambda n: {"height": n, "width": n}
PICTURES = {
    "vit": ("ViTImageProcessorPil", dict(image_processor_type="ViTImageProcessor", do_resize=True, size=SQUARE(24), resample=2,
                                         do_rescale=True, rescale_factor=1 / 255, do_normalize=True, image_mean=[0.5] * 3, image_std=[0.5] * 3)),
    "vit_larger": ("ViTImageProcessorPil", dict(image_processor_type="ViTImageProcessorFast", size=SQUARE(70))),
    "clip": ("CLIPImageProcessorPil", dict(image_processor_type="CLIPImageProcessor", size={"shortest_edge": 24}, crop_size=SQUARE(20),
                                           resample=3, do_center_crop=True, do_convert_rgb=True, **MEANS)),
    "clip_old": ("CLIPImageProcessorPil", dict(feature_extractor_type="CLIPFeatureExtractor", size=23, crop_size=20, do_center_crop=True,
                                               do_normalize=True, do_resize=True, resample=3, **MEANS)),
    "siglip": ("SiglipImageProcessorPil", dict(image_processor_type="SiglipImageProcessor", size=SQUARE(24), resample=3,
                                               image_mean=[0.5] * 3, image_std=[0.5] * 3, processor_class="SiglipProcessor")),
    "deit_old": ("DeiTImageProcessorPil", dict(feature_extractor_type="DeiTFeatureExtractor", size=28, crop_size=24, resample=3,
                                               do_center_crop=True, image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225])),
    "dinov2": ("BitImageProcessorPil", dict(image_processor_type="BitImageProcessor", size={"shortest_edge": 26}, crop_size=SQUARE(21),
                                            resample=3, do_center_crop=True, image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225])),
    "lanczos": ("ViTImageProcessorPil", dict(image_processor_type="ViTImageProcessor", size={"height": 20, "width": 26}, resample=1, do_normalize=False)),
}


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    image = picture()
    image.save(folder / "picture.png", optimize=True)
    made = {}
    for name, (cls, settings) in PICTURES.items():
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "preprocessor_config.json").write_text(json.dumps(settings, indent=1, sort_keys=True) + "\n")
        given = {k: v for k, v in settings.items() if k not in ("image_processor_type", "feature_extractor_type", "processor_class")}
        made[name] = np.asarray(getattr(t, cls)(**given)(image, return_tensors="np")["pixel_values"])[0].astype(np.float32)
        print(name, made[name].shape)
    np.savez(folder / "images.npz", **made)
    pcm = sound()
    with wave.open(str(folder / "sound.wav"), "wb") as w:
        w.setnchannels(1), w.setsampwidth(2), w.setframerate(RATE), w.writeframes(pcm.tobytes())
    samples = pcm.astype(np.float32) / 32768
    sounds = {}
    for n in (80, 128):
        extractor = t.WhisperFeatureExtractor(feature_size=n, chunk_length=1)
        sounds[f"whisper_{n}"] = extractor._np_extract_fbank_features(np.pad(samples, (0, RATE - samples.size))[None], "cpu")[0].astype(np.float32)
    sounds["wave"] = t.Wav2Vec2FeatureExtractor(do_normalize=True)(samples, sampling_rate=RATE, return_tensors="np")["input_values"][0].astype(np.float32)
    parakeet = t.ParakeetFeatureExtractor(feature_size=80)(samples, sampling_rate=RATE, return_tensors="pt")
    kept = int(parakeet["attention_mask"].sum())
    sounds["parakeet"] = parakeet["input_features"][0, :kept].numpy()
    print({k: v.shape for k, v in sounds.items()})
    np.savez_compressed(folder / "sounds.npz", **sounds)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))
