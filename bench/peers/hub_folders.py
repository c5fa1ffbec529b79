#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Small models of transformers, of numbers of chance: their folders written as GGUF files by chat_tune, and these as folders again.

    pip install torch transformers llama-cpp-python
    cmake --build --preset release --target chat_tune next_tokens
    bench/peers/hub_folders.py --programs build/release

For Llama, Qwen2, Qwen3 and GPT-2, whose tokenizers are learnt from text (one of them pairs by score as Llama 2's, some with a token
before each text, one with a token behind), all programs compute the same tokens and logits: transformers of the first folder and of
the last, next_tokens and llama.cpp of the file, which composes no text of Qwen's itself, and has GELU in 16 bits. Fails where tokens
differ, or a logit by more than --most. Without llama_cpp the other three are
compared; without transformers the script says so and ends with 77.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import unicodedata

try:
    import numpy
    import torch
    import transformers
    from tokenizers import processors
except ImportError as missing:
    print(f"SKIPPED: no {missing.name} (pip install torch transformers)")
    sys.exit(77)

try:
    import llama_cpp
except ImportError:
    llama_cpp = None

from tokenizer_lines import SENTENCES, SPECIALS, learnt, llama2

transformers.utils.logging.disable_progress_bar()
TEXTS = [*SENTENCES, "def f(x):\n    return [x, 1234]  # don't", "<|im_start|>user\nHi<|im_end|>", "e\u0301 \u00e9", "\t\n x"]
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 256}
MODELS = {
    "llama": ("llama3", lambda more: transformers.LlamaConfig(**SIZES, **more, rope_theta=5e5)),
    "qwen2": ("qwen2", lambda more: transformers.Qwen2Config(**SIZES, **more, tie_word_embeddings=True)),
    "qwen3": ("qwen2", lambda more: transformers.Qwen3Config(**SIZES, **more, head_dim=32)),
    "gpt2": ("gpt2", lambda more: transformers.GPT2Config(n_embd=64, n_layer=2, n_head=4, n_positions=256, **more)),
    "llama 2": ("llama2", lambda more: transformers.LlamaConfig(**SIZES, **more)),
    "llama of SmolLM": ("smollm", lambda more: transformers.LlamaConfig(**SIZES, **more, tie_word_embeddings=True)),
}


def save(name, folder):
    kind, config_of = MODELS[name]
    tokenizer = llama2(TEXTS, folder / "pairs.gguf") if kind == "llama2" else learnt(kind, TEXTS)
    ends = ["<s>", "</s>"] if kind == "llama2" else SPECIALS[1:]
    bos, eos = (tokenizer.token_to_id(text) for text in ends)
    more = {}
    if kind == "llama2":
        more = {"unk_token": "<unk>", "add_bos_token": True, "add_eos_token": False}
    if name == "llama":  # as Llama 3's
        tokenizer.post_processor = processors.Sequence(
            [processors.ByteLevel(trim_offsets=False),
             processors.TemplateProcessing(single=f"{SPECIALS[1]} $A", pair=f"{SPECIALS[1]} $A {SPECIALS[1]} $B",
                                           special_tokens=[(SPECIALS[1], bos)])])
    if name == "qwen3":
        more = {"add_bos_token": False, "add_eos_token": True}
    whole = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=ends[0], eos_token=ends[1],
                                                 **more)
    whole.save_pretrained(folder)
    torch.manual_seed(1)
    vocabulary = tokenizer.get_vocab_size() + 3  # numbers without a token
    model = transformers.AutoModelForCausalLM.from_config(
        config_of({"vocab_size": vocabulary, "bos_token_id": bos, "eos_token_id": eos, "initializer_range": 0.2}))
    model.save_pretrained(folder)


def by_transformers(folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    results = []
    for text in TEXTS:
        tokens = tokenizer(text)["input_ids"]
        with torch.no_grad():
            results.append((tokens, model(torch.tensor([tokens])).logits[0].numpy()))
    return results


def by_next_tokens(options, folder, model):
    command = [options.programs / "bench/next_tokens", model, "--tokens", 1, "--context", 256, "--logits", folder / "logits.f32"]
    done = subprocess.run([str(word) for word in command], input=json.dumps(TEXTS), text=True, check=True,
                          stdout=subprocess.PIPE)
    all_tokens = [json.loads(line)["tokens"] for line in done.stdout.splitlines()]
    rows = numpy.fromfile(folder / "logits.f32", dtype=numpy.float32).reshape(sum(map(len, all_tokens)), -1)
    results, begin = [], 0
    for tokens in all_tokens:
        results.append((tokens, rows[begin:begin + len(tokens)]))
        begin += len(tokens)
    return results


def by_llama_cpp(model, composed):
    theirs = llama_cpp.Llama(str(model), n_ctx=256, logits_all=True, verbose=False, n_threads=1,
                             type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32)
    results = []
    for text in TEXTS:
        if composed:
            text = unicodedata.normalize("NFC", text)
        tokens = theirs.tokenize(text.encode(), add_bos=True, special=True)
        theirs.reset()
        theirs.eval(tokens)
        results.append((tokens, numpy.array(theirs.scores[:len(tokens)])))
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs", type=pathlib.Path, required=True, help="a build's folder")
    parser.add_argument("--most", type=float, default=1e-2, help="difference of a logit")
    parser.add_argument("--models", default=",".join(MODELS))
    options = parser.parse_args()
    if llama_cpp is None:
        print("without llama.cpp (pip install llama-cpp-python)")
    faults = 0
    for name in options.models.split(","):
        with tempfile.TemporaryDirectory() as place:
            place = pathlib.Path(place)
            (place / "first").mkdir()
            save(name, place / "first")
            for model, out in (("first", "model.gguf"), ("model.gguf", "last")):
                command = [options.programs / "examples/chat_tune", "export", "--model", place / model, "--out", place / out,
                           "--type", "F32", "--threads", "1"]
                subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
            wanted = by_transformers(place / "first")
            found = {"next_tokens": by_next_tokens(options, place, place / "model.gguf"),
                     "transformers of the folder of the file": by_transformers(place / "last")}
            if llama_cpp is not None:
                found["llama.cpp"] = by_llama_cpp(place / "model.gguf", MODELS[name][0] == "qwen2")
        for program, results in found.items():
            largest = 0.0
            for text, (tokens, logits), (right, right_logits) in zip(TEXTS, results, wanted):
                if list(tokens) != list(right):
                    print(f"FAULT: {name}, {program}: the tokens of {text!r} are {tokens}, of {right}")
                    faults += 1
                    continue
                largest = max(largest, float(numpy.abs(logits - right_logits).max()))
            print(f"{name:16} {program:40} largest difference of a logit {largest:.1e}", flush=True)
            if largest > options.most:
                faults += 1
                print(f"FAULT: {name}, {program}: logits differ by {largest}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
