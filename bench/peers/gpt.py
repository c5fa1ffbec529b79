# SPDX-License-Identifier: MIT
"""The benchmarks' GPT in PyTorch: pre-LN GPT-2 blocks, tanh GELU, byte vocabulary, output head tied to
the token embedding; the model of examples/train_gpt and bench/step_bench."""
import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY = 256


class Block(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.ln1 = nn.LayerNorm(channels)
        self.qkv = nn.Linear(channels, 3 * channels)
        self.attproj = nn.Linear(channels, channels)
        self.ln2 = nn.LayerNorm(channels)
        self.fc = nn.Linear(channels, 4 * channels)
        self.fcproj = nn.Linear(4 * channels, channels)

    def attention(self, x):
        batch, seq, channels = x.shape
        split = (batch, seq, self.heads, channels // self.heads)
        q, k, v = (part.view(split).transpose(1, 2) for part in self.qkv(x).split(channels, dim=2))
        if hasattr(F, "scaled_dot_product_attention"):  # torch 2 and later
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            future = torch.ones(seq, seq, dtype=torch.bool).triu(1)
            scores = (q @ k.transpose(2, 3)) * (split[3] ** -0.5)
            y = scores.masked_fill(future, float("-inf")).softmax(3) @ v
        return self.attproj(y.transpose(1, 2).reshape(batch, seq, channels))

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        return x + self.fcproj(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """`options` has layers, heads, channels and seq; run(block, x) is how a block is called."""

    def __init__(self, options, run=lambda block, x: block(x), vocabulary=VOCABULARY):
        super().__init__()
        self.run = run
        self.wte = nn.Embedding(vocabulary, options.channels)
        self.wpe = nn.Embedding(options.seq, options.channels)
        self.blocks = nn.ModuleList(
            Block(options.channels, options.heads) for _ in range(options.layers))
        self.lnf = nn.LayerNorm(options.channels)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = self.run(block, x)
        return self.loss(x, targets)

    def loss(self, x, targets):
        logits = F.linear(self.lnf(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
