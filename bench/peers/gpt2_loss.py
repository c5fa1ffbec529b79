#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The loss of a GPT-2 in the safetensors format, by numpy in double: what train_gpt's should be.

    train_gpt --model FOLDER --text FILE --batch 4 --steps 1 --log log.jsonl
    python3 bench/peers/gpt2_loss.py FOLDER FILE --batch 4 --log log.jsonl

FILE is read as bytes, from its start, as train_gpt does in its first step; sequences have the model's
whole context. Needs numpy and safetensors from PyPI. With --log, ends with status 1 if the first loss
of that log differs by more than --tolerance, relatively.
"""
import argparse
import json
import sys

import numpy as np
from safetensors.numpy import load_file


def layer_norm(x, weights, name):
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return scaled * weights[name + ".weight"] + weights[name + ".bias"]


def linear(x, weights, name):
    return x @ weights[name + ".weight"] + weights[name + ".bias"]


def attention(qkv, heads):
    time, channels = qkv.shape[0], qkv.shape[1] // 3
    q, k, v = (part.reshape(time, heads, -1).transpose(1, 0, 2) for part in np.split(qkv, 3, -1))
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(channels // heads)
    scores = np.where(np.tril(np.ones((time, time), bool)), scores, -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    return (shares @ v).transpose(1, 0, 2).reshape(time, channels)


def loss_of(weights, config, tokens, targets):
    x = weights["wte.weight"][tokens] + weights["wpe.weight"][:len(tokens)]
    for layer in range(config["n_layer"]):
        name = f"h.{layer}."
        qkv = linear(layer_norm(x, weights, name + "ln_1"), weights, name + "attn.c_attn")
        x = x + linear(attention(qkv, config["n_head"]), weights, name + "attn.c_proj")
        hidden = linear(layer_norm(x, weights, name + "ln_2"), weights, name + "mlp.c_fc")
        hidden *= 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (hidden + 0.044715 * hidden**3)))
        x = x + linear(hidden, weights, name + "mlp.c_proj")
    logits = layer_norm(x, weights, "ln_f") @ weights["wte.weight"].T
    logits -= logits.max(-1, keepdims=True)
    picked = logits[np.arange(len(targets)), targets]
    return (np.log(np.exp(logits).sum(-1)) - picked).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("text")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--log", help="of a run of train_gpt")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    options = parser.parse_args()
    with open(options.folder + "/config.json") as file:
        config = json.load(file)
    weights = {name.removeprefix("transformer."): tensor.astype(np.float64)
               for name, tensor in load_file(options.folder + "/model.safetensors").items()}
    with open(options.text, "rb") as file:
        tokens = np.frombuffer(file.read(), np.uint8).astype(int)
    time = config["n_positions"]
    starts = range(0, options.batch * time, time)
    loss = float(np.mean([loss_of(weights, config, tokens[s:s + time], tokens[s + 1:s + time + 1])
                          for s in starts]))
    print(f"numpy      {loss:.9f}")
    if not options.log:
        return
    with open(options.log) as file:
        other = json.loads(file.readline())["loss"]
    difference = abs(other - loss) / abs(loss)
    print(f"train_gpt  {other:.9f}, relative difference {difference:.1e}")
    sys.exit(difference > options.tolerance)


main()
