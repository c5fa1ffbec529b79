# SPDX-License-Identifier: MIT
"""H-ILP of rockmate (the integer program of Checkmate with options for each block), on our segments.

rockmate builds that program for a graph of its own. Such a graph is made here by hand: for each segment a
forward and a backward, between them the loss; a value and a gradient between neighbours. A segment's
options are our lossless patterns of it, and a forward may also keep nothing ("fast forward").

Its program counts what lives after a node has run; what a node needs beyond that, and beyond what it
deletes, is its overhead. Our patterns say how many bytes live at the worst instruction of forward and of both
passes, so overheads are what is left of that: they may be below zero, where a gradient is written over another.
"""
import importlib
import importlib.util
import sys
import tempfile
import time
import types


def part_of_rockmate(name):
    """Module `name` of rockmate without the packages around it, which want torch and more; None if rockmate is
    not installed."""
    if "rockmate" not in sys.modules:
        spec = importlib.util.find_spec("rockmate")
        if spec is None:
            return None
        sys.modules["rockmate"] = types.ModuleType("rockmate")
        sys.modules["rockmate"].__path__ = list(spec.submodule_search_locations)
    full = "rockmate"
    for package in name.split(".")[:-1]:
        outer, full = full, f"{full}.{package}"
        if full not in sys.modules:
            sys.modules[full] = types.ModuleType(full)
            sys.modules[full].__path__ = [sys.modules[outer].__path__[0] + "/" + package]
    return importlib.import_module(f"rockmate.{name}")


def load():
    """The module of rockmate with the program; None if it is not there, or in words does not load."""
    # What it names of rkgb is for graphs that are traced. (The wheel of rkgb 2.0.0 has not even got its folders
    # core and lowlevel, so neither package can be imported as it is.)
    for name in ("rkgb", "rkgb.core", "rkgb.core.hierarchical"):
        sys.modules.setdefault(name, types.ModuleType(name))
    sys.modules["rkgb.core.hierarchical"].HierarchicalGraph = object
    try:
        importlib.import_module("highspy").Highs()  # says which one it is
        return part_of_rockmate("solvers.ilp.ilp_model")
    except ImportError as why:
        print(f"H-ILP is left out: {why}")
        return None


class Thing:
    """A node, a value or a cluster of the graph: what is in it, compared by identity."""

    def __init__(self, **parts):
        self.__dict__.update(parts)


class Cluster(Thing):
    def translate_representee_node(self, anode):
        return anode


def value(name, size):
    return Thing(mem=size, anode=Thing(name=name), deps=set(), users=set())


def graph_of(segments):
    """rockmate's graph, and the value that comes into each segment but the first."""
    outputs = [s["input_bytes"] for s in segments[1:]] + [0]
    data = [value(f"x{j + 1}", size) for j, size in enumerate(outputs)]
    gradients = [value(f"dx{j + 1}", size) for j, size in enumerate(outputs)]
    forwards, backwards = [], []
    for j, (segment, output) in enumerate(zip(segments, outputs)):
        mine = segment["input_bytes"]
        needs = [data[j - 1].anode] if j else []
        schedules = [Thing(fwd_time=segment["forward_seconds"], mem=o["stored"] - mine,
                           fwd_overhead=o["forward_need"] - o["stored"] - output,
                           bwd_time=o["seconds"] + segment["forward_seconds"],  # some time of its own
                           bwd_overhead=o["need"] - 2 * mine - output,
                           fwd_overhead_correction=[], bwd_overhead_correction=[],
                           dep_interfaces_data=needs) for o in segment["options"]]
        cluster = Cluster()
        forwards.append(Thing(name=f"fwd{j}", is_fwd=True, sub_cluster=cluster, list_sched=schedules,
                              ff_time=segment["forward_seconds"], ff_overhead=segment["forward_bytes"],
                              deps={data[j - 1]} if j else set(), users={data[j]}))
        backwards.append(Thing(name=f"bwd{j}", is_fwd=False, sub_cluster=cluster, ff_time=0, ff_overhead=0,
                               deps={gradients[j]}, users={gradients[j - 1]} if j else set()))
    loss = Thing(name="Loss", is_fwd=True, sub_cluster=None, ff_time=0, ff_overhead=0, deps={data[-1]},
                 users={gradients[-1]})
    nodes = forwards + [loss] + backwards[::-1]
    for node in nodes:
        for dep in node.deps:
            dep.users.add(node)
        for made in node.users:
            made.deps.add(node)
    return Thing(list_HCNs=nodes, list_HANs=data + gradients, input_grad_HANs=set(), input_data_HANs=set()), data


def solve(problem, seconds_limit, gap):
    """Values for the variables of a program of PuLP, by HiGHS: whether there are any, and whether it is proven
    that these are within `gap` of the best, or that there are none."""
    import highspy
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/program.mps"
        problem.writeMPS(path)
        highs = highspy.Highs()
        highs.setOptionValue("output_flag", False)
        highs.readModel(path)
    highs.setOptionValue("time_limit", float(seconds_limit))
    highs.setOptionValue("mip_rel_gap", gap)
    highs.run()
    status = highs.getModelStatus()
    proven = status in (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kInfeasible)
    info = highs.getInfo()
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return False, proven
    values = dict(zip(highs.getLp().col_names_, highs.getSolution().col_value))
    for variable in problem.variables():
        variable.varValue = values.get(variable.name, 0.0)
    return True, proven


def plan(module, segments, budget, seconds_limit, gap):
    """A dictionary: seconds beyond retaining, the activations recomputed (None if our scheduler cannot run
    that: something is made more than twice), the most forwards of a segment, seconds that it took, and
    whether it is proven to be within `gap` of the best; None if nothing was found in time."""
    graph, data = graph_of(segments)
    start = time.process_time()
    program = module.ModelPULP(graph, peak_budget=budget, gcd=2 ** 20)
    program.build()
    found, proven = solve(program.md, seconds_limit, gap)
    took = time.process_time() - start
    if not found:
        return {"plan_seconds": took, "proven": proven, "seconds": None}

    def runs(variable):
        return (variable if isinstance(variable, (int, float)) else variable.value() or 0) > 0.5

    count = len(segments)
    kinds = [[] for _ in segments]  # of its forwards, in order: an option, or None
    options = [None] * count
    for t in range(program.T):
        for k in program.krange(t):
            for o in range(program.nComp[k]):
                if not runs(program.Comp[t, k, o]):
                    continue
                if k < count:
                    kinds[k].append(o if o < program.nSched[k] else None)
                elif k > count:
                    options[2 * count - k] = o
    seconds = sum((len(made) - 1) * s["forward_seconds"] + s["options"][o]["seconds"]
                  for made, o, s in zip(kinds, options, segments))
    recomputed, possible = set(), max(map(len, kinds)) <= 2
    for j, segment in enumerate(segments):
        mine = segment["options"][options[j]]["recomputed"]
        if kinds[j][0] is None:
            possible = possible and not mine
            recomputed.update(range(segment["first"], segment["last"] + 1))
        else:
            recomputed.update(mine)
    for j in range(1, count):  # what comes into a segment is kept from the loss to its backward, or not
        kept = all(runs(program.AliveT[t, j - 1]) for t in range(count + 1, 2 * count - j + 1))
        (recomputed.discard if kept else recomputed.add)(segments[j]["first"] - 1)
    return {"plan_seconds": took, "proven": proven, "seconds": seconds, "recomputed": sorted(recomputed) if possible else None,
            "most": max(map(len, kinds))}
