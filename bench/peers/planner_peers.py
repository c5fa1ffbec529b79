#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Our planner beside others: the same GPT, the same costs, and only retain or recompute to choose from.

    ours    make_plan's search; "with loops" with layers in four parts (docs/tile.md), which costs 3 to 6
            per cent of time that these estimates do not know.
    rotor   the exact dynamic program for chains of Beaumont et al. (package rockmate, its C version).
            It may recompute an activation more than once. Its stages are our segments, and the
            solutions of a stage our lossless patterns of that segment. Memory is counted in --units
            parts of the budget, rounded up.
    H-ILP   rockmate's integer program, which is Checkmate's with options for each segment (hilp.py). A segment may
            run forward again in any stage of backward, but rockmate lets it keep its option for later in its
            own stages alone, where rotor has more freedom. Solved by HiGHS to within 0.2 per cent, as ours, or for
            --hilp-seconds; up to --hilp-layers, since it grows with the square of the layers.
    torch   the knapsacks by which torch.compile keeps a memory budget (greedy, and the integer
            program by scipy). They bound the bytes that are saved for backward, not the peak: "as
            told" gives them the budget, "made to fit" the largest share of it whose plan fits.

Every plan that recomputes nothing twice is laid out by our scheduler: that is `peak`, and where it is above the
budget, the budget is violated. Other plans of rotor and H-ILP are not laid out: they have no peak, and their time is
what they say themselves. Ours may recompute an activation up to eight times if no other plan fits. All times are those
of the estimated profile, over retaining.

    python3 -m venv build/peers
    build/peers/bin/pip install numpy scipy highspy pulp==2.7.0
    build/peers/bin/pip install --no-deps rockmate torch
    build/peers/bin/python bench/peers/planner_peers.py build/release/bench/planner_peers

What is not installed is left out, in words. torch is not imported: one file of it is read.
"""
import argparse
import importlib
import importlib.metadata
import importlib.util
import json
import math
import subprocess
import sys
import tempfile
import time
import types

import hilp


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="the built bench/planner_peers")
    parser.add_argument("--layers", default="6,12,24,96", help="numbers of blocks")
    parser.add_argument("--budgets", default="60,40,30,25,20,15,12", help="in per cent of retain's peak")
    parser.add_argument("--units", type=int, default=500, help="parts of the budget that rotor counts in")
    parser.add_argument("--hilp-layers", type=int, default=12, help="the most layers that H-ILP plans")
    parser.add_argument("--hilp-seconds", type=float, default=300, help="that H-ILP may take for a plan")
    parser.add_argument("--json", help="file to write all figures to")
    return parser.parse_args()


def call(options, layers, *more):
    command = [options.program, "--layers", str(layers), *more]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed")
    return json.loads(done.stdout)


def evaluated(options, layers, plans):
    """What plans, each a list of recomputed activations, cost: seconds, live bytes, peak."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(plans, file)
        file.flush()
        return call(options, layers, "--evaluate", file.name)


# --- rotor ----------------------------------------------------------------------------------------
def load_rotor():
    """rockmate's compiled solver."""
    try:
        return hilp.part_of_rockmate("solvers.rk_rotor.csolver")
    except ImportError as why:
        print(f"rotor is left out: its C version does not load ({why})")
        return None


def rotor_chain(segments, unit):
    """Our segments as rotor's chain. Its memory is what lives beyond a stage's input: an option's
    saved bytes lose that input, which the stage before has counted, and gain the output."""
    def units(size):
        return math.ceil(size / unit)

    chain = types.SimpleNamespace(ln=len(segments), fw=[], bw=[], cw=[], cbw=[[]], fwd_tmp=[],
                                  bwd_tmp=[], ff_fwd_tmp=[], ff_fw=[], nb_sol=[])
    outputs = [s["input_bytes"] for s in segments[1:]] + [0]
    for segment, output in zip(segments, outputs):
        mine, options = segment["input_bytes"], segment["options"]
        saved = [units(o["stored"] - mine + output) for o in options]
        limits = [units(o["need"] - mine) for o in options]
        chain.cw.append(units(mine))
        chain.cbw.append(saved)
        chain.fw.append([segment["forward_seconds"]] * len(options))
        chain.bw.append([o["seconds"] for o in options])
        # It adds these to output or input, and to what is saved.
        chain.fwd_tmp.append([l - s - units(output) for l, s in zip(limits, saved)])
        chain.bwd_tmp.append([l - s - units(mine) for l, s in zip(limits, saved)])
        chain.ff_fwd_tmp.append(units(segment["forward_bytes"]))
        chain.ff_fw.append(segment["forward_seconds"])
        chain.nb_sol.append(len(options))
    chain.cw += [0, 0]
    chain.cbw.append([0])
    for row in (chain.fw, chain.bw, chain.fwd_tmp, chain.bwd_tmp):
        row.append([0])
    chain.ff_fwd_tmp.append(0)
    chain.ff_fw.append(0)
    chain.nb_sol.append(1)
    return chain


def rotor_plan(solver, segments, budget, parts):
    """Seconds beyond retaining; the activations recomputed, or None if some are more than once."""
    table = solver.RkTable(rotor_chain(segments, budget / parts), parts)
    try:
        sequence = table.build_sequence(parts)
    except (ValueError, RuntimeError):
        return None
    sequence = getattr(sequence, "seq", sequence)
    forwards = [0] * len(segments)
    options, first = {}, {}
    for op in sequence:
        kind = type(op).__name__
        if kind in ("SeqLoss", "SeqBlockBwd"):
            continue
        forwards[op.index] += 1
        first.setdefault(op.index, kind)
        if kind == "SeqBlockFe":
            options[op.index] = op.option
    seconds = sum((n - 1) * s["forward_seconds"] + s["options"][options[j]]["seconds"]
                  for j, (n, s) in enumerate(zip(forwards, segments)))
    again = [j for j, kind in first.items() if kind != "SeqBlockFe"]
    runs = max(forwards) <= 2 and not any(segments[j]["options"][options[j]]["recomputed"] for j in again)
    recomputed = set()
    for j, segment in enumerate(segments):
        if first[j] == "SeqBlockFe":
            recomputed.update(segment["options"][options[j]]["recomputed"])
        else:
            recomputed.update(range(segment["first"], segment["last"] + 1))
    for j, kind in first.items():  # what comes into a stage is up to that stage
        if j > 0:
            (recomputed.add if kind == "SeqBlockFn" else recomputed.discard)(segments[j]["first"] - 1)
    return seconds, sorted(recomputed) if runs else None, max(forwards)


# --- torch ----------------------------------------------------------------------------------------
def load_knapsacks():
    """torch's functions greedy_knapsack and ilp_knapsack, read from their file."""
    spec = importlib.util.find_spec("torch")
    if spec is None:
        return None
    path = spec.submodule_search_locations[0] + "/_functorch/_activation_checkpointing/knapsack.py"
    saved = sys.modules.get("torch")
    sys.modules["torch"] = types.ModuleType("torch")  # these two do not use it
    try:
        file_spec = importlib.util.spec_from_file_location("knapsack", path)
        module = importlib.util.module_from_spec(file_spec)
        file_spec.loader.exec_module(module)
    except (OSError, AttributeError) as why:
        print(f"torch's knapsacks are left out: {why}")
        return None
    finally:
        sys.modules.pop("torch")
        if saved is not None:
            sys.modules["torch"] = saved
    return module


def knapsack_plan(knapsack, activations, budget):
    ids = [k for k, a in enumerate(activations) if a["open"] and a["read"]]
    fixed = sum(a["bytes"] for a in activations if a["read"] and not a["open"])
    _, _, again = knapsack([float(activations[k]["bytes"]) for k in ids],
                           [activations[k]["seconds"] for k in ids], float(max(budget - fixed, 0)))
    # What nobody reads is made again on the way to what is read.
    unread = [k for k, a in enumerate(activations) if a["open"] and not a["read"]]
    return sorted([ids[i] for i in again] + unread)


def fitting_knapsack(options, layers, knapsack, activations, budget):
    """The plan for the largest share of the budget, in steps of 2 per cent, whose peak is within it."""
    plans = [knapsack_plan(knapsack, activations, budget * share / 50) for share in range(51)]
    for plan, cost in reversed(list(zip(plans, evaluated(options, layers, plans)))):
        if cost["peak_bytes"] <= budget:
            return plan, cost
    return None


# --- the table --------------------------------------------------------------------------------------
def compare(options, layers, rotor, ilp, knapsacks, figures):
    data = call(options, layers, "--budgets", options.budgets)
    retain = data["retain_seconds"]

    def show(budget, name, plan_seconds, seconds, peak, note=""):
        share = 100 * budget / data["retain_bytes"]
        figures.append({"layers": layers, "budget": share, "planner": name, "plan_seconds": plan_seconds,
                        "over_retain": seconds / retain if seconds else None,
                        "peak_of_budget": peak / budget if peak else None, "note": note})
        took = f"{1e3 * plan_seconds:9.1f}" if plan_seconds is not None else " " * 9
        over = f"{seconds / retain:9.4f}" if seconds else f"{'none':>9}"
        used = f"{100 * peak / budget:7.1f} %" if peak else " " * 9
        if peak and peak > budget:
            note = "VIOLATED" + (", " + note if note else "")
        print(f"{layers:6} {share:5.0f} % {name:22} {took} {over} {used}  {note}", flush=True)

    for own, looped in zip(data["plans"], data["plans_with_loops"]):
        budget = own["budget"]
        for name, plan in ("ours", own), ("ours, with loops", looped):
            show(budget, name, plan["plan_seconds"], plan.get("seconds"), plan.get("peak_bytes"),
                 f"gap {100 * plan['gap']:.2f} %" if "gap" in plan else "")
        if rotor:
            start = time.process_time()
            found = rotor_plan(rotor, data["segments"], budget, options.units)
            took = time.process_time() - start
            if found is None:
                show(budget, "rotor", took, None, None)
            else:
                seconds, plan, most = found
                if plan is None:
                    show(budget, "rotor", took, retain + seconds, None, f"up to {most} forwards of a stage")
                else:
                    cost = evaluated(options, layers, [plan])[0]
                    show(budget, "rotor", took, cost["seconds"], cost["peak_bytes"],
                         f"{(retain + seconds) / retain:.4f} by itself")
        if ilp and layers <= options.hilp_layers:
            found = hilp.plan(ilp, data["segments"], budget, options.hilp_seconds, 2e-3)
            note = "" if found["proven"] else "stopped"
            if found["seconds"] is None:
                show(budget, "H-ILP", found["plan_seconds"], None, None, note)
            elif found["recomputed"] is None:
                show(budget, "H-ILP", found["plan_seconds"], retain + found["seconds"], None,
                     f"up to {found['most']} forwards of a stage " + note)
            else:
                cost = evaluated(options, layers, [found["recomputed"]])[0]
                show(budget, "H-ILP", found["plan_seconds"], cost["seconds"], cost["peak_bytes"],
                     f"{(retain + found['seconds']) / retain:.4f} by itself " + note)
        if knapsacks:
            for name in ("greedy", "ilp"):
                knapsack = getattr(knapsacks, name + "_knapsack")
                start = time.process_time()
                plan = knapsack_plan(knapsack, data["activations"], budget)
                took = time.process_time() - start
                cost = evaluated(options, layers, [plan])[0]
                show(budget, f"torch {name}, as told", took, cost["seconds"], cost["peak_bytes"])
                fitting = fitting_knapsack(options, layers, knapsack, data["activations"], budget)
                show(budget, f"torch {name}, to fit", None, *((fitting[1]["seconds"],
                     fitting[1]["peak_bytes"]) if fitting else (None, None)))


def main():
    options = parse_options()
    rotor, knapsacks = load_rotor(), load_knapsacks()
    ilp = hilp.load()
    for found, package in ((rotor or ilp, "rockmate"), (knapsacks, "torch")):
        print(f"{package} {importlib.metadata.version(package)}" if found else f"without {package}")
    print(f"{'layers':>6} {'budget':>7} {'planner':22} {'plan, ms':>9} {'time':>9} {'peak':>9}")
    figures = []
    for layers in options.layers.split(","):
        compare(options, int(layers), rotor, ilp, knapsacks, figures)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(figures, file, indent=1)


main()
