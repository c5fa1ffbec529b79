#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""SmolLM2 tuned by chat_tune, and by PyTorch with transformers and peft: tokens/s, resident peak, losses.

    pip install torch transformers peft gguf
    cmake --build --preset release --target chat_tune
    bench/peers/tune_smollm.py SmolLM2-135M-Instruct.Q4_1.gguf --program build/release/examples/chat_tune

Adapters of rank 8 stand beside all linear layers. Sequences are cut from one text, by chat_tune in an order of
chance; all tokens are learnt. PyTorch has the file's weights decoded. Each row is a process of its own, whose VmHWM is printed.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

# Threads that spin while they wait slow a busy machine down.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def resident_peak():
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0


def run_torch(options):
    """One row: prints a line of JSON."""
    import peft
    import torch
    import transformers

    torch.manual_seed(1)
    torch.set_num_threads(options.threads)
    place = {"pretrained_model_name_or_path": options.model.parent, "gguf_file": options.model.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(**place)
    number = torch.bfloat16 if options.row.startswith("bf16") else torch.float32
    model = transformers.AutoModelForCausalLM.from_pretrained(**place, dtype=number)
    model = peft.get_peft_model(model, peft.LoraConfig(r=8, lora_alpha=16, target_modules=LINEAR))
    if options.row.endswith("checkpoints"):
        model.enable_input_require_grads()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    ids = tokenizer(options.text.read_text(errors="ignore"))["input_ids"]
    wanted = options.steps * options.batch * options.context
    if len(ids) < wanted:
        raise SystemExit(f"tune_smollm: --text has {len(ids)} tokens, and {wanted} are needed")
    batches = torch.tensor(ids[:wanted]).view(options.steps, options.batch, options.context)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=options.lr, weight_decay=0)
    losses, times = [], []
    for batch in batches:
        start = time.perf_counter()
        loss = model(input_ids=batch, labels=batch, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        times.append(time.perf_counter() - start)
    print(json.dumps({"losses": losses, "seconds": times, "resident": resident_peak()}))


def run_chat_tune(options, setting, *more):
    """A row's result. `setting` has words for --precision, --budget and --weight-pages."""
    words = [word for pair in zip(["--precision", "--budget", "--weight-pages"], setting.split()) for word in pair]
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log.jsonl"
        command = [options.program, "tune", "--model", options.model, "--data", options.text, "--context",
                   options.context, "--batch", options.batch, "--rank", 8, "--alpha", 16, "--lr", options.lr, "--min-lr",
                   options.lr, "--steps", options.steps, "--held-out", 0, "--threads", options.threads, "--log", log,
                   *words, *more]
        subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
    return {"losses": [line["loss"] for line in lines[:-1]], "seconds": [line["ms"] / 1000 for line in lines[:-1]],
            "resident": lines[-1]["resident_peak_bytes"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=pathlib.Path, help="GGUF file")
    parser.add_argument("--program", type=pathlib.Path, help="chat_tune; without it PyTorch alone is measured")
    parser.add_argument("--text", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2] / "docs/torch.md")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--rows", default="fp32,fp32 checkpoints,bf16,bf16 checkpoints", help="of PyTorch")
    parser.add_argument("--settings", default="fp32 100%,fp32 30%,fp32 smallest,fp32 smallest resident,"
                        "bf16 100%,bf16 30%,bf16 smallest,bf16 smallest resident",
                        help="of chat_tune: --precision, --budget, and --weight-pages")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row is not None:
        return run_torch(options)
    print(f"{'':34} {'tokens/s':>9} {'resident':>12} {'first loss':>11} {'last loss':>10}")

    def show(name, result):
        seconds = sorted(result["seconds"])[len(result["seconds"]) // 2]
        print(f"{name:34} {options.batch * options.context / seconds:9.1f} {result['resident'] / 1e6:9.1f} MB "
              f"{result['losses'][0]:11.4f} {result['losses'][-1]:10.4f}", flush=True)

    for row in filter(None, options.rows.split(",")):
        command = [sys.executable, __file__, *sys.argv[1:], "--row", row]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        show("PyTorch, " + row, json.loads(done.stdout.splitlines()[-1]))
    if options.program is not None:
        for setting in filter(None, options.settings.split(",")):
            show("chat_tune, " + setting, run_chat_tune(options, setting))


if __name__ == "__main__":
    main()
