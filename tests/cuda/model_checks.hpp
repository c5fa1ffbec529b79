// SPDX-License-Identifier: MIT
/// Trainings on the device of a file's weights, with adapters above them, and of inputs of several lengths.
#pragma once

#include <adacc/train.cuh>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

#pragma nv_diagnostic push
#pragma nv_diag_suppress 2810  // nvcc takes the assignment of a Result for one that is ignored
#include <adacc/train/lengths.hpp>
#include <adacc/train/make.hpp>
#include <adacc/train/save.hpp>
#pragma nv_diagnostic pop

#include "copies_checks.hpp"
#include "device_checks.hpp"
#include "steps_cases.hpp"

namespace steps {

struct ModelChecks : DeviceChecks {
  void all() const {
    lengths();
    file<float>(ParameterForm::full, 1e-5);
    file<bfloat16>(ParameterForm::bf16, 1e-2);
  }

 private:
  /// Tokens in device memory.
  struct Tokens {
    DeviceBlock<std::int32_t> block;
    View<const std::int32_t> view;

    Tokens(Cuda& cuda, const std::vector<std::int32_t>& from, Shape shape) {
      auto made = DeviceBlock<std::int32_t>::make(shape.elems(), "tokens");
      if (!made || copy_to_device(cuda, View<const std::int32_t>(from.data(), Shape(shape.elems())),
                                  made->view()))
        return;
      block = static_cast<DeviceBlock<std::int32_t>&&>(*made);
      view = {block.data(), shape};
    }
  };

  template <class T>
  std::vector<float> numbers(const Training<T, Cuda>& training) const {
    std::vector<float> list;
    fine(training.read_parameters([&](View<const float> block) {
      list.assign(block.begin(), block.end());
      return Error();
    }));
    return list;
  }

  /// A Llama's file below adapters, which keep their first values: at first its loss, and then only the adapters change.
  template <class T>
  void file(ParameterForm form, double tolerance) const {
    const std::string path =
        (std::filesystem::temp_directory_path() /
         ("adacc_model_" + std::to_string(std::random_device()()) + ".safetensors"))
            .string();
    if (!fine(write_decoder(path, initial_params<Decoder>()))) return;
    Cuda cuda = context();
    const auto net = Adapted::network();
    auto training = Training<T, Cuda>::make(net, Adapted::shape(),
                                            {.context = cuda, .graph = {.parameters = form}});
    if (!fine(training.error)) return;
    fine(training->write_parameters([&](View<float> to) { return read_adapted(path, to); }));
    std::filesystem::remove(path);
    const Graph& graph = training->compiled_step().graph();
    const TrainingMemoryUse use = training->memory_use();
    expect(form != ParameterForm::bf16 || use.parameters == 2 * graph.block_elems(),
           "frozen weights in bfloat16 take more than two bytes each");
    expect(graph.gradient_elems < graph.parameter_elems / 4 && use.moments == 2 * use.gradients &&
               use.gradients == 4 * graph.gradient_elems,
           "frozen weights have gradients or moments");
    Tokens x(cuda, Adapted::inputs(0), Adapted::shape()),
        y(cuda, Adapted::targets(0), Adapted::shape());
    const auto loss = training->evaluate(x.view, y.view);
    const double expected = cpu_train_open<Decoder>("retain", 1).losses.at(0);
    if (!fine(loss.error)) return;
    char text[160];
    std::snprintf(text, sizeof text, "a file's weights in %s have a loss of %g, and the CPU's %g",
                  name_of(form), *loss, expected);
    expect(std::fabs(*loss - expected) <= tolerance, text);
    const std::vector<float> before = numbers(*training);
    double last = 0;
    for (int i = 0; i < 6; ++i) {
      const auto outcome = training->step(x.view, y.view, 1e-2);
      if (!fine(outcome.error)) return;
      last = outcome->loss;
    }
    expect(last < *loss, "adapters learn nothing");
    const std::vector<float> after = numbers(*training);
    const std::size_t trained = graph.gradient_elems;
    expect(after.size() == before.size() &&
               std::memcmp(&after[trained], &before[trained], 4 * (after.size() - trained)) == 0 &&
               !(after == before),
           "weights below adapters have changed");
  }

  /// Inputs of two classes of lengths: each class has the bits of a training of its shape, captured or not.
  void lengths() const {
    using Whole = Training<float, Cuda>;
    Cuda cuda = context();
    const auto net = Words::network();
    const std::size_t batch = Language::batch;
    const Lengths classes{.largest = Language::shape(), .multiples_of = 32};
    auto captured = Whole::make(net, classes, {.context = cuda});
    cuda.capture_steps = false;
    auto plain = Whole::make(net, classes, {.context = cuda});
    if (!fine(captured.error) || !fine(plain.error)) return;
    const std::vector<std::int32_t> in = Language::inputs(0), out = Language::targets(0);
    const Tokens x[2] = {{cuda, in, Shape(batch, 32)}, {cuda, in, Shape(batch, 64)}},
                 y[2] = {{cuda, out, Shape(batch, 32)}, {cuda, out, Shape(batch, 64)}};
    for (const std::size_t turn : {0, 1, 1, 1, 0, 0, 0, 1}) {
      auto alone = Whole::make(net, Shape(batch, 32 * (turn + 1)), {.context = cuda});
      if (!fine(alone.error)) return;
      const std::vector<float> params = numbers(*plain);
      fine(alone->write_parameters([&](View<float> to) {
        std::memcpy(to.data(), params.data(), params.size() * sizeof(float));
        return Error();
      }));
      const auto one = alone->step(x[turn].view, y[turn].view, 1e-2),
                 two = plain->step(x[turn].view, y[turn].view, 1e-2),
                 three = captured->step(x[turn].view, y[turn].view, 1e-2);
      if (!fine(one.error) || !fine(two.error) || !fine(three.error)) return;
      expect(one->loss == two->loss && one->grad_norm == two->grad_norm,
             "a length class has other bits than a training of its shape");
      expect(two->loss == three->loss && two->grad_norm == three->grad_norm,
             "captured steps of length classes have other bits");
    }
    expect(numbers(*plain) == numbers(*captured) && captured->captured_steps() > 1 &&
               plain->captured_steps() == 0,
           "steps of length classes were not captured");
  }
};

}  // namespace steps
