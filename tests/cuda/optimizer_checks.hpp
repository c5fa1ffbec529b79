// SPDX-License-Identifier: MIT
/// Optimizers on a device beside the host's, in every form of moments, with parameters in full and in bfloat16.
#pragma once

#include <adacc/train.cuh>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "device_memory.hpp"
#include "layers_cases.hpp"

namespace layers {

/// Parameters of all kinds: matrices, vectors, one of more elements than a block updates, frozen and tied ones; more of
/// them than one launch can be told.
inline std::vector<Parameter> optimized_table() {
  std::vector<Parameter> table;
  std::size_t offset = 0;
  const auto add = [&](Shape shape, bool decays) {
    Parameter parameter;
    parameter.shape = shape;
    parameter.decay = decays;
    parameter.offset = offset;
    offset += padded_elems(shape, Dtype::f32);
    table.push_back(parameter);
  };
  add(Shape(37, 130), true);
  add(Shape(130), false);
  add(Shape(5, 3000), true);
  add(Shape(1, 7), true);
  add(Shape(2, 40000), false);
  add(Shape(300, 3), true);
  for (std::size_t i = 0; i < 90; ++i) add(Shape(1 + i % 13), i % 2 == 0);
  add(Shape(130), false);
  table.back().frozen = true;
  Parameter tied = table[0];
  tied.owner = false;
  table.push_back(tied);
  return table;
}

/// All memory of an update.
struct Optimized {
  std::vector<float> params, gradients;
  std::vector<bfloat16> held, copies;
  std::vector<std::byte> state;
};

/// How far numbers of the device may be from the host's.
struct Near {
  double numbers = 0;  ///< of parameters, and of moments in full
  double share =
      0;  ///< how many of the numbers in bfloat16, and of the bytes of state, may differ at all
};

/// Three updates of some numbers on both sides. `exact`: numbers such that no product or sum is rounded.
template <class Fail>
void check_optimizer(cudaStream_t stream, const AnyOptimizer& any, bool in_bf16, const Near& near,
                     bool exact, const Fail& fail) {
  const std::string name = std::string(any.name) + (in_bf16 ? " on bf16" : "");
  const std::vector<Parameter> table = optimized_table();
  const Parameter& frozen = table[table.size() - 2];
  const std::size_t trained = frozen.offset, elems = trained + frozen.shape.elems();
  const auto state = UpdateTable::make(any, table, Dtype::f32);
  if (!state) return fail(any.name, Shape(), state.error.text());
  Optimized host;
  const auto number = [&](std::uint32_t from, std::size_t i, float unit) {
    return exact ? unit * std::round(value(from, i) * 16) : value(from, i);
  };
  host.state.resize(state->bytes());
  host.gradients.resize(trained);
  std::vector<bool> padding(elems, true);
  for (const Parameter& parameter : table)
    std::fill_n(padding.begin() + static_cast<std::ptrdiff_t>(parameter.offset),
                parameter.shape.elems(), false);
  for (std::size_t i = 0; i < elems; ++i)
    if (padding[i]) {
      if (in_bf16) host.held.push_back({});
      else host.params.push_back(0);
    } else if (in_bf16) host.held.push_back(to_bfloat16(number(80, i, 0x1p-4F)));
    else host.params.push_back(number(80, i, 0x1p-4F));
  if (!in_bf16) host.copies.resize(elems);
  Optimized made = host;
  const Device<float> params(host.params), gradients(host.gradients);
  const Device<bfloat16> held(host.held), copies(host.copies);
  const Device<std::byte> bytes(host.state);
  Cuda cuda(stream);
  Cpu cpu;
  for (std::uint64_t t = 1; t <= 3; ++t) {
    for (const Parameter& parameter : table)
      for (std::size_t i = 0; i < parameter.shape.elems() && !parameter.frozen; ++i)
        host.gradients[parameter.offset + i] =
            number(static_cast<std::uint32_t>(81 + t), parameter.offset + i, 0x1p-5F);
    cudaMemcpy(gradients.data, host.gradients.data(), trained * sizeof(float),
               cudaMemcpyHostToDevice);
    cudaDeviceSynchronize();
    UpdateTerms terms{t, exact ? 0x1p-6 : 1e-2, 0.5, {7, static_cast<std::uint32_t>(t)}};
    const auto views = [&](auto* p, auto* g, auto* s, auto* h, auto* c) {
      return UpdateMemory<float>{{p, Shape(host.params.size())},
                                 {g, Shape(trained)},
                                 {s, Shape(host.state.size())},
                                 {h, Shape(host.held.size())},
                                 {c, Shape(host.copies.size())}};
    };
    state->update(any, cpu, table,
                  views(host.params.data(), host.gradients.data(), host.state.data(),
                        host.held.data(), host.copies.data()),
                  terms);
    optimizer_kernel<AnyOptimizer, Cuda>::update(
        any, cuda, *state, table,
        views(params.data, gradients.data, bytes.data, held.data, copies.data), terms);
    if (const Error why = cuda.take_error()) return fail(any.name, Shape(), why.text());
    cudaStreamSynchronize(stream);
  }
  made.params = params.list(), made.held = held.list(), made.copies = copies.list();
  made.state = bytes.list(), made.gradients = gradients.list();
  if (std::any_of(made.gradients.begin(), made.gradients.end(), [](float g) { return g != 0; }))
    fail(name.c_str(), Shape(), "gradients remain");
  std::size_t other = 0;
  double worst = 0;
  for (std::size_t i = 0; i < elems; ++i) {
    const float expected = in_bf16 ? to_float(host.held[i]) : host.params[i];
    const float got = in_bf16 ? to_float(made.held[i]) : made.params[i];
    if (in_bf16 && got != expected) ++other;
    else worst = std::fmax(worst, std::fabs(got - expected));
    if (!in_bf16 && !(made.copies[i] == to_bfloat16(got)) && made.copies[i].bits != 0)
      fail(name.c_str(), Shape(i), "a copy is no rounded parameter");
  }
  if (!(worst <= near.numbers)) fail(name.c_str(), Shape(), "parameters differ", worst);
  if (static_cast<double>(other) > near.share * static_cast<double>(elems))
    fail(name.c_str(), Shape(), "too many numbers are rounded otherwise",
         static_cast<double>(other));
  // Moments in full, of which each number has four bytes, are compared as numbers.
  if (state->text().find("full") != std::string::npos) {
    worst = 0;
    for (std::size_t i = 0; i + 4 <= host.state.size(); i += 4) {
      float a = 0, b = 0;
      std::memcpy(&a, &host.state[i], 4), std::memcpy(&b, &made.state[i], 4);
      worst = std::fmax(worst, std::fabs(a - b) / (1 + std::fabs(a)));
    }
    if (!(worst <= near.numbers)) fail(name.c_str(), Shape(), "moments differ", worst);
    return;
  }
  other = 0;
  for (std::size_t i = 0; i < host.state.size(); ++i)
    other += host.state[i] != made.state[i] ? 1 : 0;
  if (static_cast<double>(other) > near.share * static_cast<double>(host.state.size()))
    fail(name.c_str(), Shape(), "too many bytes of moments differ", static_cast<double>(other));
}

template <class Fail>
void check_optimizers(cudaStream_t stream, const Fail& fail) {
  // No number is rounded but where moments and parameters are: bits are equal.
  const auto exactly = [&](const AnyOptimizer& any, double share = 0) {
    for (const bool in_bf16 : {false, true})
      check_optimizer(stream, any, in_bf16, {0, share}, true, fail);
  };
  exactly(Sgd{.momentum = 0.5F, .weight_decay = 0.25F});
  exactly(SgdWith<Bf16Moments>{.momentum = 0.5F, .weight_decay = 0.25F});
  exactly(Lion{.beta1 = 0.5F, .beta2 = 0.75F, .weight_decay = 0.25F});
  // Scales of int8 are quotients, and codes are rounded once or twice.
  exactly(SgdWith<Int8Moments>{.momentum = 0.5F}, 1e-3);
  const auto nearly = [&](const AnyOptimizer& any, const Near& near) {
    check_optimizer(stream, any, false, near, false, fail);
    if (any.elementwise) check_optimizer(stream, any, true, near, false, fail);
  };
  nearly(AdamW{.weight_decay = 0.3F}, {3e-6, 2e-3});
  // A moment that is rounded otherwise moves its parameter otherwise.
  nearly(AdamWWith<Bf16Moments>{.weight_decay = 0.3F}, {1e-4, 2e-3});
  nearly(AdamWWith<Int8Moments>{.weight_decay = 0.3F}, {1e-3, 5e-3});
  nearly(Lion{.weight_decay = 0.3F}, {3e-6, 2e-3});
  nearly(LionWith<Int8Moments>{.weight_decay = 0.3F}, {3e-6, 5e-3});
  nearly(Adafactor{.weight_decay = 0.3F}, {3e-6});
  const Error refused =
      optimizer_kernel<AnyOptimizer, Cuda>::refusal(AdamWWith<Bf16Moments, Int8Moments>{});
  if (std::string(refused.text()).find("AdamW has no kernels for a device in this form") ==
      std::string::npos)
    fail("AdamW", Shape(), refused.text());
}

}  // namespace layers
