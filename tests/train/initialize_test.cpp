// SPDX-License-Identifier: MIT
#include "adacc/train/initialize.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "adacc/core/block.hpp"
#include "support.hpp"

namespace initialize_test { namespace {

using namespace adacc;
using train_test::add_parameter;

struct Model {
  Array<Parameter> table;
  std::size_t elems = 0;
  Block<float> params;

  explicit Model(std::uint64_t seed, int threads = 1) {
    add_parameter(table, elems, Shape(333, 301)).init = Init::normal(0.02F);
    add_parameter(table, elems, Shape(5)).init = Init::constant(1);
    add_parameter(table, elems, Shape(333, 301)).init = Init::normal(0.02F);
    add_parameter(table, elems, Shape(100001)).init = Init::uniform(0.5F);
    add_parameter(table, elems, Shape(3)).init = Init::zeros();
    Parameter tied = table[0];
    tied.owner = false;
    tied.init = Init::constant(9);
    table.push_back(tied);
    params = *Block<float>::make(elems, "parameters");
    for (std::size_t i = 0; i < elems; ++i) params[i] = 77;
    train_test::Threads executor{threads};
    Cpu cpu{ExecutorRef(executor)};
    initialize_parameters(cpu, table, params.view(), seed);
  }

  double moment(std::size_t parameter, int power) const {
    double sum = 0;
    const Parameter& p = table[parameter];
    for (std::size_t i = 0; i < p.shape.elems(); ++i)
      sum += std::pow(static_cast<double>(params[p.offset + i]), power);
    return sum / static_cast<double>(p.shape.elems());
  }
};

TEST_CASE("each parameter has its distribution") {
  const Model model(1);
  CHECK(std::fabs(model.moment(0, 1)) < 4 * 0.02 / std::sqrt(333.0 * 301));
  CHECK(model.moment(0, 2) == doctest::Approx(0.02 * 0.02).epsilon(0.02));
  CHECK(model.moment(0, 4) == doctest::Approx(3 * std::pow(0.02, 4)).epsilon(0.05));
  CHECK(std::fabs(model.moment(3, 1)) < 4 * 0.5 / std::sqrt(3.0 * 100001));
  CHECK(model.moment(3, 2) == doctest::Approx(0.25 / 3).epsilon(0.02));
  const Parameter& uniform = model.table[3];
  float low = 0, high = 0;
  for (std::size_t i = 0; i < uniform.shape.elems(); ++i) {
    low = std::fmin(low, model.params[uniform.offset + i]);
    high = std::fmax(high, model.params[uniform.offset + i]);
  }
  CHECK(low >= -0.5F);
  CHECK(low < -0.499F);
  CHECK(high <= 0.5F);
  CHECK(high > 0.499F);
  for (std::size_t i = 0; i < 5; ++i) CHECK(model.params[model.table[1].offset + i] == 1);
  for (std::size_t i = 0; i < 3; ++i) CHECK(model.params[model.table[4].offset + i] == 0);
}

TEST_CASE("padding is zero, and a tied duplicate changes nothing") {
  const Model model(1);
  CHECK(model.params[model.table[1].offset + 5] == 0);
  CHECK(model.params[model.table[1].offset + 15] == 0);
  CHECK(model.params[model.elems - 1] == 0);
  CHECK(std::fabs(model.params[0]) < 1);
}

TEST_CASE("parameters and seeds draw different numbers, a seed the same again") {
  const Model model(1), again(1), other(2);
  CHECK(model.params[0] != model.params[model.table[2].offset]);
  CHECK(model.params[0] != other.params[0]);
  CHECK(std::memcmp(model.params.data(), again.params.data(), model.elems * sizeof(float)) == 0);
}

TEST_CASE("the bits do not depend on the number of threads") {
  const Model one(5);
  for (int threads : {2, 3}) {
    const Model other(5, threads);
    CHECK(std::memcmp(one.params.data(), other.params.data(), one.elems * sizeof(float)) == 0);
  }
}

}}  // namespace initialize_test
