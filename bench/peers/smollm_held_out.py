#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Held-out losses of SmolLM2, tuned by chat_tune and by PyTorch on the same batches from the same adapters.

    pip install torch transformers peft gguf safetensors
    cmake --build --preset release --target chat_tune
    bench/peers/smollm_held_out.py SmolLM2-135M-Instruct.Q4_1.gguf --program build/release/examples/chat_tune

Each seed has an order of the text's blocks and adapters of its own. chat_tune draws the adapters. PyTorch has the file's
weights decoded, in fp32, and adapters of the same structure: queries, keys and values share one A, and so do gate and
gated values. Nine tenths of the blocks are there to be learnt. PyTorch judges all adapters by the last tenth.

Batches and adapters are the same: the losses of each step are compared. By default 300 x 128 tokens are learnt for each
seed and row. --settings "fp32 100%" with --tolerance 0 shows what rounding alone does.
"""
import argparse
import os
import pathlib
import random
import tempfile

from tune_smollm import run_chat_tune  # before torch: it says how threads wait
from tokenizer_lines import of_gguf

import peft
import safetensors.torch
import torch
import transformers

# The linear layers of a block that share an adapter of chat_tune, in the order of its file.
SHARED = [["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], ["self_attn.o_proj"],
          ["mlp.gate_proj", "mlp.up_proj"], ["mlp.down_proj"]]


def learn(options, setting, text, steps, out, *more):
    """chat_tune's adapters become the file `out`. The loss of each step."""
    task = argparse.Namespace(**{**vars(options), "text": text, "steps": steps})
    return run_chat_tune(task, setting, "--order", "file", "--out", out, *more)["losses"]


class Peer:
    """The model in PyTorch. Layers that share an adapter of chat_tune share its A."""

    def __init__(self, options):
        place = {"pretrained_model_name_or_path": options.model.parent, "gguf_file": options.model.name}
        # transformers' tokenizer of a GGUF file does not cut numbers into digits, as SmolLM's does.
        self.tokenizer = of_gguf(options.model)
        # A text's "<|endoftext|>" is text, as chat_tune reads it, and not a special token.
        self.tokenizer.encode_special_tokens = True
        model = transformers.AutoModelForCausalLM.from_pretrained(**place, dtype=torch.float32)
        names = [name.split(".")[1] for group in SHARED for name in group]
        self.model = peft.get_peft_model(
            model, peft.LoraConfig(r=8, lora_alpha=16, target_modules=names))
        self.model.train()
        self.groups = []
        for layer in self.model.base_model.model.model.layers:
            for group in SHARED:
                modules = [layer.get_submodule(name) for name in group]
                for module in modules[1:]:
                    module.lora_A["default"].weight = modules[0].lora_A["default"].weight
                self.groups.append(modules)

    def read(self, path):
        """Adapters of chat_tune's file, whose names count layers as the network has them."""
        tensors = safetensors.torch.load_file(path)
        layers = {name.rsplit(".", 1)[0] for name in tensors}
        order = sorted(layers, key=lambda name: [int(part) if part.isdigit() else part for part in name.split(".")])
        assert len(order) == len(self.groups), (len(order), len(self.groups))
        with torch.no_grad():
            for name, modules in zip(order, self.groups):
                modules[0].lora_A["default"].weight.copy_(tensors[name + ".lora_a"])
                weights = [module.lora_B["default"].weight for module in modules]
                rows = tensors[name + ".lora_b"].split([len(weight) for weight in weights])
                for weight, part in zip(weights, rows):
                    weight.copy_(part)

    def loss(self, documents):
        """Each document has a token more than a sequence, the last target."""
        return self.model(input_ids=documents, labels=documents, use_cache=False).loss

    def learn(self, batches, rate):
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=rate, weight_decay=0)
        losses = []
        for batch in batches:
            loss = self.loss(batch)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    def judge(self, batches):
        with torch.no_grad():
            return sum(self.loss(batch).item() for batch in batches) / len(batches)


def split(text, seed, size=2000):
    """The text to learn and the text to judge by: blocks of `size` characters, in an order of chance."""
    blocks = [text[at:at + size] for at in range(0, len(text), size)]
    random.Random(seed).shuffle(blocks)
    learnt = len(blocks) * 9 // 10
    return "".join(blocks[:learnt]), "".join(blocks[learnt:])


def documents(tokens, options):
    """Batches of documents, which overlap by the token that is one's last target and the next one's first."""
    size = options.context
    count = (len(tokens) - 1) // size // options.batch * options.batch
    rows = [tokens[i * size:i * size + size + 1] for i in range(count)]
    return torch.tensor(rows).split(options.batch)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    headers = pathlib.Path(__file__).resolve().parents[2] / "include/adacc"
    parser.add_argument("model", type=pathlib.Path, help="GGUF file")
    parser.add_argument("--program", type=pathlib.Path, required=True, help="chat_tune")
    parser.add_argument("--text", type=pathlib.Path, default=headers, help="a file, or a folder with headers")
    parser.add_argument("--settings", default="fp32 30%,bf16 30%", help="of chat_tune: --precision and --budget")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--judged", type=int, default=96, help="batches of the held-out text")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--tolerance", type=float, default=0.01, help="of chat_tune")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    files = sorted(options.text.rglob("*.hpp")) if options.text.is_dir() else [options.text]
    text = "".join(file.read_text() for file in files)
    peer = Peer(options)
    print(f"{'seed':>4} {'':>24} {'first step':>10} {'held out':>9} {'beside PyTorch':>14} {'of a step, at most':>18}",
          flush=True)

    def show(seed, name, first, held_out, *compared):
        print(f"{seed:4} {name:>24} {first:10.4f} {held_out:9.4f}",
              *(f"{100 * share:+{width}.3f} %" for share, width in zip(compared, [12, 16])), flush=True)

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for seed in range(1, options.seeds + 1):
            parts = split(text, seed)
            # chat_tune learns the text from its beginning on.
            (folder / "text.txt").write_text(parts[0])
            learnt, judged = [documents(peer.tokenizer.encode(part).ids, options) for part in parts]
            if len(learnt) < options.steps or len(judged) < options.judged:
                raise SystemExit(f"smollm_held_out: the text has {len(learnt)} batches to learn and {len(judged)} to "
                                 f"judge by, and {options.steps} and {options.judged} are needed")
            learnt, judged = learnt[:options.steps], judged[:options.judged]
            begin = folder / "begin.safetensors"
            learn(options, "", folder / "text.txt", 0, begin, "--seed", seed)
            peer.read(begin)
            before = peer.judge(judged)
            theirs = peer.learn(learnt, options.lr)
            after = peer.judge(judged)
            show(seed, "before", theirs[0], before)
            show(seed, "PyTorch", theirs[0], after)
            for setting in options.settings.split(","):
                tuned = folder / "tuned.safetensors"
                ours = learn(options, setting, folder / "text.txt", options.steps, tuned, "--adapter", begin,
                             "--tolerance", options.tolerance)
                peer.read(tuned)
                held_out = peer.judge(judged)
                steps = [our / their - 1 for our, their in zip(ours, theirs)]
                show(seed, "chat_tune, " + setting, ours[0], held_out, held_out / after - 1, max(steps, key=abs))


if __name__ == "__main__":
    main()
