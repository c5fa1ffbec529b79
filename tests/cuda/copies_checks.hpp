// SPDX-License-Identifier: MIT
/// Trainings with copies of parameters in bfloat16, and with parameters held in bfloat16, beside one whose layers round
/// parameters in each call.
#pragma once

#include <adacc/train.cuh>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#pragma nv_diagnostic push
#pragma nv_diag_suppress 2810  // nvcc takes the assignment of a Result for one that is ignored
#include <adacc/train/make.hpp>
#include <adacc/train/save.hpp>
#pragma nv_diagnostic pop

#include "device_checks.hpp"
#include "steps_cases.hpp"

namespace steps {

/// Words whose table is also the head's weight; 61 rows, of which products read 64.
struct Words {
  static constexpr std::size_t vocab = Language::vocab, cols = 32;
  static auto network() {
    return Network{Sequential{layer<Retain>(Embedding{
                                  .vocab = vocab, .context = Language::time, .channels = cols}),
                              layer<Retain>(LayerNorm{}), layer<Retain>(Linear{.out = cols})},
                   CrossEntropyHead{.vocab = vocab}};
  }
};

struct CopiesChecks : DeviceChecks {
  template <class T>
  using Trained = Training<T, Cuda>;
  using Narrow = Trained<bfloat16>;

  /// Both trainings have the same bits, whoever writes parameters.
  void all() const {
    Cuda cuda = context();
    const auto net = Words::network();
    auto graph = make_graph<Cuda>(net, Language::shape(), {.scalar = Dtype::bf16});
    if (!fine(graph.error)) return;
    auto plain = Narrow::make(net, *make_program(*graph, plan_from_types(*graph)), cuda);
    auto copied = Narrow::make(net, Language::shape(), {.context = cuda});
    if (!fine(plain.error) || !fine(copied.error)) return;
    memory(*graph, *plain, *copied);
    copied->context().capture_steps = true;
    Pair pair{*plain, *copied, cuda};
    same(pair, "at first");
    same(pair, "behind an update");
    same(pair, "in a captured step");
    expect(copied->captured_steps() > 0, "no step with copies of parameters was captured");
    for (Narrow* training : pair.both)
      fine(training->write_parameters([](View<float> all) {
        for (float& value : all) value *= 1.25F;
        return Error();
      }));
    same(pair, "behind write_parameters()");
    const std::string file = (std::filesystem::temp_directory_path() /
                              ("adacc_steps_" + std::to_string(std::random_device()())))
                                 .string();
    fine(plain->save(file));
    same(pair, "behind save()");
    for (Narrow* training : pair.both) fine(training->load(file, Restore::numbers).error);
    std::filesystem::remove(file);
    same(pair, "behind load()");
    // Views through which somebody writes, once when they were asked for and once later; a pass would make copies for
    // the step.
    const View<float> views[] = {plain->params(), copied->params()};
    for (const float factor : {0.75F, 1.5F}) {
      for (const View<float>& view : views) {
        std::vector<float> values(view.size());
        fine(copy_to_host(cuda, view, View<float>(values.data(), view.shape())));
        for (float& value : values) value *= factor;
        fine(copy_to_device(cuda, View<const float>(values.data(), view.shape()), view));
      }
      same(pair, "behind writing through params()", factor > 1);
    }
    held<float>();
    held<bfloat16>();
  }

 private:
  struct Pair {
    Narrow* both[2];
    Cuda& cuda;
    std::uint32_t steps = 0;
    DeviceBlock<std::int32_t> x, y;

    Pair(Narrow& plain, Narrow& copied, Cuda& on) : both{&plain, &copied}, cuda(on) {
      x = static_cast<DeviceBlock<std::int32_t>&&>(
          *DeviceBlock<std::int32_t>::make(Language::shape().elems(), "x"));
      y = static_cast<DeviceBlock<std::int32_t>&&>(
          *DeviceBlock<std::int32_t>::make(Language::shape().elems(), "y"));
    }
  };

  void memory(Graph& graph, const Narrow& plain, const Narrow& copied) const {
    const Graph& other = copied.compiled_step().graph();
    expect(graph.parameter_form == ParameterForm::full &&
               other.parameter_form == ParameterForm::with_copies,
           "a training in bf16 has no copies of parameters");
    expect(copied.peak_bytes() < plain.peak_bytes(), "copies of parameters save no workspace");
    expect(other.copy_elems() >= other.parameter_elems &&
               copied.memory_use().parameters ==
                   plain.memory_use().parameters + 2 * other.copy_elems(),
           "copies of parameters are not counted");
    set_parameters(graph, ParameterForm::with_copies);
    set_parameters(graph, ParameterForm::full);
    expect(make_program(graph, plan_from_types(graph))->peak_bytes() == plain.peak_bytes(),
           "copies of parameters to and fro change the peak");
  }

  /// Parameters held in bfloat16 give loss and gradients the bits that the same numbers in full give them, and change by
  /// less than half of what they can show. Checkpoints go from one to the other.
  template <class T>
  void held() const {
    Cuda cuda = context();
    const auto net = Words::network();
    auto full = Trained<T>::make(net, Language::shape(), {.context = cuda});
    auto narrow = Trained<T>::make(net, Language::shape(),
                                   {.context = cuda, .graph = {.parameters = ParameterForm::bf16}});
    if (!fine(full.error) || !fine(narrow.error)) return;
    const Graph& graph = narrow->compiled_step().graph();
    expect(graph.parameter_form == ParameterForm::bf16 &&
               narrow->memory_use().parameters == 2 * graph.block_elems() &&
               graph.block_elems() >= graph.parameter_elems,
           "parameters in bfloat16 are not counted in two bytes each");
    const auto numbers = [&](Trained<T>& training) {
      std::vector<float> list;
      fine(training.read_parameters([&](View<const float> block) {
        list.assign(block.begin(), block.end());
        return Error();
      }));
      return list;
    };
    const auto load = [&](const char* from, Trained<T>& source, Trained<T>& to) {
      const std::string file = (std::filesystem::temp_directory_path() /
                                ("adacc_held_" + std::to_string(std::random_device()())))
                                   .string();
      fine(source.save(file));
      fine(to.load(file, Restore::numbers).error);
      std::filesystem::remove(file);
      expect(numbers(source) == numbers(to), from);
    };
    load("parameters in full come out of a checkpoint in bfloat16 otherwise", *narrow, *full);
    const auto tokens = Language::inputs(0), next = Language::targets(0);
    const Shape all(tokens.size());
    auto x = DeviceBlock<std::int32_t>::make(tokens.size(), "x"),
         y = DeviceBlock<std::int32_t>::make(tokens.size(), "y");
    fine(copy_to_device(cuda, View<const std::int32_t>(tokens.data(), all), x->view()));
    fine(copy_to_device(cuda, View<const std::int32_t>(next.data(), all), y->view()));
    const View<const std::int32_t> input(x->data(), Language::shape()),
        targets(y->data(), Language::shape());
    for (int i = 0; i < 3; ++i) {
      // The second step under a plan is captured, the third launched.
      load("numbers in bfloat16 come out of a checkpoint otherwise", *narrow, *full);
      const std::vector<float> before = numbers(*narrow);
      const auto wide = full->step(input, targets, 1e-4), thin = narrow->step(input, targets, 1e-4);
      if (!fine(wide.error) || !fine(thin.error)) return;
      expect(std::memcmp(&wide->loss, &thin->loss, sizeof wide->loss) == 0 &&
                 std::memcmp(&wide->grad_norm, &thin->grad_norm, sizeof wide->loss) == 0,
             "parameters in bfloat16 give loss or gradients other bits");
      // A step of 1e-4 is less than half of the last bit of most: some move, and not all.
      const std::vector<float> after = numbers(*narrow);
      std::size_t moved = 0;
      for (std::size_t e = 0; e < after.size(); ++e) moved += after[e] != before[e] ? 1 : 0;
      expect(moved > after.size() / 50 && moved < after.size() * 9 / 10,
             "updates of parameters in bfloat16 are not rounded stochastically");
    }
  }

  /// A pass, if wanted, and a step of both.
  void same(Pair& pair, const char* when, bool pass = true) const {
    const auto tokens = Language::inputs(pair.steps), next = Language::targets(pair.steps);
    ++pair.steps;
    const Shape all(tokens.size());
    fine(copy_to_device(pair.cuda, View<const std::int32_t>(tokens.data(), all), pair.x.view()));
    fine(copy_to_device(pair.cuda, View<const std::int32_t>(next.data(), all), pair.y.view()));
    const View<const std::int32_t> input(pair.x.data(), Language::shape()),
        targets(pair.y.data(), Language::shape());
    double losses[2][2]{};
    std::vector<float> params[2];
    for (int i = 0; i < 2; ++i) {
      const auto seen = pass ? pair.both[i]->evaluate(input, targets) : Result<double>(0.0);
      const auto outcome = pair.both[i]->step(input, targets, 0.05);
      if (!fine(seen.error) || !fine(outcome.error)) return;
      losses[i][0] = *seen, losses[i][1] = outcome->loss;
      fine(pair.both[i]->read_parameters([&](View<const float> block) {
        params[i].assign(block.data(), block.data() + block.size());
        return Error();
      }));
    }
    const bool agree = std::memcmp(losses[0], losses[1], sizeof losses[0]) == 0 &&
                       params[0].size() == params[1].size() &&
                       std::memcmp(params[0].data(), params[1].data(), 4 * params[0].size()) == 0;
    char text[160];
    std::snprintf(text, sizeof text,
                  "copies of parameters give other bits %s: %.9g %.9g, not %.9g %.9g", when,
                  losses[1][0], losses[1][1], losses[0][0], losses[0][1]);
    expect(agree, text);
  }
};

}  // namespace steps
