"""Holds lagoon's logits to PyTorch's on held-out text, and prints the differences.

  agree.py [--lagoon BIN] [--model FILE] [--n N]

PyTorch computes the file's weights in float32 on the CPU. lagoon computes them twice: exported to float32 with an
f32 cache, where only the order of sums differs, and the file as it is, with int8 activations and the f16 cache.
Ends with an error when fewer than 99.5 % of the rows of the float32 export have PyTorch's argmax.
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import corpus
import gguf
import model
from tokenizer import Tokenizer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SEED = 77  # of the text
LEAST_ARGMAX = 0.995


def held_out(n):
    documents = corpus.documents(Tokenizer.load(HERE / "vocab.json"), SEED, "test", 1500)
    ids = []
    while len(ids) < n:
        ids += next(documents)[0].tolist()
    return np.array(ids[:n], np.int64)


def by_torch(reader, ids):
    config = model.Config(vocab=reader.kv["laguna.vocab_size"])
    weights = {name: torch.from_numpy(np.array(reader.tensor(name))) for name in reader.types}
    x = torch.from_numpy(ids)[None]
    document = torch.zeros_like(x)
    at = model.positions(document)
    ropes = [(a[at], b[at]) for a, b in model.rope_tables(config, len(ids), "cpu")[:2]]
    with torch.no_grad():
        hidden, _ = model.Forward(config, False)(weights, x, ropes, model.dense_masks(document, config.window))
        return model.logits(weights, hidden)[0].numpy()


def by_lagoon(lagoon, file, cache, ids, folder):
    tokens, out = folder / "ids.json", folder / "logits.bin"
    tokens.write_text(json.dumps(ids.tolist()), encoding="utf-8")
    subprocess.run([lagoon, "logits", "-m", file, "--tokens", tokens, "-o", out, "--kv-type", cache, "-q"],
                   check=True, stdout=subprocess.DEVNULL)
    return np.fromfile(out, "<f4").reshape(len(ids), -1)


def export(reader, file):
    tensors = [(name, reader.at[name][0], gguf.F32, reader.tensor(name).tobytes()) for name in reader.types]
    gguf.write_raw(file, list(reader.raw_kv.values()), tensors)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--lagoon", default=ROOT / "build" / "lagoon")
    parser.add_argument("--model", default=ROOT / "models" / "mini.gguf")
    parser.add_argument("--n", type=int, default=2000, help="tokens (2000)")
    args = parser.parse_args()
    ids, reader = held_out(args.n), gguf.Reader(str(args.model))
    want = by_torch(reader, ids)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        export(reader, str(folder / "f32.gguf"))
        for what, file, cache in (("float32", folder / "f32.gguf", "f32"), ("as shipped", args.model, "f16")):
            got = by_lagoon(args.lagoon, file, cache, ids, folder)
            equal = int((got.argmax(1) == want.argmax(1)).sum())
            delta = got.astype(np.float64) - want
            print(f"{what}: max {np.abs(delta).max():.2g}, rms {np.sqrt((delta**2).mean()):.2g}, "
                  f"argmax equal in {equal} of {args.n}", flush=True)
            if what == "float32" and equal < LEAST_ARGMAX * args.n:
                sys.exit("agree.py: too many rows differ")


if __name__ == "__main__":
    main()
