#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What adacc does to families of models: gradients, bytes, and a budget that held, in one table.

Models are small, of transformers' configurations or written here, with random weights; nothing is fetched. They train
with dropout where their configuration has it.

    bytes    of saved storages that autograd alone holds: as they are, and as they wait under the policy
    whole    relative squared error of the gradient of all parameters, against PyTorch without adacc
    worst    the same of one parameter. Gradients that are 0 but for rounding do not count
    budget   of a plain step's peak: the share that was asked for, and the measured peak of the last planned step. If half
             of it is refused, a share a bit above the least that the refusal names is asked for
    least    the same from 1 % on: the smallest share with a plan, in whole percents

    pip install --no-build-isolation ./python; pip install transformers
    python3 bench/peers/torch_models.py
    python3 bench/peers/torch_models.py --models Llama,Mamba --eager --autocast --blame
"""
import argparse
import contextlib
import gc
import json
import math
import os
import pathlib

VOCABULARY = 512
BOUND_OF_WHOLE, BOUND_OF_PARAMETER = 0.01, 0.05


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", help="names from the table, or parts of them, with commas between; all by default")
    parser.add_argument("--policy", default="tolerated")
    parser.add_argument("--eager", action="store_true", help="attention in single operators, of models that have both")
    parser.add_argument("--autocast", action="store_true", help="in bfloat16")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", action="store_true", help="plans of budgets may let operators run again")
    parser.add_argument("--no-budget", action="store_true", help="gradients and bytes alone")
    parser.add_argument("--blame", action="store_true", help="the whole report of adacc.check, for each model")
    parser.add_argument("--json", help="file to write all figures to")
    return parser.parse_args()


OPTIONS = parse_options()
# Threads that spin while they wait slow a busy machine down.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import adacc  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

transformers.logging.set_verbosity_error()


# --- models, each a function that returns a module and what computes its loss ---------------------
def attention():
    return {"attn_implementation": "eager"} if OPTIONS.eager else {}


def language(model, batch=4, length=128):
    ids = torch.randint(3, VOCABULARY, (batch, length))
    return model, lambda mine: mine(input_ids=ids, labels=ids).loss


LLAMA = dict(vocab_size=VOCABULARY, hidden_size=128, intermediate_size=384, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, head_dim=32, max_position_embeddings=256, use_cache=False, pad_token_id=0)


def gpt2():
    return language(transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=256, n_embd=128, n_layer=3, n_head=4, use_cache=False, **attention())))


def llama():
    return language(transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA, **attention())))


def qwen3():
    return language(transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**LLAMA, **attention())))


def gemma2():
    return language(transformers.Gemma2ForCausalLM(transformers.Gemma2Config(
        **LLAMA, query_pre_attn_scalar=32, sliding_window=64, **attention())))


def mixtral():
    return language(transformers.MixtralForCausalLM(transformers.MixtralConfig(
        **LLAMA, num_local_experts=4, num_experts_per_tok=2, output_router_logits=True, **attention())))


def falcon():
    return language(transformers.FalconForCausalLM(transformers.FalconConfig(
        vocab_size=VOCABULARY, hidden_size=128, num_hidden_layers=3, num_attention_heads=4, alibi=True, use_cache=False,
        **attention())))


def mamba():
    return language(transformers.MambaForCausalLM(transformers.MambaConfig(
        vocab_size=VOCABULARY, hidden_size=128, state_size=16, num_hidden_layers=3, use_cache=False)), 2, 64)


def bert():
    return language(transformers.BertForMaskedLM(transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=128, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4,
        **attention())))


def deberta():
    model = transformers.DebertaV2ForMaskedLM(transformers.DebertaV2Config(
        vocab_size=VOCABULARY, hidden_size=128, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4,
        relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=64))
    ids = torch.randint(3, VOCABULARY, (4, 128))
    mask = torch.ones_like(ids)
    for row, length in enumerate((128, 100, 70, 30)):
        mask[row, length:] = 0
    labels = ids.masked_fill(mask == 0, -100)
    return model, lambda mine: mine(input_ids=ids, attention_mask=mask, labels=labels).loss


def t5():
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(
        vocab_size=VOCABULARY, d_model=128, d_kv=32, d_ff=512, num_layers=3, num_heads=4, use_cache=False,
        decoder_start_token_id=0, pad_token_id=0))
    return language(model)


def whisper():
    model = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(
        vocab_size=VOCABULARY, num_mel_bins=80, d_model=128, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=512, decoder_ffn_dim=512,
        max_source_positions=200, max_target_positions=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1, use_cache=False, **attention()))
    sound, ids = torch.randn(4, 80, 400), torch.randint(3, VOCABULARY, (4, 64))
    return model, lambda mine: mine(input_features=sound, labels=ids).loss


def wav2vec2():
    model = transformers.Wav2Vec2ForCTC(transformers.Wav2Vec2Config(
        vocab_size=32, hidden_size=128, num_hidden_layers=3, num_attention_heads=4, intermediate_size=512,
        conv_dim=(64,) * 7, num_conv_pos_embeddings=32, num_conv_pos_embedding_groups=4, mask_time_prob=0.0,
        layerdrop=0.0, **attention()))
    sound, text = torch.randn(2, 16000), torch.randint(1, 32, (2, 12))
    return model, lambda mine: mine(input_values=sound, labels=text).loss


def pictures(model, batch=8, size=112):
    x, y = torch.randn(batch, 3, size, size), torch.randint(0, 10, (batch,))
    return model, lambda mine: mine(pixel_values=x, labels=y).loss


def vit():
    return pictures(transformers.ViTForImageClassification(transformers.ViTConfig(
        hidden_size=128, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4, image_size=112,
        patch_size=16, num_labels=10, **attention())))


def dinov2():
    return pictures(transformers.Dinov2ForImageClassification(transformers.Dinov2Config(
        hidden_size=128, num_hidden_layers=3, num_attention_heads=4, image_size=112, patch_size=14, num_labels=10,
        **attention())))


def swin():
    return pictures(transformers.SwinForImageClassification(transformers.SwinConfig(
        image_size=112, patch_size=4, embed_dim=48, depths=[2, 2], num_heads=[2, 4], window_size=7, num_labels=10)), 4)


def convnext():
    return pictures(transformers.ConvNextForImageClassification(transformers.ConvNextConfig(
        hidden_sizes=[32, 64, 128], depths=[2, 2, 2], num_stages=3, num_labels=10, image_size=112)))


def resnet18():
    return pictures(transformers.ResNetForImageClassification(transformers.ResNetConfig(
        embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic", num_labels=10)), 4)


class Residual(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.layers = nn.Sequential(nn.GroupNorm(8, inner), nn.SiLU(), nn.Conv2d(inner, outer, 3, padding=1),
                                    nn.GroupNorm(8, outer), nn.SiLU(), nn.Conv2d(outer, outer, 3, padding=1))
        self.skip = nn.Conv2d(inner, outer, 1)

    def forward(self, x):
        return self.skip(x) + self.layers(x)


class PixelAttention(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm, self.qkv = nn.GroupNorm(8, channels), nn.Conv2d(channels, 3 * channels, 1)
        self.out = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).flatten(2).transpose(1, 2).unsqueeze(1).chunk(3, dim=3)
        y = F.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.squeeze(1).transpose(1, 2).reshape(x.shape))


class UNet(nn.Module):
    def __init__(self, channels=32):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, channels, 3, padding=1), nn.Conv2d(channels, 3, 3, padding=1)
        self.down = nn.ModuleList([Residual(channels, channels), Residual(channels, 2 * channels)])
        self.middle = nn.Sequential(Residual(2 * channels, 2 * channels), PixelAttention(2 * channels))
        self.up = nn.ModuleList([Residual(4 * channels, channels), Residual(2 * channels, channels)])

    def forward(self, x):
        x, kept = self.first(x), []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.middle(x)
        for block in self.up:
            x = block(torch.cat([F.interpolate(x, scale_factor=2), kept.pop()], dim=1))
        return self.last(x)


def unet():
    x, noise = torch.randn(4, 3, 32, 32), torch.randn(4, 3, 32, 32)
    return UNet(), lambda mine: F.mse_loss(mine(x), noise)


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(VOCABULARY, 128), nn.Linear(256, VOCABULARY)
        self.lstm = nn.LSTM(128, 256, num_layers=2, dropout=0.1, batch_first=True)

    def forward(self, ids):
        return self.head(self.lstm(self.embedding(ids))[0])


def lstm():
    ids = torch.randint(0, VOCABULARY, (16, 64))
    return Lstm(), lambda mine: F.cross_entropy(mine(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


class Gnn(nn.Module):
    """Messages along edges; a node takes their maximum and their sum, by turns."""

    def __init__(self, channels=128, layers=4):
        super().__init__()
        self.messages = nn.ModuleList(nn.Linear(2 * channels, channels) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(layers))
        self.head = nn.Linear(channels, 10)

    def forward(self, x, source, target):
        for i, (message, norm) in enumerate(zip(self.messages, self.norms)):
            sent = F.relu(message(torch.cat([x[source], x[target]], dim=1))).to(x.dtype)
            place = target[:, None].expand_as(sent)
            kind = "amax" if i % 2 == 0 else "sum"
            x = norm(x + torch.zeros_like(x).scatter_reduce(0, place, sent, kind, include_self=True))
        return self.head(x)


def gnn():
    x, y = torch.randn(500, 128), torch.randint(0, 10, (500,))
    source, target = torch.randint(0, 500, (2, 3000))
    return Gnn(), lambda mine: F.cross_entropy(mine(x, source, target), y)


MODELS = {
    "GPT-2": gpt2, "Llama": llama, "Qwen 3": qwen3, "Gemma 2": gemma2, "Mixtral": mixtral, "Falcon, ALiBi": falcon,
    "BERT": bert, "DeBERTa, padded": deberta, "T5": t5, "Whisper": whisper, "wav2vec2, CTC": wav2vec2, "ViT": vit,
    "DINOv2": dinov2, "Swin": swin, "ConvNeXt": convnext, "ResNet-18": resnet18, "UNet": unet, "LSTM": lstm,
    "GNN, max": gnn, "Mamba": mamba,
}


# --- figures --------------------------------------------------------------------------------------
def made(build, autocast=OPTIONS.autocast):
    torch.manual_seed(OPTIONS.seed)
    model, loss = build()
    model.train()

    def cast(mine):
        with torch.autocast("cpu", torch.bfloat16) if autocast else contextlib.nullcontext():
            return loss(mine)
    return model, cast


def under_budget(build, share, steps=4):
    """The budget's report after some steps; what it raised, if it was refused."""
    model, loss = made(build)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    budget = adacc.budget(f"{share}%", OPTIONS.policy, again=OPTIONS.again)
    try:
        for _ in range(steps):
            with budget:
                value = loss(model)
            value.backward()
            del value
    except RuntimeError as why:
        return budget.report, str(why)
    return budget.report, ""


def held_budget(build, share):
    """This share of a plain step's peak, or a bit more than the least that there is a plan for."""
    for _ in range(4):
        report, refused = under_budget(build, share)
        if not refused and report.planned > 0:
            return {"share": share, "measured": report.measured_bytes, "plain": report.plain_bytes,
                    "planned_steps": report.planned, "held": report.most_bytes <= report.budget_bytes, "note": report.note}
        if not refused or report.plain_bytes == 0:
            return {"note": report.note or refused}
        least = report.least_bytes / report.plain_bytes
        share = max(share + 1, math.ceil(102 * least))
        if share > 100:
            break
    return {"note": refused}


def figures(name, build):
    model, loss = made(build)
    checked = adacc.check(model, loss, OPTIONS.policy, blame=OPTIONS.blame or False)
    if OPTIONS.blame:
        print(checked)
    # In bfloat16 what is 0 in exact arithmetic is rounding of 2^-9: fp32 says which parameters those are.
    exact = adacc.check(*made(build, autocast=False), "as_is") if OPTIONS.autocast else checked
    nothing = {each.name for each in exact.parameters if each.negligible}
    counted = [each for each in checked.parameters if each.name not in nothing]
    row = {"whole": checked.off, "worst": counted[0].off, "worst_parameter": counted[0].name,
           "raw_bytes": checked.raw_bytes, "encoded_bytes": checked.encoded_bytes, "declined": checked.declined,
           "ok": checked.ok}
    del model, loss, checked, exact, counted
    gc.collect()
    if not OPTIONS.no_budget:
        row["budget"] = held_budget(build, 50)
        # Where half was refused, the budget is the least.
        row["least"] = held_budget(build, 1) if row["budget"].get("share") == 50 else row["budget"]
        gc.collect()
    return row


def main():
    torch.set_num_threads(OPTIONS.threads)
    adacc.memory.count()
    wanted = [each.strip().lower() for each in (OPTIONS.models or "").split(",") if each.strip()]
    names = [name for name in MODELS if not wanted or any(each in name.lower() for each in wanted)]
    if not names:
        raise SystemExit(f"torch_models: no model is called {OPTIONS.models}; there are {', '.join(MODELS)}")
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {OPTIONS.policy}, {'eager attention, ' if OPTIONS.eager else ''}"
          f"{'bfloat16 by autocast' if OPTIONS.autocast else 'fp32'}\n")
    head = ["model", "saved MiB", "waiting", "of it", "whole", "worst"]
    if not OPTIONS.no_budget:
        head += ["budget", "measured of plain, MiB", "least", "measured"]
    print(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    rows = {}
    for name in names:
        row = rows[name] = figures(name, MODELS[name])

        def off(value, bound):
            return f"{value:.2g}" if value <= bound else f"**{value:.2g}**"
        cells = [name, f"{row['raw_bytes'] / 2**20:.1f}", f"{row['encoded_bytes'] / 2**20:.1f}",
                 f"{row['encoded_bytes'] / row['raw_bytes']:.2f}", off(row["whole"], BOUND_OF_WHOLE),
                 off(row["worst"], BOUND_OF_PARAMETER)]
        for kind, plain in (("budget", True), ("least", False)):
            budget = row.get(kind)
            if budget is None:
                continue
            if "share" not in budget:
                cells += ["none", ""]
                continue
            cells += [f"{budget['share']} %" + ("" if budget["held"] else ", **over**"),
                      f"{budget['measured'] / 2**20:.1f}" + (f" of {budget['plain'] / 2**20:.1f}" if plain else "")]
        print(f"| {' | '.join(cells)} |", flush=True)
    for name, row in rows.items():
        for note in dict.fromkeys(row.get(kind, {}).get("note") for kind in ("budget", "least")):
            if note:
                print(f"\n{name}: {note}")
    if OPTIONS.json:
        pathlib.Path(OPTIONS.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
