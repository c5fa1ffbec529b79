#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What GPT-2, Llamas and a BERT encoder compute, in numpy and double: writes what tests compare with.

    python3 bench/peers/model_reference.py > tests/io/models_reference.hpp
    python3 bench/peers/model_reference.py --torch tests/io/models_reference.hpp

The models are tiny, their weights drawn by name, so that the test can draw the same. Gradients are
directional: of each tensor, along two vectors of signs. They are exact to rounding, since they come from
a step of 1e-30 into the complex plane. With --torch, nothing is written: PyTorch computes the same in
double by its own functions and autograd, and both numpy's numbers and those of the header have to agree
with that.

Exit status: 0 done; 1 numbers differ by more than FORWARD or GRADIENTS; 2 bad usage; 77 there is no numpy,
or no torch.
"""
import re
import sys

try:
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}; the reference is computed by numpy")
    sys.exit(77)

MODELS = "gpt2", "llama", "llama_tied", "bert"
SHOWN = [0, 5, 11]  # positions of which a header has logits
FORWARD, GRADIENTS = 1e-4, 1e-3  # relative differences of outputs and losses, of slopes

LAYERS, HEADS, KV_HEADS, CHANNELS, HIDDEN, VOCAB, CONTEXT, TYPES = 2, 4, 2, 32, 48, 50, 16, 2
BATCH, TIME = 2, 12
LENGTHS = [12, 7]
MASK = (1 << 64) - 1


def words(name, count):
    """64-bit words: splitmix64 from the FNV-1a hash of the name on."""
    start = 0xCBF29CE484222325
    for byte in name.encode():
        start = (start ^ byte) * 0x100000001B3 & MASK
    out = []
    for i in range(count):
        z = (start + (i + 1) * 0x9E3779B97F4A7C15) & MASK
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        out.append(z ^ z >> 31)
    return out


def uniform(name, count):
    return np.array([(z >> 40) / 2**24 - 0.5 for z in words(name, count)])


def is_norm(name):
    return "norm" in name.lower() or "ln_" in name


def weight(name, shape):
    u = uniform(name, int(np.prod(shape)))
    values = 0.6 * u if len(shape) > 1 else 1 + 0.2 * u if is_norm(name) and "bias" not in name else 0.2 * u
    return values.astype(np.float32).astype(np.float64).reshape(shape)


def direction(name, k, shape):
    signs = [1.0 if z >> 63 else -1.0 for z in words(f"{name}/{k}", int(np.prod(shape)))]
    return np.array(signs).reshape(shape)


def tokens(name, below):
    return np.array([z % below for z in words(name, BATCH * TIME)]).reshape(BATCH, TIME)


def shapes_of(model):
    c, h, out = CHANNELS, HIDDEN, {}
    if model == "gpt2":
        out["wte.weight"], out["wpe.weight"] = (VOCAB, c), (CONTEXT, c)
        for i in range(LAYERS):
            for name, shape in (("ln_1.weight", (c,)), ("ln_1.bias", (c,)),
                                ("attn.c_attn.weight", (c, 3 * c)), ("attn.c_attn.bias", (3 * c,)),
                                ("attn.c_proj.weight", (c, c)), ("attn.c_proj.bias", (c,)),
                                ("ln_2.weight", (c,)), ("ln_2.bias", (c,)),
                                ("mlp.c_fc.weight", (c, 4 * c)), ("mlp.c_fc.bias", (4 * c,)),
                                ("mlp.c_proj.weight", (4 * c, c)), ("mlp.c_proj.bias", (c,))):
                out[f"h.{i}.{name}"] = shape
        out["ln_f.weight"], out["ln_f.bias"] = (c,), (c,)
    elif model.startswith("llama"):
        kv = c // HEADS * KV_HEADS
        out["model.embed_tokens.weight"] = (VOCAB, c)
        for i in range(LAYERS):
            for name, shape in (("input_layernorm", (c,)), ("self_attn.q_proj", (c, c)),
                                ("self_attn.k_proj", (kv, c)), ("self_attn.v_proj", (kv, c)),
                                ("self_attn.o_proj", (c, c)), ("post_attention_layernorm", (c,)),
                                ("mlp.gate_proj", (h, c)), ("mlp.up_proj", (h, c)),
                                ("mlp.down_proj", (c, h))):
                out[f"model.layers.{i}.{name}.weight"] = shape
        out["model.norm.weight"] = (c,)
        if model == "llama":
            out["lm_head.weight"] = (VOCAB, c)
    else:
        for name, rows in (("word", VOCAB), ("position", CONTEXT), ("token_type", TYPES)):
            out[f"embeddings.{name}_embeddings.weight"] = (rows, c)
        names = [("embeddings.LayerNorm", None, c)]
        for i in range(LAYERS):
            names += [(f"encoder.layer.{i}.{name}", rows, cols) for name, rows, cols in (
                ("attention.self.query", c, c), ("attention.self.key", c, c),
                ("attention.self.value", c, c), ("attention.output.dense", c, c),
                ("attention.output.LayerNorm", None, c), ("intermediate.dense", h, c),
                ("output.dense", c, h), ("output.LayerNorm", None, c))]
        for name, rows, cols in names:
            out[name + ".weight"] = (cols,) if rows is None else (rows, cols)
            out[name + ".bias"] = (cols if rows is None else rows,)
    return out


class Numpy:
    """Functions that may be called with complex numbers whose imaginary part is tiny."""

    exp, sqrt, where = staticmethod(np.exp), staticmethod(np.sqrt), staticmethod(np.where)

    @staticmethod
    def array(values):
        return np.asarray(values)

    @staticmethod
    def swap(x):
        return np.swapaxes(x, -1, -2)

    @staticmethod
    def log_softmax(x):
        x = x - x.real.max(-1, keepdims=True)
        return x - np.log(np.exp(x).sum(-1, keepdims=True))

    @staticmethod
    def softmax(x):
        x = np.exp(x - x.real.max(-1, keepdims=True))
        return x / x.sum(-1, keepdims=True)

    @staticmethod
    def layer_norm(x, w, b, epsilon):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * w + b

    @staticmethod
    def rms_norm(x, w, epsilon):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * w

    @staticmethod
    def gelu_tanh(x):
        return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x * x * x)))

    @staticmethod
    def gelu_erf(x):
        from math import erf
        real = np.vectorize(erf)(x.real / np.sqrt(2))
        slope = np.exp(-x.real**2 / 2) * np.sqrt(2 / np.pi)  # of erf(x / sqrt 2)
        return x / 2 * (1 + real + 1j * x.imag * slope)

    @staticmethod
    def silu(x):
        return x / (1 + np.exp(-x))

    @classmethod
    def attention(cls, q, k, v, visible):
        scores = q @ cls.swap(k) / np.sqrt(q.shape[-1])
        return cls.softmax(np.where(visible, scores, -1e300)) @ v


class Torch:
    """The same by PyTorch's own functions."""

    def __init__(self):
        import torch
        import torch.nn.functional as f
        self.torch, self.f = torch, f
        self.sqrt, self.where = torch.sqrt, torch.where
        self.gelu_tanh = lambda x: f.gelu(x, approximate="tanh")
        self.gelu_erf, self.silu = f.gelu, f.silu
        self.log_softmax = lambda x: f.log_softmax(x, -1)
        self.layer_norm = lambda x, w, b, e: f.layer_norm(x, (x.shape[-1],), w, b, e)
        self.rms_norm = lambda x, w, e: f.rms_norm(x, (x.shape[-1],), w, e)

    def array(self, values):
        return self.torch.tensor(np.asarray(values))

    def attention(self, q, k, v, visible):
        return self.f.scaled_dot_product_attention(q, k, v, self.array(visible))


def heads_of(x, count):
    return x.reshape(BATCH, TIME, count, -1).swapaxes(1, 2)


def together(x):
    return x.swapaxes(1, 2).reshape(BATCH, TIME, -1)


def rotated(x, lib):
    half = x.shape[-1] // 2
    angles = np.outer(np.arange(TIME), 10000.0 ** (-np.arange(half) / half))
    cos, sin = lib.array(np.cos(angles)), lib.array(np.sin(angles))
    a, b = x[..., :half], x[..., half:]
    both = [a * cos - b * sin, b * cos + a * sin]
    return np.concatenate(both, -1) if lib is Numpy else lib.torch.cat(both, -1)


def output_of(model, w, lib):
    causal = np.tril(np.ones((TIME, TIME), bool))
    ids = tokens(model, VOCAB)
    if model == "gpt2":
        def linear(x, name):
            return x @ w[name + ".weight"] + w[name + ".bias"]

        def norm(x, name):
            return lib.layer_norm(x, w[name + ".weight"], w[name + ".bias"], 1e-5)

        x = w["wte.weight"][ids] + w["wpe.weight"][:TIME]
        for i in range(LAYERS):
            h = f"h.{i}."
            qkv = linear(norm(x, h + "ln_1"), h + "attn.c_attn")
            q, k, v = (heads_of(qkv[..., n * CHANNELS:(n + 1) * CHANNELS], HEADS) for n in range(3))
            x = x + linear(together(lib.attention(q, k, v, causal)), h + "attn.c_proj")
            x = x + linear(lib.gelu_tanh(linear(norm(x, h + "ln_2"), h + "mlp.c_fc")), h + "mlp.c_proj")
        return norm(x, "ln_f") @ w["wte.weight"].T
    if model.startswith("llama"):
        x = w["model.embed_tokens.weight"][ids]
        for i in range(LAYERS):
            h = f"model.layers.{i}."
            y = lib.rms_norm(x, w[h + "input_layernorm.weight"], 1e-5)
            q, k, v = (heads_of(y @ w[h + f"self_attn.{n}_proj.weight"].T, count)
                       for n, count in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)))
            of = np.arange(HEADS) // (HEADS // KV_HEADS)
            y = lib.attention(rotated(q, lib), rotated(k, lib)[:, of], v[:, of], causal)
            x = x + together(y) @ w[h + "self_attn.o_proj.weight"].T
            y = lib.rms_norm(x, w[h + "post_attention_layernorm.weight"], 1e-5)
            y = lib.silu(y @ w[h + "mlp.gate_proj.weight"].T) * (y @ w[h + "mlp.up_proj.weight"].T)
            x = x + y @ w[h + "mlp.down_proj.weight"].T
        head = w["lm_head.weight" if model == "llama" else "model.embed_tokens.weight"]
        return lib.rms_norm(x, w["model.norm.weight"], 1e-5) @ head.T

    def linear(x, name):
        return x @ w[name + ".weight"].T + w[name + ".bias"]

    def norm(x, name):
        return lib.layer_norm(x, w[name + ".weight"], w[name + ".bias"], 1e-12)

    there = np.arange(TIME) < np.array(LENGTHS)[:, None]
    x = (w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][:TIME]
         + w["embeddings.token_type_embeddings.weight"][tokens("types", TYPES)])
    x = norm(x, "embeddings.LayerNorm")
    for i in range(LAYERS):
        h = f"encoder.layer.{i}."
        q, k, v = (heads_of(linear(x, h + "attention.self." + n), HEADS)
                   for n in ("query", "key", "value"))
        y = together(lib.attention(q, k, v, np.broadcast_to(there[:, None, None], (BATCH, 1, TIME, TIME))))
        x = norm(x + linear(y, h + "attention.output.dense"), h + "attention.output.LayerNorm")
        y = linear(lib.gelu_erf(linear(x, h + "intermediate.dense")), h + "output.dense")
        x = norm(x + y, h + "output.LayerNorm")
    return (x * lib.array(there[..., None] * 1.0)).sum(1) / lib.array(np.array(LENGTHS)[:, None] * 1.0)


def loss_of(model, output, lib):
    if model == "bert":
        difference = output - lib.array(uniform("targets", BATCH * CHANNELS).reshape(BATCH, CHANNELS))
        return (difference * difference).mean()
    picked = lib.log_softmax(output).reshape(-1, VOCAB)
    return -picked[np.arange(BATCH * TIME), tokens(model + " targets", VOCAB).ravel()].mean()


def compute(model):
    """Output, loss, and of each tensor the derivatives along its two directions."""
    weights = {name: weight(name, shape) for name, shape in shapes_of(model).items()}
    output = output_of(model, {name: w + 0j for name, w in weights.items()}, Numpy)
    slopes = {}
    for name, w in weights.items():
        slopes[name] = []
        for k in range(2):
            moved = {n: v + 0j for n, v in weights.items()}
            moved[name] = w + 1e-30j * direction(name, k, w.shape)
            slopes[name].append(loss_of(model, output_of(model, moved, Numpy), Numpy).imag / 1e-30)
    return output.real, loss_of(model, output, Numpy).real, slopes


def compute_by_torch(model):
    lib = Torch()
    weights = {name: lib.array(weight(name, shape)).requires_grad_()
               for name, shape in shapes_of(model).items()}
    output = output_of(model, weights, lib)
    loss = loss_of(model, output, lib)
    loss.backward()
    slopes = {name: [float((w.grad.numpy() * direction(name, k, w.shape)).sum()) for k in range(2)]
              for name, w in weights.items()}
    return output.detach().numpy(), loss.item(), slopes


def shown(model, output):
    """What of an output a header has, in rows of 4: of each sequence's mean, or of some logits."""
    return (output if model == "bert" else output[:, SHOWN]).reshape(-1, output.shape[-1])[:, :4]


def numbers_of(header):
    """For each model, the numbers of a header as compute() has them; of outputs, what is shown."""
    out = {}
    for model, rows in re.findall(r"double (\w+)_output\[\] = {(.*?)};", header, re.S):
        out[model] = [np.array([float(v) for v in rows.split(",")]).reshape(-1, 4), None, {}]
    for model, loss in re.findall(r"double (\w+)_loss = (\S+);", header):
        out[model][1] = float(loss)
    for model, rows in re.findall(r"Slopes (\w+)_slopes\[\] = {(.*?)};", header, re.S):
        for name, *along in re.findall(r'{"(.*?)", {(\S+), (\S+)}}', rows):
            out[model][2][name] = [float(v) for v in along]
    return out


def agree(model, whose, ours, theirs):
    """Prints how far `ours` are from PyTorch's numbers, and whether that is near enough."""
    output = np.abs(ours[0] - theirs[0]).max() / np.abs(theirs[0]).max()
    loss = abs(ours[1] / theirs[1] - 1)
    slopes = [abs(a - b) / max(1e-6, abs(b)) for name in theirs[2]
              for a, b in zip(ours[2][name], theirs[2][name])]
    near = bool(output <= FORWARD and loss <= FORWARD and all(s <= GRADIENTS for s in slopes))
    print(f"{model}, {whose}: outputs {output:.1e}, loss {loss:.1e}, gradients {max(slopes):.1e}"
          + ("" if near else f": MORE THAN {FORWARD:g}, {FORWARD:g} AND {GRADIENTS:g}"))
    return near


def compare(path):
    """The exit status."""
    try:
        Torch()
    except ImportError as missing:
        print(f"skipped: {missing}; numbers are compared with those of PyTorch")
        return 77
    with open(path, encoding="utf-8") as file:
        header = numbers_of(file.read())
    if sorted(header) != sorted(MODELS):
        print(f"{path} has numbers of {sorted(header)}, not of {sorted(MODELS)}")
        return 1
    near = True
    for model in MODELS:
        theirs = compute_by_torch(model)
        near &= agree(model, "numpy", compute(model), theirs)
        if header[model][2].keys() != theirs[2].keys():
            print(f"{path}: gradients of {model} are of other tensors")
            near = False
            continue
        near &= agree(model, "header", header[model], (shown(model, theirs[0]), *theirs[1:]))
    return 0 if near else 1


def write():
    print("""// SPDX-License-Identifier: MIT
/// What small models compute: of outputs 4 elements in a row (of BERT, of each sequence's mean; of the
/// others, the first logits at positions 0, 5 and 11 of each sequence), losses, and the loss's derivatives
/// along two directions of each tensor. Written by bench/peers/model_reference.py, in double.
#pragma once

namespace models_reference {

struct Slopes {
  const char* name;
  double along[2];
};

// clang-format off""")
    for model in MODELS:
        output, loss, slopes = compute(model)
        rows = (", ".join(f"{v:.12g}" for v in row) for row in shown(model, output))
        print(f"inline constexpr double {model}_output[] = {{")
        print("    " + ",\n    ".join(rows) + "};")
        print(f"inline constexpr double {model}_loss = {loss:.15g};")
        print(f"inline constexpr Slopes {model}_slopes[] = {{")
        lines = (f'    {{"{name}", {{{a:.12g}, {b:.12g}}}}}' for name, (a, b) in slopes.items())
        print(",\n".join(lines) + "};\n")
    print("// clang-format on\n\n}  // namespace models_reference")


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--torch":
        sys.exit(compare(sys.argv[2]))
    if len(sys.argv) > 1:
        print("usage: model_reference.py [--torch HEADER]", file=sys.stderr)
        sys.exit(2)
    write()
