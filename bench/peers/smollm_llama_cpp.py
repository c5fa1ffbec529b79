#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""SmolLM2 in GGUF files computed here and by llama.cpp: tokens, logits, greedy answers, speed.

    pip install llama-cpp-python
    cmake --build --preset release --target chat_tune next_tokens
    bench/peers/smollm_llama_cpp.py SmolLM2-135M-Instruct.Q4_1.gguf --programs build/release

Ten prompts, before and after tuning. Both programs get the same files, written by chat_tune:

- plain: the weights of the file, decoded into F32;
- adapter: the same, and the adapters of a tuning as a GGUF file of their own (llama.cpp's --lora);
- merged: one file with the adapters merged;
- stored: the file as it came, whose blocks llama.cpp multiplies with activations of 8 bits.

Compared are the tokens of the prompts, all their logits (largest difference), and greedy answers of --tokens tokens. Where an answer
differs, the two likeliest logits of llama.cpp there are printed: a tie is no fault. Last, `chat_tune talk` and llama.cpp
answer with the same file and threads in turns (talk_smollm.py).

Limits of --check: differences of 2e-2 in files in F32, the same tokens, the same answers but for ties, 0.6 of llama.cpp's speed.
Without llama_cpp the script says so and ends with 77.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

try:
    import llama_cpp
    import numpy
except ImportError as missing:
    print(f"SKIPPED: no {missing.name} (pip install llama-cpp-python numpy)")
    sys.exit(77)

PROMPTS = [
    "The capital of France is", "Once upon a time, in a forest far away,", "def fibonacci(n):\n    ", "Water boils at",
    "The three primary colours are", "To be, or not to be,", "In 1969, the first human", "SELECT name FROM",
    "Ein Satz auf Deutsch: Die Katze", "<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n<|im_start|>assistant\n"]


class Theirs:
    """A model opened by llama.cpp, whose keys and values are in F32."""

    def __init__(self, model, lora, options):
        self.model = llama_cpp.Llama(str(model), lora_path=lora and str(lora), n_ctx=options.context, logits_all=True,
                                     n_threads=options.threads, n_threads_batch=options.threads, verbose=False,
                                     type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32)

    def tokens(self, text):
        return self.model.tokenize(text.encode(), add_bos=True, special=True)

    def logits(self, tokens):
        self.model.reset()
        self.model.eval(tokens)
        return numpy.array(self.model.scores[:len(tokens)])

    def answer(self, tokens, count):
        """Tokens, and by how much each was likelier than the next one."""
        row = self.logits(tokens)[-1]
        answer, leads = [], []
        for _ in range(count):
            second, first = numpy.partition(row, -2)[-2:]
            answer.append(int(row.argmax()))
            leads.append(float(first - second))
            self.model.eval(answer[-1:])
            row = self.model.scores[self.model.n_tokens - 1]
        return answer, leads


def ours(options, folder, model, lora):
    """Tokens, logits and answers of all prompts."""
    place = folder / "logits.f32"
    command = [options.programs / "bench/next_tokens", model, "--tokens", options.tokens, "--context", options.context,
               "--threads", options.threads, "--logits", place, *(["--lora", lora] if lora else [])]
    done = subprocess.run([str(word) for word in command], input=json.dumps(options.prompts), text=True, check=True,
                          stdout=subprocess.PIPE)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    count = sum(len(line["tokens"]) for line in lines)
    rows = numpy.fromfile(place, dtype=numpy.float32).reshape(count, -1)
    ends = numpy.cumsum([len(line["tokens"]) for line in lines])
    return [(line["tokens"], rows[end - len(line["tokens"]):end], line["answer"]) for line, end in zip(lines, ends)]


def compare(name, model, lora, options, folder):
    """Prints a row; the faults found."""
    theirs = Theirs(model, lora, options)
    faults, largest, same, ties = [], 0.0, 0, 0
    for text, (tokens, logits, answer) in zip(options.prompts, ours(options, folder, model, lora)):
        if tokens != theirs.tokens(text):
            faults.append(f"{name}: the tokens of {text!r} are {tokens}, and llama.cpp's {theirs.tokens(text)}")
            continue
        largest = max(largest, float(numpy.abs(logits - theirs.logits(tokens)).max()))
        wanted, leads = theirs.answer(tokens, options.tokens)
        first = next((i for i, pair in enumerate(zip(answer, wanted)) if pair[0] != pair[1]), None)
        same += first is None
        if first is None:
            continue
        tie = leads[first] <= 2 * options.most
        ties += tie
        print(f"{name}: {text!r} goes on otherwise from token {first} on, which leads by {leads[first]:.4f}")
        if not tie:
            faults.append(f"{name}: the answer to {text!r} differs")
    print(f"{name:10} largest difference of a logit {largest:.2e}; {same} of {len(options.prompts)} answers the same"
          f"{f', {ties} ties' if ties else ''}", flush=True)
    if largest > options.most:
        faults.append(f"{name}: logits differ by {largest}")
    return faults


def written(options, folder):
    """Adapters of a short tuning, and the files to compare."""
    program = options.programs / "examples/chat_tune"

    def call(*words):
        subprocess.run([str(word) for word in [program, *words, "--threads", options.threads]], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    tuned = folder / "tuned.safetensors"
    call("tune", "--model", options.model, "--data", options.text, "--context", 64, "--batch", 2, "--rank", 8, "--alpha", 16,
         "--lr", 2e-3, "--steps", options.steps, "--held-out", 0, "--out", tuned)
    call("export", "--model", options.model, "--out", folder / "plain.gguf", "--type", "F32")
    call("export", "--model", options.model, "--adapter", tuned, "--out", folder / "lora.gguf", "--adapters")
    call("export", "--model", options.model, "--adapter", tuned, "--out", folder / "merged.gguf", "--type", "F32")
    return {"plain": (folder / "plain.gguf", None), "adapter": (folder / "plain.gguf", folder / "lora.gguf"),
            "merged": (folder / "merged.gguf", None)}


def speed(options):
    """The ratio of tokens/s, from talk_smollm.py, whose table is printed."""
    command = [sys.executable, pathlib.Path(__file__).with_name("talk_smollm.py"), options.model, "--program",
               options.programs / "examples/chat_tune", "--threads", options.threads, "--rounds", options.rounds]
    table = subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True).stdout
    print(table, end="")
    rates = {line.split()[0]: float(line.split()[1]) for line in table.splitlines()[1:]}
    print(f"chat_tune has {rates['chat_tune'] / rates['llama.cpp']:.2f} of llama.cpp's tokens/s")
    return rates["chat_tune"] / rates["llama.cpp"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=pathlib.Path, help="GGUF file")
    parser.add_argument("--programs", type=pathlib.Path, required=True, help="a build's folder")
    parser.add_argument("--text", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2] / "README.md",
                        help="to tune on")
    parser.add_argument("--steps", type=int, default=20, help="of the tuning")
    parser.add_argument("--tokens", type=int, default=24, help="of an answer")
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3, help="of the comparison of speed; 0: none")
    parser.add_argument("--most", type=float, default=2e-2, help="difference of a logit")
    parser.add_argument("--check", action="store_true", help="fail beyond the limits")
    options = parser.parse_args()
    options.prompts = PROMPTS
    print(f"llama-cpp-python {llama_cpp.__version__}, {options.threads} threads")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        faults = []
        for name, (model, lora) in written(options, folder).items():
            faults += compare(name, model, lora, options, folder)
        compare("stored", options.model, None, options, folder)
    if options.rounds > 0 and (ratio := speed(options)) < 0.6:
        faults.append(f"talk has {ratio} of llama.cpp's speed")
    for fault in faults:
        print("FAULT:", fault)
    return 1 if faults and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
