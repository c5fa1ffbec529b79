#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""SmolLM2 talked to by chat_tune and by llama.cpp, in turns: tokens/s, and processor time of a token.

    pip install llama-cpp-python      # or xllamacpp, which comes built
    cmake --build --preset release --target chat_tune
    bench/peers/talk_smollm.py SmolLM2-135M-Instruct.Q4_1.gguf --program build/release/examples/chat_tune

Both answer one prompt greedily, with the same file and threads. Each run is a process of its own; a token's cost is
the difference between a run of --tokens and one of a single token. Printed are medians of --rounds.
"""
import argparse
import pathlib
import resource
import statistics
import subprocess
import sys
import time

PROMPT = "Tell me a long story of a fox and a crow, with many details."


def run_llama(options):
    """One run: an answer of --tokens tokens."""
    try:
        import llama_cpp
    except ImportError:
        return run_server(options)
    model = llama_cpp.Llama(str(options.model), n_ctx=512, n_threads=options.threads, n_threads_batch=options.threads,
                            verbose=False)
    model.create_chat_completion([{"role": "user", "content": PROMPT}], max_tokens=options.tokens, temperature=0)


def run_server(options):
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(options.model)
    params.n_ctx, params.n_parallel, params.warmup = 512, 1, False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
    server = xllamacpp.Server(params)
    answer = server.handle_chat_completions({"messages": [{"role": "user", "content": PROMPT}], "temperature": 0,
                                             "max_tokens": options.tokens})
    if answer["usage"]["completion_tokens"] != options.tokens:
        raise SystemExit(f"talk_smollm: llama.cpp answered {answer['usage']}")


def measured(command):
    """Seconds, and seconds of processor time, of a process."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - start, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=pathlib.Path, help="GGUF file")
    parser.add_argument("--program", type=pathlib.Path, required=True, help="chat_tune")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=100, help="of an answer, which has to be as long")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--llama", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.llama:
        return run_llama(options)
    common = ["--threads", options.threads, "--tokens"]
    commands = {
        "chat_tune": [options.program, "talk", "--model", options.model, "--prompt", PROMPT, "--context", 512, *common],
        "llama.cpp": [sys.executable, __file__, options.model, "--program", options.program, "--llama", *common],
    }
    costs = {name: [] for name in commands}
    for _ in range(options.rounds):
        for name, command in commands.items():
            long, short = measured([*command, options.tokens]), measured([*command, 1])
            costs[name].append([(a - b) / (options.tokens - 1) for a, b in zip(long, short)])
    print(f"{'':12} {'tokens/s':>9} {'processor time of a token':>27}")
    for name, rounds in costs.items():
        seconds, busy = (statistics.median(column) for column in zip(*rounds))
        print(f"{name:12} {1 / seconds:9.1f} {1e3 * busy:24.1f} ms")


if __name__ == "__main__":
    main()
