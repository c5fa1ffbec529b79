#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tables of what bench/gpu_call.sh wrote: gpu_page.py table FOLDER, gpu_page.py page FOLDER.

The page is the table, and below it the log.
"""
import json
import os
import sys

TOLERANCE = 2e-3  # of first losses, relatively


def read(folder):
    """The lines of results.jsonl. A last one that was cut off is left out."""
    path = os.path.join(folder, "results.jsonl")
    if not os.path.exists(path):
        return []
    found = []
    with open(path) as file:
        for line in file:
            try:
                found.append(json.loads(line))
            except ValueError:
                pass
    return found


def rates(lines):
    for line in lines:
        if "link" in line:
            yield f"{line['link']}, GB/s: copy within the device {line['within']:.0f}, host to device " \
                  f"{line['to_device']:.1f}, device to host {line['to_host']:.1f}; both at once " \
                  f"{line['to_device_both']:.1f} and {line['to_host_both']:.1f}"


def best(algorithms):
    return min((a for a in algorithms if "us" in a), key=lambda a: a["us"], default=None)


def first(algorithms, workspace):
    return next((a for a in algorithms if a["heuristic"] == 0 and a["workspace"] == workspace and "us" in a), None)


def products(lines):
    found = [line for line in lines if "product" in line]
    if not found:
        return
    yield f"{'product':28}{'first':>9}{'TFLOP/s':>9}{'best':>9}{'TFLOP/s':>9}  heuristic, workspace in MiB"
    for line in found:
        of = line["algorithms"]
        now, fastest = first(of, 0), best(of)
        shown = f"{now['us']:9.1f}{now['tflops']:9.0f}" if now else f"{'-':>9}{'-':>9}"
        if fastest:
            shown += f"{fastest['us']:9.1f}{fastest['tflops']:9.0f}  {fastest['heuristic']}, " \
                     f"{fastest['workspace'] >> 20}"
        yield f"{line['product']:28}{shown}"


def steps(lines):
    found = [line for line in lines if "row" in line]
    if not found:
        return
    starts = {}
    yield f"{'step':36}{'ms':>9}{'tokens/s':>10}{'TFLOP/s':>9}{'peak GiB':>10}{'first loss':>12}{'last':>9}{'head rows':>11}  waits"
    for line in found:
        name = f"{line['size']}, B {line['batch']}: {line['row']}"
        yield f"{name:36}{line['ms']:9.2f}{line['tokens_per_s']:10.0f}{line['tflops']:9.1f}" \
              f"{(line['peak'] or 0) / 2**30:10.2f}{line['losses'][0]:12.5f}{line['losses'][-1]:9.5f}" \
              f"{line.get('head_rows') or '':>11}  {'each step' if line['waits'] else 'never'}"
        start = starts.setdefault((line["size"], line["batch"]), line["losses"][0])
        if abs(line["losses"][0] - start) > TOLERANCE * abs(start):
            yield f"    WRONG: its first loss is not that of the first row, {start:.5f}"


def policies(lines):
    """Rows of torch_policies_cuda.py: turns of one size and batch stand beside each other."""
    rows = {}
    for line in lines:
        if "policy" in line:
            rows.setdefault((line["size"], line["batch"], line["policy"]), []).append(line)
    if not rows:
        return
    yield f"{'saved tensors of PyTorch':36}{'ms':>9}{'peak MiB':>10}{'in all':>10}{'first loss':>12}{'last':>9}"
    for (size, batch, policy), turns in rows.items():
        name = f"{size}, B {batch}: {policy}"
        good = [turn for turn in turns if "ms" in turn]
        if good:
            ms = sorted(each for turn in good for each in turn["ms"])
            yield f"{name:36}{ms[len(ms) // 2]:9.2f}{good[-1]['peak'] / 2**20:10.0f}{good[-1]['in_all'] / 2**20:10.0f}" \
                  f"{good[0]['losses'][0]:12.5f}{good[0]['losses'][-1]:9.5f}"
        else:
            yield f"{name:36} {turns[-1]['failed']}"


def kernels(lines):
    for line in lines:
        if "kernels_of" in line:
            of = line["kernels"]
            launches, us = sum(k["launches"] for k in of), sum(k["us"] for k in of)
            yield f"{line['kernels_of']}, one step: {launches} launches, {us / 1e3:.2f} ms of kernels; longest: " + \
                  ", ".join(f"{k['name'][:40]} {k['us'] / 1e3:.2f}" for k in of[:4])


def largest(lines):
    for line in lines:
        if "largest" in line:
            yield f"largest batch of {line['largest']}: {line['batch']}, {line['tokens_per_s']:.0f} tokens/s, " \
                  f"{(line['peak'] or 0) / 2**30:.2f} GiB"


def ends(lines):
    """How the commands of each part ended: those that ended well by number alone."""
    parts = {}
    for line in lines:
        if "part" in line:
            parts.setdefault(line["part"], []).append(line)
    for part, commands in parts.items():
        other = [f"{c['name']}: {c['status']}" for c in commands if c["status"] != "fine"]
        fine = len(commands) - len(other)
        seconds = sum(c["seconds"] for c in commands)
        yield f"{part:10} {seconds:4} s, {fine} of {len(commands)} fine" + (": " + "; ".join(other) if other else "")


def table(folder):
    lines = read(folder)
    for rows in (rates, products, steps, policies, kernels, largest, ends):
        text = "\n".join(rows(lines))
        if text:
            print(text + "\n")


def page(folder):
    log = os.path.join(folder, "log.txt")
    if not os.path.exists(log):
        print(f"gpu_page: {folder} has no log.txt, which bench/gpu_call.sh run writes", file=sys.stderr)
        return 1
    table(folder)
    with open(log, errors="replace") as file:
        print(file.read().rstrip())
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("table", "page"):
        print("usage: gpu_page.py table|page FOLDER", file=sys.stderr)
        sys.exit(2)
    sys.exit(table(sys.argv[2]) if sys.argv[1] == "table" else page(sys.argv[2]))
