#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Breaks lines of the library, one at a time, and sees whether a test notices.

    python3 tools/mutations.py [-j JOBS] [WORD...]     all, or those in whose lines all words occur
    python3 tools/mutations.py --check                 only sees that texts and tests are there, as CI does

A mutation names a header, a text that stands in it once, what takes its place, and the test source that must
fail or not compile. That source alone is compiled, at -O0, against a changed copy of the repository; if it is
the test of an example (a script), that example, at -O1.
Mutations that survive are promises that no test guards: write the test first, then leave the mutation here.
One whose text is no longer there is an error too: follow the code. Takes minutes, so CI does not run it.
"""
import argparse
import concurrent.futures
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent

# header below include/adacc, or a source of the examples; text; what takes its place; test source below
# tests; what is broken
MUTATIONS = [
    ("core/random.hpp", "rounds = 10", "rounds = 9", "core/random_test.cpp", "Philox has ten rounds"),
    ("core/bfloat16.hpp", "0x7FFF + (bits >> 16 & 1)", "0x8000", "core/bfloat16_test.cpp",
     "rounding to bfloat16 takes the even one of two"),
    ("core/float_parts.hpp", "(more || (whole & 1) != 0)", "(whole & 1) != 0", "core/numbers_test.cpp",
     "a decimal above the middle of two numbers is the upper one"),
    ("core/float_parts.hpp", "parts.mantissa == hidden && biased > 1", "false", "core/numbers_test.cpp",
     "below a power of two numbers are denser"),
    ("core/number_text.hpp", "left.compare_upper() >= (even ? 0 : 1)", "left.compare_upper() >= 1",
     "core/numbers_test.cpp", "the middle between two numbers belongs to the even one"),
    ("core/read_number.hpp", "more = more || c != '0';", "", "core/numbers_test.cpp",
     "digits behind the 780th count"),
    ("core/no_memory.hpp", "catch (const std::bad_alloc&)", "catch (const int&)", "alloc/no_memory_test.cpp",
     "memory that cannot be had is an error value"),
    ("io/weights/pretrained.hpp", "if (layers > file.size()) {", "if (false) {", "io/models_test.cpp",
     "more layers than tensors are one line"),
    ("io/weights/pretrained.hpp", "found = problems_of(file, expected);", "", "io/gpt2_safetensors_test.cpp",
     "a config.json is compared with the tensors"),
    ("io/weights/safetensors.hpp", "return alias == metadata_.end() ? nullptr : named(alias->second);", "return nullptr;",
     "io/gpt2_safetensors_test.cpp", "a tensor is found by its other names"),
    ("train/save.hpp", "!read_hexadecimal(digits, norm)", "!read_number(digits, norm)", "train/updates_test.cpp",
     "norms of earlier versions are read"),
    ("codec/quant/quantize.hpp", "(magnitude - threshold) >> 23", "(magnitude - threshold) >> 24",
     "codec/quant_bytes_test.cpp", "outlier levels are doublings"),
    ("codec/quant/quantize.hpp", "const float limit = static_cast<float>(ratio) *",
     "const float limit = 1.0001F * static_cast<float>(ratio) *", "codec/quant_bytes_test.cpp",
     "the threshold of outliers"),
    ("codec/quant/layout.hpp", "return col / O.group * rows + row;",
     "return col / O.group * rows + (rows - 1 - row);", "codec/quant_bytes_test.cpp",
     "groups of rows are numbered down their columns"),
    ("codec/quant/quantize.hpp", "distance <= 2 * scale", "distance <= 8 * scale",
     "codec/quant_bytes_test.cpp", "which elements are sampled for noise"),
    ("codec/quant/quantize.hpp", "bfloat16_above(scale > smallest_scale",
     "to_bfloat16(scale > smallest_scale", "codec/quant_round_trip_test.cpp",
     "scales are rounded up, so that no element is clipped"),
    ("codec/quant/block/encode.hpp", "me == 1 ? s.flagged - s.used", "me == 1 ? s.used",
     "codec/cuda_algorithm_columns_test.cpp", "a block of threads that is alone writes the header's counts"),
    ("codec/quant/block/encode.hpp", "return O.group != whole_row && format.whole.tiles > 1;",
     "return O.group != whole_row && format.whole.tiles > 2;", "codec/cuda_algorithm_columns_test.cpp",
     "two tiles add to one header"),
    ("codec/quant/block/encode.hpp", "static_cast<std::uint32_t>(tile.format->tiles));",
     "static_cast<std::uint32_t>(tile.format->tiles) - 1);", "codec/cuda_algorithm_columns_test.cpp",
     "the last tile of 64 rows completes their header"),
    ("program/passes/loops.hpp", "!(s > 0 && again(s - 1)) && !again(s + 1)", "!again(s + 1)", "plan/pairs_test.cpp",
     "take to the byte"),
    ("program/passes/loops.hpp", "worst.looped < apart", "true", "plan/pairs_test.cpp", "take to the byte"),
    ("plan/chain/patterns.hpp", "out.beside = out.stored + begun_with(joint, schedule, reader)", "out.beside = out.stored",
     "plan/pairs_test.cpp", "take to the byte"),
    ("program/passes/packed.hpp", "timeline.born(i, [&](std::size_t b) { spare.remove(place(b), room(b)); });", "static_cast<void>(i);",
     "program/packed_test.cpp", "what is born later in a loop is in the way of packed weights"),
    ("program/passes/packed.hpp", "if (i > first) timeline.born(i, [&](std::size_t b) { now.remove(place(b), room(b)); });", "",
     "program/packed_test.cpp", "packed weights take what is free alone"),
    ("program/free_list.hpp", "if (hole.end <= offset || hole.begin == hole.end) {", "if (hole.end < offset + bytes) {",
     "program/packed_test.cpp", "what is partly gone can be removed"),
    ("step/bound_program.hpp", "call.packed_holds = part > 0;", "call.packed_holds = true;", "step/loops_test.cpp",
     "the first part packs weights"),
    ("layer/math/bf16/definition.hpp", "0x1p-126 - 0x1p-151", "0x1p-126", "layer/bf16_gemm_test.cpp",
     "a sum is denormal or not after its rounding"),
    ("layer/math/bf16/widened.hpp", "mode(FloatMode::without_subnormals())", "mode", "layer/bf16_gemm_test.cpp",
     "levels without an instruction for pairs read and write denormal numbers as zeros"),
    ("layer/math/bf16/plain.hpp", "a.highest() + b.highest() + 2 < beyond", "true", "layer/bf16_gemm_test.cpp",
     "products beyond fp32's range are multiplied and added as one"),
    ("layer/math/bf16_gemm.hpp", "keeps && block_k < k ? 1 : Kernels::panels_at_once", "Kernels::panels_at_once",
     "layer/bf16_gemm_test.cpp", "kept panels that are read in parts begin in their own places"),
    ("layer/math/gemm.hpp", "kept.data + j0 * k + round_up(cols, Blocks::width) * p0", "kept.data + j0 * k", "layer/gemm_test.cpp",
     "each block of a packed weight has its own place"),
    ("train/evolving.hpp", "scale(profile, times);", "static_cast<void>(times);", "train/training_test.cpp",
     "estimates that nobody could measure are scaled to what steps take"),
    ("evolve/evolution.hpp", "follow_times(step, ChangeReason::times_drifted, update);",
     "replan_if_faster(step, ChangeReason::times_drifted, update);", "train/training_test.cpp",
     "a plan that stays takes another time under other costs"),
    ("step/step.hpp", "inst.op == Op::encode && at_.program.plan[inst.node].codec()->draws_numbers", "false",
     "step/step_test.cpp", "a stochastic codec makes a step draw numbers"),
    ("step/step.hpp", "    note(replay());\n", "    static_cast<void>(replay());\n", "step/step_test.cpp",
     "a recording that cannot be launched is the step's error"),
    ("testing/layer_check.hpp", "++cpu.key.step;", "", "testing/gradient_check_test.cpp",
     "layers that draw numbers say so"),
    ("program/liveness.hpp", "changes[buffer.last + 1] -= bytes", "changes[buffer.last] -= bytes",
     "program/layout_test.cpp", "a buffer lives at the last instruction that names it"),
    ("program/exact.hpp", "same = same && exact[static_cast<std::size_t>(source)];",
     "static_cast<void>(source);", "program/exact_test.cpp",
     "what is recomputed from a lossy activation is not exact"),
    ("program/passes/transfers.hpp", "out.buffers[index(buffer)].last = at;",
     "for (int i = 0; i < at; ++i) if (out.instructions[index(i)].op == Op::write_begin && "
     "out.instructions[index(i)].transfer == transfer[event.item]) out.buffers[index(buffer)].last = i;",
     "step/offload_test.cpp", "what leaves lives until its write has been waited for"),
    ("plan/offload.hpp", "compute + 2 * sent *", "compute + 20 * sent *", "plan/offload_test.cpp",
     "no plan that sends something is faster than the bound"),
    ("plan/offload.hpp", "const double dragged = compute + 2 * sent * request_.link.begin_per_byte;", "const double dragged = compute;",
     "plan/offload_test.cpp", "what transfers take from computation is in the bound"),
    ("cost/measure_drag.hpp", "drag += longer / travelled / 2;", "drag += longer / travelled;", "cost/link_test.cpp",
     "what transfers take from computation is the mean of both directions"),
    ("step/cursor.hpp", "if (slice.stalled) times_[at_.instruction] = -decayed(known);", "", "step/cursor_test.cpp",
     "a time that stalls a slice decays"),
    ("step/cursor.hpp", "if (time < 0 && ticks < decayed(-time)) time = -decayed(-time);", "if (time < 0) time = time;",
     "step/cursor_test.cpp", "a time that is doubted decays with each part that takes less"),
    ("model/graph.hpp", "count(node.output_bytes, 4);", "count(node.output_bytes, 1);", "model/graph_check_test.cpp",
     "values, blobs and gradients are counted"),
    ("store/transfers_under_way.hpp", "mine.stalled = !store_.done(transfer);", "mine.stalled = false;",
     "cost/stall_test.cpp", "stalls are measured"),
    ("adapter/torch/step_memory.hpp", "waiting_bytes(id, choice) >= record_.least_sent_bytes &&", "",
     "torch/step_plan_test.cpp", "what waits in less than a page is not planned to be sent"),
    ("adapter/torch/step_fit.hpp", "fits = fits && size_of(*base[i]) != size_of(*one);", "", "torch/step_fit_test.cpp",
     "a prediction is made of three sizes"),
    ("adapter/torch/step_fit.hpp", "most = std::max(most, record.events[e].peak);", "most = record.events[e].peak;",
     "torch/step_fit_test.cpp", "an event that is taken out leaves its peak"),
    ("cost/link.hpp", "free = (now > free ? now : free) + seconds", "free = now + seconds",
     "cost/stall_test.cpp", "one transfer follows the other over the link"),
    ("evolve/drift.hpp", "const double limit = 1 + options.drift;", "const double limit = 1;",
     "evolve/link_watch_test.cpp", "a steady link that wavers is no drift"),
    ("evolve/link_watch.hpp", "return stalls_ ? over > 0 : any;", "return over > 0;",
     "evolve/link_watch_test.cpp", "a link that got faster is seen to be"),
    ("evolve/evolution.hpp", "    request_.link = link;", "",
     "train/offload_test.cpp", "a link that fell is planned with as it is"),
    ("train/training_set_up.hpp", "training.store_ = store;", "",
     "train/offload_test.cpp", "a plan made by hand is lent a store"),
    ("train/training_set_up.hpp", "if (store && store == moment_store.store)", "if (false)",
     "train/offload_test.cpp", "activations and moments share no store"),
    ("train/evolving.hpp", "evolution_.wanted_request(),", "evolution_.request(),", "train/save_test.cpp",
     "a budget that was asked for before load() holds"),
    ("train/evolving.hpp",
     "      look_at_link(training, boundary);", "      return;",
     "train/offload_test.cpp", "a store that became fast is used"),
    ("evolve/evolution.hpp",
     "if (request.link.exists() && then.link.exists()) evolution.request_.link = then.link;", "",
     "train/offload_test.cpp", "a resumed run knows the link as it was found to be"),
    ("stash/model.hpp", "entry(id).stages.push_back(stage);", "", "stash/kernel_test.cpp",
     "who reads an activation follows from what kernels' backwards read"),
    ("stash/model.hpp", "if (entry(id).stage > stage)", "if (false)", "stash/kernel_test.cpp",
     "a backward that would run before that of what its kernel reads is refused"),
    ("plan/without_store.hpp", "segments(request, proposals).search_below(most_seconds);",
     "segments(request, proposals).search();", "plan/search_below_test.cpp",
     "a search for what is proven slower ends early"),
    ("plan/chain/planner.hpp", "tighter, time.deadline());", "tighter, Deadline());", "deadlines/planning_test.cpp",
     "the search for the smallest plan has the deadline of all"),
    ("program/program.hpp", "if (sixteenths < 16 && time.look())", "if (false)", "deadlines/planning_test.cpp",
     "a layout with transfers is given up when time is up"),
    ("plan/pipeline/stage_plans.hpp", "if (late()) return {};", "", "deadlines/planning_test.cpp",
     "a stage has few plans once time is up"),
    ("train/freeze_to_fit.hpp", "if (stop()) return false;", "", "deadlines/planning_test.cpp",
     "no more sets of layers are planned for once time is up"),
    ("stash/check.hpp", "if (const Error why = stash->check_whole_step()) return why;", "",
     "testing/checked_stash_test.cpp", "a step that does half of its work is none to check"),
    ("io/profile_text.hpp", "if (any_threads && key == \"threads\") continue;", "", "io/profile_text_test.cpp",
     "times of any number of threads are taken if that is wanted"),
    ("ranks/pipeline/replan.hpp", "request.in_flight = in_flight();", "", "ranks/pipeline_test.cpp",
     "a stage's new plan fits for all steps that it has in flight"),
    ("program/scheduler.hpp", "if (!activation.wanted) activation.value = -1;", "", "plan/nested_test.cpp",
     "values recomputed on the way are dropped"),
    ("program/scheduler.hpp", "state(id).wanted |= policy(id).runs() <= least;",
     "state(id).wanted |= policy(id).runs() < least;", "plan/nested_test.cpp", "a run leaves values to go on from"),
    ("program/scheduler.hpp", "if (source != step_input && state(source).last_in_run >= 0)\n          state(source)",
     "if (false)\n          state(source)", "step/nested_test.cpp", "a run keeps values until their last reader in the run"),
    ("plan/chain/nested.hpp", "if (high > end - 1) high = end - 1;", "low = high = end - 1;", "plan/nested_test.cpp",
     "nested plans run as few forwards as revolve"),
    ("plan/chain/nested_table.hpp", "rest(first, k - 1, memory), k);", "rest(first, k - 1, left), k);",
     "plan/nested_test.cpp", "segments in front get back the memory of those behind"),
    ("program/scheduler.hpp", "!(node.is_backward_stage() && touches_lasting_gradients(k))", "true", "stash/carried_test.cpp",
     "a stage that reads nothing begins and ends what it carries"),
    ("plan/chain/cuts.hpp", "(stage ? first_stage : first)", "first", "plan/stash_graphs_test.cpp",
     "segments know the stages that carry a gradient"),
    ("plan/chain/cuts.hpp", "(stage ? stage_end : last + 1)", "last + 1", "plan/stash_graphs_test.cpp",
     "segments know where a gradient that is carried goes on behind them"),
    ("model/segments.hpp", "(both && !can_share(k))", "both", "plan/shared_cuts_test.cpp",
     "an activation that both sides read in backward is a cut"),
    ("plan/chain/patterns.hpp", "if (all || in_flight_ > 1", "if (all", "plan/shared_cuts_test.cpp",
     "what waits in its place for good is not counted beside it"),
    ("plan/chain/cuts.hpp", "if (open(first, k) > most_open_) split(first, k);", "", "plan/outside_cuts_test.cpp",
     "several activations may pass a cut"),
    ("plan/chain/planner.hpp", "lower(bound_, larger(bound_of_unlisted(), 0.0));", "", "plan/outside_cuts_test.cpp",
     "bounds allow for plans that recompute what segments retain"),
    ("plan/chain/patterns.hpp", "while (product() > most_ && combinations(keeps, recomputes) > most_) thin_out();",
     "while (product() > most_) thin_out();", "plan/trainer_gaps_test.cpp",
     "only patterns that differ are too many"),
    ("plan/chain/planner.hpp", "limits.budget = static_cast<SignedBytes>(share * static_cast<double>(limits.budget));",
     "", "plan/trainer_gaps_test.cpp", "plans of fewer live bytes are looked for if layouts have gaps"),
    ("plan/chain/segments.hpp", "if (a.begun != b.begun) return a.begun < b.begun;", "return false;",
     "plan/trainer_gaps_test.cpp", "the order in which carried gradients were told does not matter"),
    ("plan/chain/patterns.hpp", "node < 0 ? gradient.complete < 0 : gradient.begun >= node", "false",
     "plan/stash_graphs_test.cpp", "what is carried is stored by no segment"),
    ("model/graph.hpp", "all.mix(static_cast<std::uint64_t>(gradient.complete));", "", "stash/carried_test.cpp",
     "plans of a stash fit what it carries"),
    ("stash/calls.hpp", "at_.stage == of.last_stage && at_.left", "false", "stash/carried_test.cpp",
     "what is carried is gone when its last stage is left"),
    ("stash/calls.hpp", "|| at_.stage > of.first_stage)", ")", "stash/carried_test.cpp",
     "what is carried is not there before its first stage"),
    ("stash/calls.hpp", "if (reads(stage, id))", "if (false)", "stash/tape_test.cpp",
     "an activation saved by a backward to come is not taken"),
    ("stash/calls.hpp", "last >= 0 && last < at_.stage", "false", "stash/tape_test.cpp",
     "nor one from which a plan may recompute another later"),
    ("stash/check.hpp", "copy.is_taken || std::memcmp(", "std::memcmp(", "stash/tape_test.cpp",
     "what was taken may be written"),
    ("stash/tape_description.hpp", "input.readers == 1 && !input.saved", "input.readers == 1", "stash/tape_outputs_test.cpp",
     "an input that backward reads is copied"),
    ("stash/tape_description.hpp", "activations_[at(entry.call.writes[i].in_place_of)].overwritten = entry.output(i);", "break;",
     "stash/tape_outputs_test.cpp", "an output in place takes no memory"),
    ("stash/tape.hpp", "if (group.last < next_) return {};", "return {};", "stash/tape_outputs_test.cpp",
     "forward does not end within a group"),
    ("stash/tape_group.hpp", "if (from.data() != out[i].data())", "if (false)", "stash/tape_outputs_test.cpp",
     "an output begins as its input"),
    ("stash/tape_group.hpp", "const Shape whole(now.extents[output(i)].bytes);",
     "const Shape whole(out[i].size() * sizeof(T));", "stash/tape_outputs_test.cpp", "all bytes are zeroed"),
    ("stash/tape.hpp", "if (size->items == items) return use(*size), Error();", "if (false) return {};",
     "stash/tape_sizes_test.cpp", "a size seen before is not planned again"),
    ("stash/tape.hpp", "    forget_sizes();\n    return {};", "    return {};", "stash/tape_sizes_test.cpp",
     "plans of sizes follow the budget"),
    ("plan/proposals.hpp", "i < kinds.size() && i < most_kinds", "i < 0", "stash/tape_test.cpp",
     "a budget's error names the bytes that limit it"),
    ("stash/registry.hpp", "count() + said.last_stage, said.bytes()", "count() + said.first_stage, said.bytes()",
     "stash/stash_test.cpp", "what stages carry keeps its bytes until the last of them"),
    ("stash/check.hpp", "    end_carried(stage - 1);\n", "", "testing/checked_stash_test.cpp",
     "what is carried turns to NaN when its last stage is left"),
    ("stash/check.hpp", "if (gradient.is_given || is_poison(gradient.memory)) continue;", "continue;",
     "testing/checked_stash_test.cpp", "late writes to what was carried are seen"),
    ("stash/stash.hpp", "void drain() { static_cast<void>(transfers_.finish()); }", "void drain() {}",
     "stash/stash_test.cpp", "a stash that gives up a step waits for its transfers"),
    ("stash/stash.hpp", "(id != now_.step.next ||", "(false ||",
     "stash/stash_test.cpp", "what leaves the stash makes room for those put later alone"),
    ("stash/stash.hpp", "return now_.step.failed = Error::say(", "return Error::say(",
     "stash/stash_test.cpp", "a stash whose transfer failed does not go on"),
    ("stash/calls.hpp", "!(stage == 0 && left)", "true", "stash/evolving_test.cpp",
     "a step of a stash ends with the last leave"),
    ("stash/stash.hpp", "make_again(inst);\n    }\n    work_.end(now_.at, start);", "make_again(inst);\n    }",
     "stash/evolving_test.cpp", "what a stash computes again is timed"),
    ("stash/evolving_stash.hpp", "if (in_step())", "if (false)", "stash/evolving_test.cpp",
     "a stash's budget does not change inside of a step"),
    ("stash/evolving_stash.hpp", "evolution_.limit_budget(arena.size());", "static_cast<void>(0);",
     "stash/evolving_test.cpp", "plans of a stash keep to the memory that is bound"),
    ("evolve/evolution.hpp", "    undo();\n    update = {};", "    update = {};", "stash/evolving_test.cpp",
     "a stash that cannot go over to a plan keeps the one before, and its budget"),
    ("stash/evolving_stash.hpp", "    work_ = {};\n", "", "stash/evolving_test.cpp",
     "a drift of a stash's times is measured once"),
    ("stash/evolving_stash.hpp", "(now - started_) / 100", "(now - started_) / 50",
     "stash/evolving_test.cpp", "measuring a stash again takes a hundredth of the time"),
    ("evolve/work_watch.hpp", "const std::size_t kind = kind_of(program.graph, list[i]);",
     "const std::size_t kind = 0;", "stash/evolving_test.cpp",
     "each kind of a stash's work is watched by itself"),
    ("evolve/work_watch.hpp", "graph.node(graph.maker_of(inst.node)).layer", "graph.node(inst.node).layer",
     "stash/evolving_test.cpp", "what one callable makes together is one kind of work"),
    ("stash/stash.hpp", "          why = watched_.look(*now_.context, graph(), inst.node, by, x, blob, errors,\n"
     "                              declining_.judges());\n",
     "", "stash/evolving_test.cpp", "a stash that is watched keeps what codecs saw"),
    ("stash/evolving_stash.hpp",
     "    evolution_.observe_transfers(program().schedule, Plain::transfer_times());\n", "",
     "stash/evolving_test.cpp", "a stash follows the link to its store"),
    ("step/step.hpp", "context.key.activation = static_cast<std::uint32_t>(graph().first_node + inst.node);",
     "context.key.activation = 0;", "step/gpt_test.cpp",
     "two dropouts of a network draw different numbers"),
    ("step/step.hpp", "if (error && !error_) error_ = error;", "if (error) error_ = error;",
     "step/step_test.cpp", "the first error of a codec is reported"),
    ("step/step.hpp", "if (!error_ || updates_.even_if_failed()) note", "note",
     "train/offload_failure_test.cpp", "nothing is updated behind a transfer that failed"),
    ("plan/planner.hpp", "  planner.note_unused();\n", "", "plan/offload_test.cpp",
     "a store that is of no use is not passed over in silence"),
    ("step/step.hpp", "if (active_) note(transfers_.finish());", "", "step/offload_slices_test.cpp",
     "a step that is given up waits for its transfers"),
    ("step/step.hpp", "~Step() { abandon(); }", "~Step() {}", "step/offload_slices_test.cpp",
     "a step that goes waits for its transfers"),
    ("step/step.hpp", "    abandon();\n    const std::uint64_t begun", "    const std::uint64_t begun",
     "step/offload_slices_test.cpp", "a step that another replaces waits for its transfers"),
    ("step/cursor.hpp", "if (!step_->ready(at_.instruction)) {", "if (false) {",
     "step/offload_slices_test.cpp", "a slice with a deadline ends where it would wait"),
    ("step/cursor.hpp", "slice.waiting = !step_->ready(at_.instruction);", "slice.waiting = false;",
     "step/offload_slices_test.cpp", "a slice of some parts ends where it would wait"),
    ("step/step.hpp", "    error_ = {};\n    declining_", "    declining_", "step/offload_test.cpp",
     "a step that failed can run again"),
    ("ranks/data_parallel/state.hpp", "even_if_failed = true", "even_if_failed = false",
     "ranks/data_parallel_test.cpp", "a rank whose step failed sums on with the others"),
    ("ranks/farewell.hpp", "if ((end.alone = beside.wait(0))) return end;", "end.alone = beside.wait(0);",
     "ranks/farewell_test.cpp", "behind a group that broke beside, nobody waits for the limit a second time"),
    ("step/arena.hpp", "if (use == uses_) busy_ = false;", "busy_ = false;", "step/cursor_test.cpp",
     "an old use does not end a new one"),
    ("step/memory_check.hpp", "return begin < end ? end - begin : 0;",
     "return begin + 1 < end ? end - begin : 0;", "step/memory_test.cpp",
     "blocks that overlap by one byte are refused"),
    ("stash/stash.hpp", "now_.context->key.activation = static_cast<std::uint32_t>(inst.node);\n        const Bytes",
     "now_.context->key.activation = 0;\n        const Bytes", "stash/stash_test.cpp",
     "two stochastic codecs of a stash draw different numbers"),
    ("layer/gelu.hpp", "0.044715L", "0.04472L", "layer/activations_test.cpp", "GELU's constant"),
    ("optimizer/adamw.hpp", "1 / (1 - std::pow(b2, steps))", "1 / (1 - std::pow(b1, steps))",
     "optimizer/adamw_test.cpp", "the second moment's correction"),
    ("optimizer/fixed_updates.hpp", ".with_activation(key)", ".with_activation(0)",
     "train/fixed_training_test.cpp", "random numbers of a device's updates are the parameter's own"),
    ("train/fixed_training.hpp", "1 / counted_batches", "1.0",
     "train/fixed_training_test.cpp", "a device's update takes the mean over micro-batches"),
    ("train/fixed_training.hpp", "if (!why) steps_->learner->divide_by_all(true);", "",
     "train/fixed_training_test.cpp", "a device's micro-batches weigh by counted targets"),
    ("optimizer/gradient_norm.hpp", "clip > 0 && norm > clip", "clip > 0 && norm < clip",
     "optimizer/gradient_norm_test.cpp", "clipping is for large gradients"),
    ("train/training_updates.hpp", "updater_.clip(clip, outcome.grad_norm) / n", "1.0 / n", "train/training_test.cpp",
     "Training::clip has an effect"),
    ("train/training_updates.hpp", "if (!outcome.finite) {", "if (outcome.loss < 0) {",
     "train/training_test.cpp", "no update is made on gradients that are no numbers"),
    ("train/training.hpp", "spoiled_ = !fused();", "spoiled_ = false;", "train/training_test.cpp",
     "what a batch that failed left in the gradients is cleared"),
    ("train/training.hpp", "step.divide_by_all(true);", "step.divide_by_all(false);",
     "ranks/counted_targets_test.cpp", "micro-batches weigh by their counted targets"),
    ("ranks/pipeline/set_up.hpp", "step->divide_by_all(true);", "step->divide_by_all(false);",
     "ranks/counted_targets_test.cpp", "micro-batches of a pipeline weigh by their counted targets"),
    ("ranks/pipeline/pipeline.hpp", "sequences_[slot_of(batch)].to(context_);", "", "ranks/packed_pipeline_test.cpp",
     "micro-batches in flight keep their positions"),
    ("train/training_updates.hpp", "in_step_.scale / counted", "in_step_.scale",
     "ranks/counted_targets_test.cpp", "fused updates divide by the counted share"),
    ("model/class_targets.hpp", "return target_error(loss, id, i, targets.shape(), classes);", "return {};",
     "ranks/counted_targets_test.cpp", "a target that is no class is an error"),
    ("layer/attention.hpp", "*place += start * in_ld;", "*place += 0 * in_ld;", "io/packing_test.cpp",
     "documents attend to themselves alone"),
    ("layer/rotary_embedding.hpp", "cpu.position_of(first_entry + entry, position, shape[1])", "position",
     "io/packing_test.cpp", "angles begin again at each document"),
    ("layer/embedding.hpp", "add_to(1, cpu.position_of(call.part.first + r / time, r % time, time));",
     "add_to(1, r % time);", "io/packing_test.cpp", "gradients of positions go where they came from"),
    ("train/training.hpp", "static_cast<std::uint16_t>(first_batch_ + batches_)", "0", "train/training_test.cpp",
     "micro-batches draw different numbers"),
    ("step/step.hpp", "    context.key = key;\n", "", "train/inference_test.cpp",
     "a forward pass leaves the context's key alone"),
    ("train/forward_only.hpp", "batches_ == 0 ? slope : sum.distance + slope", "slope",
     "ranks/trainers_test.cpp", "slopes of micro-batches are summed"),
    ("train/forward_only.hpp", "pass_ % 2 == 0 ? -1 : 1", "1", "train/inference_test.cpp",
     "parameters go back to where a pass had moved them from"),
    ("train/parameters.hpp", "if (const Error why = fill(numbers)) return why;", "static_cast<void>(fill(numbers));",
     "train/inference_test.cpp", "parameters in bf16 stay if they could not be written"),
    ("train/save.hpp", "context_.key.seed = saved.key.seed;", "", "train/save_test.cpp",
     "a resumed run draws from the stream of the one before"),
    ("train/initialize.hpp", "Purpose::initialization", "Purpose::dropout",
     "train/initialize_test.cpp", "initial parameters have a stream of their own"),
    ("io/checkpoint.hpp", "info.updates = header.updates;",
     "info.updates = header.data_position;", "io/checkpoint_test.cpp",
     "what a checkpoint says of its updates"),
    ("step/step.hpp", "(part > 0 && inst.loop < 0)", "part > 0", "train/bf16_parameters_test.cpp",
     "a loop decodes parameters in bf16 for each part"),
    ("optimizer/update_table.hpp", "RandomHalves random(key, range.begin + range.first + i)",
     "RandomHalves random(key, range.first + i)", "train/bf16_parameters_test.cpp",
     "parameters in bf16 are rounded by where elements are in the parameter"),
    ("optimizer/update_table.hpp", "range.key.with_purpose(Purpose::parameters)", "range.key",
     "train/bf16_parameters_test.cpp", "parameters in bf16 are rounded by a stream of their own"),
    ("model/parameter.hpp", "window_ + first * cols % (alignment / sizeof(T))", "window_",
     "train/bf16_parameters_test.cpp", "decoded rows are aligned as they would be in full"),
    ("plan/constant.hpp", "found.found && found.arena_bytes <= request.budget_bytes && !examine", "found.found && !check",
     "plan/constant_test.cpp", "the compiler's plan is held against the budget"),
    ("plan/constant.hpp", "cost.live_bytes <= align_up(request.budget_bytes)", "true", "plan/constant_test.cpp",
     "the compiler's plan is held against the budget"),
    ("policy/form.hpp", "<< 1 | (travels() ? 1U : 0U)", "<< 1", "io/plan_text_test.cpp",
     "every form has a number of its own"),
    ("policy/form.hpp", "for (const Place place : {Place::arena, Place::store})", "for (const Place place : {Place::arena})",
     "io/plan_text_test.cpp", "every form is read by its name"),
    ("model/graph_builder.hpp", "times <= (most - there) / more", "times <= most / more", "model/graph_test.cpp",
     "copies of a block have room beside what is there"),
    ("model/graph_builder.hpp", "if (said.error) fail(node, said.error);", "static_cast<void>(node);", "model/split_test.cpp",
     "a part that a layer refuses is an error of the graph"),
    ("model/graph_builder.hpp", "if (!has_room(1, 1, 3))", "if (!has_room(1, 0, 3))", "model/graph_test.cpp",
     "a layer has room in its graph"),
    ("model/graph_builder.hpp", "if (!has_room(1, 0, 1))", "if (!has_room(1, 0, 0))", "model/graph_test.cpp",
     "a sum has room in its graph"),
    ("model/graph.hpp", "return parameter_elems * bytes_of(dtype_in(parameter_form, scalar));",
     "return parameter_elems * bytes_of(scalar);", "train/bf16_parameters_test.cpp",
     "parameters in bf16 take two bytes"),
    ("layer/embedding.hpp", "if (positions) add(1, place);", "if (positions) add(1, 0);",
     "train/bf16_parameters_test.cpp", "tables in bf16 are looked up by position, too"),
    ("io/checkpoint.hpp", "params[i] = to_bfloat16(static_cast<float>(numbers[j]));",
     "params[i] = bfloat16_below(static_cast<float>(numbers[j]));",
     "train/bf16_parameters_test.cpp", "checkpoints in full become the nearest bf16"),
    ("ranks/data_parallel/state.hpp", "std::memcmp(&first, &other, sizeof(double)) == 0) continue;",
     "first == first) continue;", "ranks/data_parallel_test.cpp",
     "ranks compare what updates are called with"),
    ("ranks/asked.hpp", "  each_option(optimizer,\n              [&](const char* name, double value) { visit(name, optimizer.name, value); });",
     "", "ranks/data_parallel_test.cpp",
     "ranks compare the optimizer's numbers in every update"),
    ("ranks/data_parallel/owned_gradients.hpp", "sums.close();", "", "ranks/data_parallel_test.cpp",
     "gradients of a layer smaller than a chunk are on their way at once"),
    ("ranks/data_parallel/owned_gradients.hpp", "if (const Error why = sums.finish()) return why;\n    T* place",
     "T* place", "ranks/data_parallel_test.cpp", "a layer waits for the place that the one before it has"),
    ("ranks/data_parallel/owned_gradients.hpp", "for (; level < levels_; ++level)", "for (; level < 0; ++level)",
     "ranks/data_parallel_test.cpp", "the last shard joins all that are kept"),
    ("ranks/data_parallel/state.hpp", "return by_turns ? group.rank() + i * group.size()",
     "return false ? group.rank() + i * group.size()", "ranks/data_parallel_test.cpp",
     "with sharded gradients ranks take shards by turns"),
    ("ranks/data_parallel/state.hpp", "by_turns ? n % ranks : n / losses.size()", "n / losses.size()",
     "ranks/data_parallel_test.cpp", "losses are added in the order of shards"),
    ("ranks/data_parallel/ranked_plan.hpp", "longest = all[at] > longest ? all[at] : longest;", "longest = all[u];",
     "ranks/ranked_plan_test.cpp", "the slowest rank's times count"),
    ("ranks/data_parallel/ranked_plan.hpp", "if (seen.elements != 0 && (worst.elements == 0 || is_worse(seen, worst))) worst = seen;",
     "if (at < mine.size()) worst = seen;", "ranks/ranked_plan_test.cpp",
     "what codecs see on other ranks counts"),
    ("ranks/data_parallel/ranked_plan.hpp", "else if (program->peak_bytes() > room_)", "else if (false)",
     "ranks/ranked_plan_test.cpp", "nobody runs a plan that one rank cannot hold"),
    ("ranks/data_parallel/ranked_plan.hpp", "      looked_ = true;\n", "", "ranks/ranked_plan_test.cpp",
     "a rank that tries a batch again does not meet the others again"),
    ("ranks/data_parallel/ranked_plan.hpp", "pending_.add(boundary.update);", "",
     "ranks/ranked_plan_test.cpp", "a boundary has what set_budget() changed"),
    ("ranks/data_parallel/state.hpp", "mine_to_all[next++] = detail::number_of(training.plan());",
     "mine_to_all[next++] = 0;", "ranks/ranked_plan_test.cpp", "ranks compare their plans in every update"),
    ("ranks/data_parallel/state.hpp", "training.seconds_ -= summing;", "static_cast<void>(0);",
     "ranks/ranked_plan_test.cpp", "time spent on other ranks is no time of the step"),
    ("ranks/pipeline/turns.hpp", "shared[0] = stage_ + 1;", "shared[0] = 0;",
     "ranks/trainers_test.cpp", "a forward pass that one stage refuses is refused by all"),
    ("ranks/data_parallel/state.hpp", "if (in_slices) return under_way();", "",
     "ranks/trainers_test.cpp", "a share of an update has one micro-batch under way at a time"),
    ("ranks/pipeline/save.hpp", "if (!gathered) static_cast<void>(gather(nowhere));", "",
     "ranks/pipeline_test.cpp", "stages hear that a checkpoint cannot be written"),
    ("ranks/pipeline/save.hpp", "updates_ = counts[0];", "", "ranks/pipeline_test.cpp",
     "a resumed pipeline knows how far it was"),
    ("ranks/pipeline/save.hpp", "updater_.table().begin(s, own++)", "updater_.table().begin(s, own)",
     "ranks/pipeline_test.cpp", "each parameter's state is saved"),
    ("ranks/pipeline/turns.hpp", "for (const double norm : norms_) told_[squares] += norm * norm;",
     "double own = 0; for (const double norm : norms_) own += norm * norm; told_[squares] += own;",
     "ranks/pipeline_test.cpp", "the norm has the same bits for any number of stages"),
    ("ranks/pipeline/turns.hpp", "told_[field] = static_cast<double>(at - asked);", "",
     "ranks/pipeline_test.cpp", "stages compare what updates are called with"),
    ("step/bound_program.hpp", "inst.again && (id == step_input || exact(id))", "inst.again",
     "program/exact_test.cpp", "aux does not hold behind a lossy input"),
    ("layer/group_norm.hpp", "if (!call.aux_holds) find_statistics", "if (call.aux_holds) find_statistics",
     "layer/pictures_test.cpp", "a norm that runs for the first time finds its statistics"),
    ("program/scheduler.hpp", "if (others >= 0) add_gradient(from, others, inst.dx);", "",
     "program/schedule_test.cpp", "the gradients of all layers that read an activation add up"),
    ("program/scheduler.hpp", "wants_dx && wants_gradient(from) ? state(from).gradient",
     "wants_dx ? state(from).gradient", "program/schedule_test.cpp",
     "gradients that nobody wants are not added up"),
    ("program/scheduler.hpp", "state(end).gradient_is_lent || !last_to_add(k, end);",
     "!last_to_add(k, end);", "program/schedule_test.cpp",
     "a gradient that is lent on is not overwritten while its owner needs it"),
    ("program/scheduler.hpp", "wants_dx && state(from).first_layer == k", "wants_dx",
     "program/schedule_test.cpp", "a sum hands on its gradient once, whoever else reads its source"),
    ("program/scheduler.hpp", "meets_sums && others < 0 && state", "meets_sums && state",
     "program/schedule_test.cpp", "a layer adds a sum's gradient to all other shares, or leaves it"),
    ("program/lifetimes.hpp", "if (inst.added >= 0) use(inst.added);", "", "program/schedule_test.cpp",
     "the tensor that a layer adds lives until then"),
    ("step/bound_program.hpp", "if (inst.adds) call.added = added(inst, node.input);", "",
     "step/residual_sums_test.cpp", "a layer that adds gets the gradient along the sum"),
    ("model/graph_builder.hpp", "declared.adds_residual && graph_.parts <= 1", "declared.adds_residual",
     "step/residual_sums_test.cpp", "layers in parts leave residual sums to the step"),
    ("models/resnet.hpp", "const auto norm = layer<Norm>(GroupNorm{.groups = config.groups, .relu = true});",
     "const auto norm = layer<Stream>(GroupNorm{.groups = config.groups, .relu = true});",
     "train/resnet_test.cpp", "half of the peak is enough if norms are made again"),
    ("layer/pool2d.hpp", "first || from[l] > largest[l]", "first || from[l] >= largest[l]",
     "layer/pictures_test.cpp", "the first of equal maxima gets the gradient"),
    ("layer/relu6.hpp", "return x > 0 && x < 6;", "return x > 0;", "layer/pictures_test.cpp",
     "ReLU6 passes nothing above 6"),
    ("layer/mask.hpp", "bits |= (passes(in[k]) ? 1U : 0U) << k;", "bits |= (passes(in[k]) ? 1U : 0U) << (7 - k);",
     "layer/pictures_test.cpp", "a mask's bits are read in the order that they are written in"),
    ("layer/group_norm.hpp", "return out <= 0 ? T(0) : above;", "return above;",
     "layer/pictures_test.cpp", "a norm's ReLU passes no gradient where it is 0"),
    ("io/weights/gpt2.hpp", "wanted_of, problems);", "wanted_of, nullptr);",
     "io/gpt2_safetensors_test.cpp", "all that keeps a GPT-2 from being loaded is listed"),
    ("models/llama.hpp", 'config.tied_head ? "tokens" : nullptr', "nullptr", "io/models_test.cpp",
     "a Llama may have the token table as its head"),
    ("layer/cross_entropy_head.hpp", "{params[0].data(), 1, channels}, out.data()",
     "{params[0].data() + 1, 1, channels}, out.data()", "io/models_test.cpp", "logits are those of the reference"),
    ("io/weights/pretrained.hpp", 'config.expect("quantization_config", {});', "", "io/models_test.cpp",
     "weights that were quantized are no weights"),
    ("io/weights/gpt2.hpp", 'json->expect("scale_attn_weights", {"true"});', "", "io/gpt2_safetensors_test.cpp",
     "settings that are not computed are refused"),
    ("io/weights/gpt2.hpp", 'json->expect("scale_attn_by_inverse_layer_idx", {"false"});', "",
     "io/gpt2_safetensors_test.cpp", "settings that are not computed are refused"),
    ("io/weights/gpt2.hpp", 'json->expect("add_cross_attention", {"false"});', "",
     "io/gpt2_safetensors_test.cpp", "settings that are not computed are refused"),
    ("io/weights/gpt2.hpp", 'json->expect("tie_word_embeddings", {"true"});', "", "io/gpt2_safetensors_test.cpp",
     "settings that are not computed are refused"),
    ("io/weights/bert.hpp", 'json->expect("is_decoder", {"false"});', "", "io/models_test.cpp",
     "settings that are not computed are refused"),
    ("io/weights/llama.hpp", "|| old_type != type", "", "io/models_test.cpp",
     "a kind of rotation may be called by its old name"),
    ("io/weights/stored_type.hpp", "(specials == Specials::fnuz ? 0 : 1)", "1", "io/stored_type_test.cpp",
     "exponents of FNUZ types are one lower"),
    ("io/weights/stored_type.hpp", "low + bits > 8", "low + bits > 10", "io/stored_type_test.cpp",
     "an element of 6 bits may lie in two bytes"),
    ("io/weights/stored_type.hpp", "code == 0 ? 1U << 22 : code << 23", "code << 23", "io/stored_type_test.cpp",
     "the smallest scale is no zero"),
    ("io/weights/safetensors.hpp", "if (bits % 8 != 0)", "if (bits % 4 != 0)", "io/stored_type_test.cpp",
     "a tensor is whole bytes"),
    ("io/weights/safetensors.hpp", "{bytes.data() + first * bits / 8,", "{bytes.data() + first,",
     "io/stored_type_test.cpp", "parts of a tensor begin where their bits do"),
    ("io/weights/wanted_tensors.hpp", "!obstacle.empty())", "false)", "io/stored_type_test.cpp",
     "complex numbers that are wanted are a problem"),
    ("io/weights/gguf_llama.hpp", "i % 2 * (size / 2) + i / 2", "i", "io/gguf_models_test.cpp",
     "halves of a head take turns in GGUF files"),
    ("io/weights/gguf.hpp", "if (place.begin < end)", "if (false)", "io/gguf_test.cpp",
     "tensors of a GGUF file do not overlap"),
    ("io/weights/gguf_blocks.hpp", "no_minimum = -0.0F", "no_minimum = 0.0F", "io/gguf_test.cpp",
     "a block without minimum keeps the signs of its zeros"),
    ("io/weights/gguf_config.hpp", "if (count == 0) return {};", "return {};", "io/gguf_models_test.cpp",
     "a tensor that a network has no place for is refused"),
    ("io/tokenizer/byte_pairs.hpp", "std::uint64_t{merge.rank} << 32 |", "std::uint64_t{0} |", "io/tokenizer_test.cpp",
     "the merge of the lowest rank is first"),
    ("io/tokenizer/pre_tokenizer.hpp", "return cursor.ended() || last == first.at() ? cursor.at() : last;",
     "return cursor.at();", "io/tokenizer_test.cpp", "the last of several spaces belongs to the next word"),
    ("io/tokenizer/pre_tokenizer.hpp", "return line_end > at ? line_end : end_of_spaces(first);",
     "return end_of_spaces(first);", "io/tokenizer_test.cpp", "ends of lines are words of Llama 3"),
    ("io/tokenizer/tokenizer.hpp", "text_of(a.token).size() > text_of(b.token).size()", "false",
     "io/tokenizer_test.cpp", "of special tokens that begin alike the longest is taken"),
    ("io/tokenizer/tokenizer.hpp", "is_whole_[i] = lost == 0 && merged.size() == 1", "is_whole_[i] = true || merged.size() == 1",
     "io/tokenizer_test.cpp", "a word that merging does not give is no token"),
    ("io/tokenizer/chat.hpp", "tokenizer_.encode(text, SpecialText::text,", "tokenizer_.encode(text, SpecialText::tokens,",
     "io/tokenizer_test.cpp", "a user does not end a turn by writing its end"),
    ("io/tokenizer/compose.hpp", "(before != 0 && before < mine)", "before != 0", "io/tokenizer_test.cpp",
     "a mark of the same class is between a letter and a mark"),
    ("io/tokenizer/read_tokenizer.hpp", "if (token >= bytes_)", "if (false)", "io/tokenizer_test.cpp",
     "a token's number is below the bytes of its file"),
    ("io/weights/int8_tensors.hpp", "rows, elems / rows,", "1, elems,", "io/weights_header_test.cpp",
     "each row in int8 has its own scale"),
    ("model/split.hpp", "items / parts >= summed_rows", "items / parts >= 100 * summed_rows",
     "step/cursor_layers_test.cpp", "parts are multiples of 32 rows, so that cut and whole steps agree"),
    ("model/split.hpp", " && !whole_entries", "", "model/split_test.cpp", "parts that are sequences stay so"),
    ("program/abilities.hpp", "!Abilities::transfers && ", "Abilities::transfers && ",
     "program/fixed_program_test.cpp", "a step without transfers refuses a program that has some"),
    ("step/bound_program.hpp", "if (Abilities::parts && buffer.part_buffer)", "if (!Abilities::parts && buffer.tile)",
     "step/loops_test.cpp", "a part has its own place in a buffer of one part"),
    ("step/step.hpp", "if constexpr (!Abilities::parts) return {};", "return {};", "step/loops_test.cpp",
     "codecs know their part"),
    ("step/spare_room.hpp", "if (&other != &mine && other.now.otherwise())", "if (false)", "step/declining_test.cpp",
     "what was declined before has its room"),
    ("step/spare_room.hpp", "first <= mine.last && last >= mine.first", "first <= mine.first && last >= mine.first",
     "step/declining_test.cpp", "room is free until backward"),
    ("step/spare_room.hpp", "place > program.layout.arena_bytes - bytes)", "place > program.layout.arena_bytes)",
     "step/declining_test.cpp", "room is within the arena"),
    ("program/declinable.hpp", "mine.movable = false;\n      continue;", "{}\n      continue;", "step/declining_test.cpp",
     "what one loop encodes and decodes stays as planned"),
    ("step/declining.hpp", "declinable.now.otherwise() || !spoiled || declinable.blob < 0", "!spoiled || declinable.blob >= 0",
     "step/declining_test.cpp", "a blob that was overwritten by a trial is made again"),
    ("step/declining.hpp", "codec->row_errors(context, x, blob, {}).over == 0)", "true)", "step/declining_test.cpp",
     "milder codecs are judged, too"),
    ("ranks/data_parallel/save.hpp", "state.fresh = true;", "", "ranks/data_parallel_test.cpp",
     "what ranks call first behind load() is compared, too"),
    ("io/plan_text.hpp", 'return detail::or_no_memory("to read a plan", [&]() -> Result<Plan> {',
     "return [&](auto&& call) { return call(); }([&]() -> Result<Plan> {", "alloc/no_memory_test.cpp",
     "a plan's text is read, or the error says that memory ended"),
    ("codec/codec_list.hpp", "(codec.tolerated_as != nullptr && contains(codec.tolerated_as))", "false",
     "model/candidates_test.cpp", "a codec that keeps more is tolerated by whoever tolerates the other"),
    ("step/declining.hpp", "planned.for_unlike_rows, spoiled", "nullptr, spoiled",
     "step/unlike_rows_test.cpp", "rows of other scales than their neighbours have scales of their own"),
    ("step/declining.hpp", "if (bytes <= program.schedule.buffers[b].bytes)", "if (bytes > 0)",
     "step/declining_test.cpp", "a blob in place of the planned one is no larger"),
    ("step/declining.hpp", "stale_ = stale_ || codec == nullptr || codec->lossless;", "", "step/declining_test.cpp",
     "what is kept exactly is exact in backward"),
    ("step/declining.hpp", "if (part.first == 0) declinable->now = {};", "", "stash/stash_test.cpp",
     "what fails to be encoded is judged anew"),
    ("stash/stash.hpp", "!detail::is_vacated(program_, b))", "true)", "stash/stash_test.cpp",
     "a dead blob's place may be another's"),
    ("program/in_flight.hpp", "one.movable && steps == 1", "one.movable", "ranks/pipeline_test.cpp",
     "gaps of steps in flight are other steps'"),
    ("step/watched_blobs.hpp", "statistics_[index(id)].rows_over = errors.over;", "", "train/declining_test.cpp",
     "plans see rows that are lost"),
    ("codec/quant/block/judge.hpp", "if (magnitude(r, col) > shared.limits[s]) continue;", "",
     "codec/cuda_algorithm_row_errors_test.cpp", "outliers do not hide the bulk of a row from a device"),
    ("codec/quant/block/judge.hpp", "ThreadBlock::add(shared.placed[row][col / 32], 1U << col % 32);", "",
     "codec/cuda_algorithm_row_errors_test.cpp", "a device leaves out what has a place"),
    ("codec/statistics.hpp", "rows_over > 0 || (samples", "(samples", "evolve/evolution_test.cpp",
     "a codec that loses rows is left"),
    ("cost/probe.hpp", "step->judge_encodes(false);", "", "cost/declined_probe_test.cpp",
     "a probe is of the codec alone"),
    ("train/training.hpp", "declined_ = declined_ + step_.declined_counts();", "declined_ = step_.declined_counts();",
     "train/declining_test.cpp", "declined activations are counted in all micro-batches"),
    ("ranks/data_parallel/state.hpp", "of_all.declined = of_all.declined + DeclinedCounts",
     "of_all.declined = DeclinedCounts", "ranks/ranked_plan_test.cpp", "and on all ranks"),
    ("program/fixed_program.hpp", "static_cast<Plan&&>(made->plan), mode)",
     "static_cast<Plan&&>(made->plan), Mode::evaluate)", "program/fixed_program_test.cpp",
     "a fixed program in another mode is in that mode"),
    ("program/fixed_program.hpp", "found.parts = needs_parts(*result);", "found.parts = false;",
     "program/fixed_program_test.cpp", "a fixed program that is cut needs code for parts"),
    ("examples/plan_gpt.cpp", "{\"loops\", loops.loops}", "{\"loops\", loops.instructions}", "examples/plan_gpt_test.sh",
     "as many bars are drawn as there are loops"),
    ("examples/plan_gpt.cpp", "if (loops.straight_peak_bytes > 0) straight = loops.straight_peak_bytes;",
     "straight = 1.0;", "examples/plan_gpt_test.sh", "what loops save is said"),
    ("examples/plan_gpt.cpp", "  if (extras.store)\n", "  if (false)\n", "examples/plan_gpt_test.sh",
     "lanes are drawn where there is a store"),
    ("examples/draw_memory.cpp", "extras.loops = extras.loops || !program.schedule.loops.empty();", "",
     "examples/draw_memory_test.sh", "the legend of loops"),
    ("examples/job_system/executor.hpp", "i < all.count; i = all.next++", "i + 1 < all.count; i = all.next++",
     "examples/job_system_test.sh", "all tiles of a run are run"),
    ("examples/job_system/executor.hpp", "tiles_ += tiles;", "", "examples/job_system_test.sh",
     "the job system runs tiles, and says so"),
    ("examples/anole/army_file.hpp", "weights.values.data() + parameter.offset))", "weights.values.data()))",
     "examples/anole_test.sh", "an army that is loaded is the one that was saved"),
    ("examples/tiny_camera.cpp", "target_view, lesson.rate_at(i));",
     "target_view, 0 * lesson.rate_at(i));",
     "examples/tiny_camera_test.sh", "the camera adapts by the points that it states"),
]

FLAGS = ["-std=c++20", "-march=native", "-DADACC_ASSERT(holds,text)=static_cast<void>(0)"]


def build(tree, program, *sources, flags):
    """What the compiler says if it fails."""
    command = ["g++", *FLAGS, *flags, f"-I{tree}/include", f"-I{tree}", "-isystem", "/usr/include/eigen3",
               "-isystem", "/usr/local/include/eigen3", *map(str, sources), "-o", str(program), "-pthread"]
    compiled = subprocess.run(command, capture_output=True, text=True)
    return compiled.stderr if compiled.returncode != 0 else None


def build_example(tree, program, name):
    sources = tree / "examples"
    if name == "tiny_camera":  # its weights are made first
        offline = tree / "tiny_camera_offline"
        failed = build(tree, offline, sources / name / "offline.cpp", flags=["-O1"])
        if failed:
            return failed
        subprocess.run([offline, tree / "tiny_camera_weights.h"], check=True, capture_output=True)
    return build(tree, program, sources / f"{name}.cpp", flags=["-O1"])


def build_and_run(tree, main, source):
    """`passes`, `fails` or `does not compile`, and what was printed."""
    program = tree / (source.replace("/", "_") + ".program")
    script = tree / "tests" / source
    if script.suffix == ".sh":
        failed = build_example(tree, program, script.stem.removesuffix("_test"))
        command = ["bash", script, program]
    elif script.parent.name == "deadlines":  # what counts its work, and what it counts with
        counting = tree / "counting.o"
        failed = (build(tree, counting, script, flags=["-O1", "-c", "-fsanitize-coverage=trace-pc"]) or
                  build(tree, program, counting, script.parent / "work_clock.cpp", main, flags=["-O1"]))
        command = [program, "-m"]
    else:
        failed = build(tree, program, script, main, flags=["-O0"])
        command = [program, "-m"]
    if failed:
        return "does not compile", failed
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=900)
    except subprocess.TimeoutExpired:
        return "fails", "it did not end"
    return ("passes" if ran.returncode == 0 else "fails"), ran.stdout + ran.stderr


def source_of(tree, header):
    return tree / ("" if header.startswith("examples/") else "include/adacc") / header


def check():
    """How many mutations name a text that does not stand once, or a test that is not there."""
    stale = 0
    for header, text, _, source, _ in MUTATIONS:
        path = source_of(ROOT, header)
        count = path.read_text().count(text) if path.exists() else 0
        if count != 1:
            print(f"{header}: stands {count} times: {text}")
        if not (ROOT / "tests" / source).exists():
            print(f"tests/{source} is not there")
        stale += count != 1 or not (ROOT / "tests" / source).exists()
    print(f"{len(MUTATIONS) - stale} of {len(MUTATIONS)} mutations can be made")
    return 1 if stale else 0


def copy_of_repository(folder):
    for part in ("include", "tests", "support", "examples"):
        shutil.copytree(ROOT / part, folder / part)


def mutate(mutation, main):
    header, text, instead, source, _ = mutation
    with tempfile.TemporaryDirectory() as name:
        tree = pathlib.Path(name)
        copy_of_repository(tree)
        path = source_of(tree, header)
        original = path.read_text()
        if original.count(text) != 1:
            return "STALE"
        path.write_text(original.replace(text, instead))
        return "SURVIVES" if build_and_run(tree, main, source)[0] == "passes" else "caught"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-j", type=int, default=2)
    parser.add_argument("--check", action="store_true", help="only see that all of them can be made")
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    if options.check:
        return check()
    chosen = [m for m in MUTATIONS if all(word in " ".join(m) for word in options.words)]
    with tempfile.TemporaryDirectory() as name, \
            concurrent.futures.ThreadPoolExecutor(options.j) as pool:
        tree = pathlib.Path(name)
        copy_of_repository(tree)
        main_object = tree / "main.o"
        subprocess.run(["g++", *FLAGS, "-O0", "-c", str(tree / "tests/main.cpp"), "-o", str(main_object)],
                       check=True)
        # A test that fails as it is would seem to catch everything.
        sources = sorted({mutation[3] for mutation in chosen})
        for source, (outcome, text) in zip(
                sources, pool.map(lambda s: build_and_run(tree, main_object, s), sources)):
            if outcome != "passes":
                sys.exit(f"tests/{source} {outcome} with the library as it is\n{text[-2000:]}")
        caught = 0
        for mutation, outcome in zip(chosen, pool.map(lambda m: mutate(m, main_object), chosen)):
            print(f"{outcome:9} {mutation[0]:28} {mutation[3]:32} {mutation[4]}", flush=True)
            caught += outcome == "caught"
    print(f"{caught} of {len(chosen)} mutations are caught")
    return 0 if caught == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
