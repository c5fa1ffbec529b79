// SPDX-License-Identifier: MIT
#include "adacc/optimizer/adamw.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "../train/support.hpp"
#include "adacc/core/block.hpp"

namespace adamw_test { namespace {

using namespace adacc;
using train_test::add_parameter;

/// A model of awkward sizes: tails, chunk borders inside parameters, a tied duplicate, no decay.
template <class T>
struct Model {
  Array<Parameter> table;
  std::size_t elems = 0;
  Block<T> params, grads, m, v;

  Model() {
    add_parameter(table, elems, Shape(7));
    add_parameter(table, elems, Shape(301, 257)).decay = false;
    add_parameter(table, elems, Shape(1));
    add_parameter(table, elems, Shape(129, 300));
    Parameter tied = table[1];
    tied.owner = false;
    tied.decay = true;
    table.push_back(tied);
    for (Block<T>* block : {&params, &grads, &m, &v}) *block = *Block<T>::make(elems, "model");
    fill();
  }

  Model(const Model&) = delete;

  void fill() {
    for (const Parameter& parameter : table)
      for (std::size_t i = 0; i < parameter.shape.elems(); ++i)
        params[parameter.offset + i] = static_cast<T>(std::sin(0.37 * static_cast<double>(i)));
    fill_gradients(0);
  }

  void fill_gradients(int step) {
    for (const Parameter& parameter : table)
      for (std::size_t i = 0; i < parameter.shape.elems(); ++i)
        grads[parameter.offset + i] =
            static_cast<T>(0.01 * std::cos(1.3 * static_cast<double>(i) + step));
  }

  void step(const AdamW& adamw, int t, int threads = 1) {
    train_test::Threads executor{threads};
    Cpu cpu{ExecutorRef(executor)};
    adamw.step(cpu, params.view(), grads.view(), m.view(), v.view(), table,
               static_cast<std::uint64_t>(t), 1e-2, 0.5);
  }
};

template <class T>
void compare_with_reference(double tolerance) {
  const AdamW adamw{.beta1 = 0.8F, .beta2 = 0.95F, .epsilon = 1e-6F, .weight_decay = 0.1F};
  Model<T> model;
  std::vector<double> p(model.elems), m(model.elems), v(model.elems);
  for (std::size_t i = 0; i < model.elems; ++i) p[i] = static_cast<double>(model.params[i]);
  for (int t = 1; t <= 4; ++t) {
    model.fill_gradients(t);
    for (const Parameter& parameter : model.table) {
      if (!parameter.owner) continue;
      for (std::size_t j = 0; j < parameter.shape.elems(); ++j) {
        const std::size_t i = parameter.offset + j;
        const double g = 0.5 * static_cast<double>(model.grads[i]);
        const double b1 = adamw.beta1, b2 = adamw.beta2;
        m[i] = b1 * m[i] + (1 - b1) * g;
        v[i] = b2 * v[i] + (1 - b2) * g * g;
        const double mhat = m[i] / (1 - std::pow(b1, t)), vhat = v[i] / (1 - std::pow(b2, t));
        const double decay = parameter.decay ? static_cast<double>(adamw.weight_decay) : 0.0;
        p[i] -=
            1e-2 * (mhat / (std::sqrt(vhat) + static_cast<double>(adamw.epsilon)) + decay * p[i]);
      }
    }
    model.step(adamw, t);
  }
  double worst = 0, worst_moment = 0, left = 0;
  for (std::size_t i = 0; i < model.elems; ++i) {
    worst = std::fmax(worst, std::fabs(static_cast<double>(model.params[i]) - p[i]));
    worst_moment = std::fmax(worst_moment, std::fabs(static_cast<double>(model.m[i]) - m[i]));
    left += std::fabs(static_cast<double>(model.grads[i]));
  }
  CHECK(worst < tolerance);
  CHECK(worst_moment < tolerance);
  CHECK(left == 0);
}

TEST_CASE("AdamW agrees with its formula, tails, tied and undecayed parameters included") {
  compare_with_reference<double>(1e-9);
  compare_with_reference<float>(2e-6);
}

TEST_CASE("AdamW's first step moves every element by the rate, whatever its gradient") {
  Model<double> model;
  const double before = model.params[3];
  model.grads[3] = 1e-3;
  model.step(AdamW{}, 1);
  CHECK(std::fabs(before - model.params[3] - 1e-2) < 1e-6);
}

TEST_CASE("AdamW can leave the gradients as they are, and never touches padding") {
  Model<float> model;
  for (std::size_t i = 7; i < 16; ++i) {
    model.params[i] = 3;
    model.grads[i] = 5;
  }
  const float gradient = model.grads[20];
  AdamW adamw;
  adamw.clear_gradients = false;
  model.step(adamw, 1);
  CHECK(model.grads[20] == gradient);
  CHECK(model.params[7] == 3);
  CHECK(model.params[15] == 3);
  CHECK(model.m[15] == 0);
}

TEST_CASE("AdamW's bits do not depend on the number of threads") {
  Model<float> one;
  one.step(AdamW{.weight_decay = 0.1F}, 1);
  for (int threads : {2, 3}) {
    Model<float> other;
    other.step(AdamW{.weight_decay = 0.1F}, 1, threads);
    const std::size_t bytes = one.elems * sizeof(float);
    CHECK(std::memcmp(one.params.data(), other.params.data(), bytes) == 0);
    CHECK(std::memcmp(one.m.data(), other.m.data(), bytes) == 0);
    CHECK(std::memcmp(one.v.data(), other.v.data(), bytes) == 0);
    CHECK(std::memcmp(one.grads.data(), other.grads.data(), bytes) == 0);
  }
}

TEST_CASE("a gradient that is not a number stays visible") {
  Model<float> model;
  model.grads[2] = NAN;
  model.step(AdamW{}, 1);
  CHECK(std::isnan(model.params[2]));
  CHECK(!std::isnan(model.params[3]));
}

}}  // namespace adamw_test
