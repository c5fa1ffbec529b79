// SPDX-License-Identifier: MIT
/// Compiled for 32 bits: tensors may be as large as such a machine's memory has room for beside others, and
/// what is too large, by itself or in sum, is an error in words.
#define ADACC_ASSERT(holds, text) static_cast<void>(0)  // mistakes are made on purpose

#include <adacc/adacc.hpp>
#include <adacc/codec/bf16.hpp>
#include <adacc/layer/plain/linear.hpp>
#include <adacc/layer/plain/mean_squared_error.hpp>
#include <adacc/layer/plain/relu.hpp>
#include <adacc/stash/model.hpp>

#include <cstdio>
#include <cstring>

using namespace adacc;

static_assert(sizeof(std::size_t) == 4, "this is compiled for 32 bits");

namespace {

int wrong = 0;

void expect(bool holds, const char* what) {
  if (holds) return;
  std::printf("wrong: %s\n", what);
  ++wrong;
}

bool says(const Error& error, const char* words) {
  if (std::strstr(error.text(), words) != nullptr) return true;
  std::printf("'%s' and not '%s'\n", error.text(), words);
  return false;
}

using Curve = Layer<plain::Relu>;
using Net = Network<Sequential<Curve, Curve>, plain::MeanSquaredError>;
using Deep = Network<Sequential<Curve, Curve, Curve, Curve, Curve, Curve>, plain::MeanSquaredError>;
using Weights = Network<Repeat<Layer<plain::Linear>>, plain::MeanSquaredError>;

Result<Graph> with_weights(int count) {
  return make_graph(Weights{{count, {plain::Linear{.out = 8000}}}, {}}, Shape(1, 8000));
}

// What a microcontroller's compiler proves: a tensor of 8,192 elements and more has a place.
static_assert(make_program(Net{}, Shape(128, 64))->peak_bytes() >= 128 * 64 * sizeof(float));
static_assert(make_program(Net{}, Shape(1024, 1024))->peak_bytes() >= 4 * MiB);

void graphs() {
  const auto large = make_graph(Net{}, Shape(8192, 8192));
  expect(large && large->node(0).output_bytes == 256 * MiB, "an activation of 256 MiB");
  const auto program = make_program(Net{}, Shape(8192, 8192));
  expect(program && program->peak_bytes() >= 512 * MiB && program->peak_bytes() <= 1024 * MiB,
         "its peak");
  expect(says(make_graph(Net{}, Shape(1 << 15, 1 << 15)).error, "too large to address"), "4 GiB");
  expect(says(make_graph(Net{}, Shape(1 << 16, 1 << 16)).error, "too large to address"), "16 GiB");
  expect(says(make_graph(Deep{}, Shape(8192, 8192)).error, "together are too large to address"),
         "six activations of 256 MiB");
  const auto three = with_weights(3);
  expect(three && three->parameter_bytes() >= 3 * std::size_t{8000} * 8000 * 4, "three weights");
  expect(says(with_weights(20).error, "parameters are too large to address"), "twenty weights");
}

void stashes() {
  StashModel<> one;
  static_cast<void>(one.add("x", Shape(8192, 8192), {0}));
  expect(bool(one.graph()), "an activation of 256 MiB in a stash");
  StashModel<> large;
  static_cast<void>(large.add("x", Shape(1 << 15, 1 << 15), {0}));
  expect(says(large.graph().error, "too many to address"), "4 GiB in a stash");
  StashModel<> many;
  for (int i = 0; i < 8; ++i) static_cast<void>(many.add("x", Shape(8192, 8192), {0}));
  expect(says(many.graph().error, "together are too large to address"), "eight of 256 MiB");
}

}  // namespace

int main() {
  graphs();
  stashes();
  return wrong;
}
