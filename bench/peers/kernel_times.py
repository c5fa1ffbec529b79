# SPDX-License-Identifier: MIT
"""Times of kernels in what Nsight Compute writes (--csv --print-units base)."""
import csv
import re


def read(output):
    """(name, nanoseconds) of each launch, in order. Lines of the program and of ncu itself are left out."""
    lines = [line for line in output.splitlines() if line.startswith('"')]
    heads = [i for i, line in enumerate(lines) if line.startswith('"ID"')]
    if not heads:
        return []
    launches = []
    for row in csv.DictReader(lines[heads[0]:]):
        value = (row.get("Metric Value") or "").replace(",", "")
        if row.get("Metric Name") == "gpu__time_duration.sum" and re.fullmatch(r"[0-9.]+", value):
            launches.append((row["Kernel Name"], float(value)))
    return launches


def last_step(launches, update):
    """Launches behind the last but one whose name has `update` in it, up to the last one. Updates of several launches
    follow one another."""
    ends = [i for i, (name, _) in enumerate(launches)
            if update in name and not (i + 1 < len(launches) and update in launches[i + 1][0])]
    if not ends:
        return launches
    return launches[ends[-2] + 1 if len(ends) > 1 else 0:ends[-1] + 1]


def short(name):
    name = re.sub(r"\b(adacc::v0_1::|adacc::|detail::|\(anonymous namespace\)::|at::native::|void )", "", name)
    return re.sub(r"\(.*", "", name)[:100]


def summed(launches):
    """A dictionary for each kernel, the longest first."""
    kernels = {}
    for name, time in launches:
        kernel = kernels.setdefault(short(name), {"name": short(name), "launches": 0, "us": 0.0})
        kernel["launches"] += 1
        kernel["us"] += time / 1e3
    return sorted(kernels.values(), key=lambda kernel: -kernel["us"])


def table(launches):
    lines = [f"{'ms in all':>12}{'launches':>10}{'us each':>10}  kernel"]
    for kernel in summed(launches):
        each = kernel["us"] / kernel["launches"]
        lines.append(f"{kernel['us'] / 1e3:12.3f}{kernel['launches']:10}{each:10.1f}  {kernel['name']}")
    total = sum(time for _, time in launches)
    lines.append(f"{total / 1e6:12.3f}{len(launches):10}{'':10}  all")
    return "\n".join(lines)
