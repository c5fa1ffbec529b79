// SPDX-License-Identifier: MIT
#include <adacc/testing/optimizer_check.hpp>

#include <doctest/doctest.h>

#include <adacc/core/block.hpp>
#include <adacc/optimizer/adafactor.hpp>
#include <adacc/optimizer/any_optimizer.hpp>
#include <adacc/optimizer/lion.hpp>
#include <adacc/optimizer/sgd.hpp>
#include <adacc/testing/archetypes.hpp>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "../train/support.hpp"

namespace optimizer_test { namespace {

using namespace adacc;

template <class Optimizer>
void passes(const Optimizer& optimizer) {
  const Error why = testing::check_optimizer(optimizer);
  CHECK_MESSAGE(!why, optimizer.name, ": ", why.text());
}

TEST_CASE("ready-made optimizers keep the contract, in every form of their moments") {
  passes(AdamW{.weight_decay = 0.1F});
  passes(AdamWWith<Bf16Moments>{});
  passes(AdamWWith<Int8Moments>{.weight_decay = 0.1F});
  passes(AdamWWith<Bf16Moments, Int8Moments>{});
  passes(Sgd{});
  passes(SgdWith<Bf16Moments>{});
  passes(SgdWith<Int8Moments>{});
  passes(Lion{.weight_decay = 0.1F});
  passes(LionWith<Bf16Moments>{});
  passes(LionWith<Int8Moments>{});
  passes(Adafactor{.weight_decay = 0.1F});
  passes(testing::OptimizerArchetype(1));
  passes(AnyOptimizer(AdamWWith<Int8Moments>{}));
  passes(AnyOptimizer(Adafactor{}));
}

/// Breaks the contract in one way.
enum class Fault { order, padding, gradient, rate, idle, zeros, pieces };
template <Fault fault>
struct Faulty {
  static constexpr const char* name = "faulty";
  static constexpr std::size_t state_count = 1;
  static constexpr bool elementwise = fault == Fault::pieces;
  static StateSpec state(std::size_t, const ParameterSpec& parameter) {
    return {"sum", parameter.shape.elems()};
  }
  template <class T>
  void update(const ParameterRange<T>& range, const UpdateTerms& terms) const {
    const std::size_t end = range.first + range.count;
    T* const sum = range.numbers(0);
    for (std::size_t e = range.first; e < end; ++e) {
      sum[e] += range.gradient[e] + (fault == Fault::zeros ? T{1} : T{0});
      if (fault != Fault::idle)
        range.values[e] -= static_cast<T>(fault == Fault::rate ? 0.1 : terms.rate) * sum[e];
      if (fault != Fault::gradient) range.gradient[e] = 0;
      // By its place in the piece, not in the parameter.
      if (fault == Fault::pieces) sum[e] += static_cast<T>(terms.rate) * static_cast<T>(e);
    }
    // The sum of a neighbour, which may or may not have been there.
    if (fault == Fault::order && range.first > 0)
      range.values[range.first] += sum[range.first - 1] * static_cast<T>(terms.rate);
    if (fault == Fault::padding && end == range.elems()) range.values[end] = 0;
  }
};

TEST_CASE("the check finds what the contract forbids") {
  const auto finds = [](const Error& why, const char* what) {
    CHECK_MESSAGE(std::string(why.text()).find(what) != std::string::npos, why.text());
  };
  finds(testing::check_optimizer(Faulty<Fault::order>{}), "in another order");
  finds(testing::check_optimizer(Faulty<Fault::padding>{}), "padding");
  finds(testing::check_optimizer(Faulty<Fault::gradient>{}), "was not cleared");
  finds(testing::check_optimizer(Faulty<Fault::rate>{}), "at the rate 0");
  finds(testing::check_optimizer(Faulty<Fault::idle>{}), "changed no parameter");
  finds(testing::check_optimizer(Faulty<Fault::zeros>{}), "did not stay zero");
  finds(testing::check_optimizer(Faulty<Fault::pieces>{}), "in pieces");
}

/// One matrix, updated in place.
template <class T = double>
struct Matrix {
  Array<Parameter> table{1};
  std::size_t elems;
  std::vector<T> p, g;
  Block<std::byte> state;
  UpdateTable layout;

  explicit Matrix(const AnyOptimizer& optimizer, Shape shape) : elems(shape.elems()) {
    table[0].shape = shape;
    p.assign(elems, 1);
    g.assign(elems, 0);
    layout = *UpdateTable::make(optimizer, table, dtype_of<T>);
    state = *Block<std::byte>::make(layout.bytes(), "state");
  }
  void update(const AnyOptimizer& optimizer, std::uint64_t t, double rate) {
    Cpu cpu;
    layout.update(optimizer, cpu, table,
                  UpdateMemory<T>{{p.data(), Shape(elems)}, {g.data(), Shape(elems)}, state.view()},
                  UpdateTerms{t, rate, 2, {7, static_cast<std::uint32_t>(t)}});
  }
};

TEST_CASE("Lion computes its formula") {
  const Lion lion{.beta1 = 0.8F, .beta2 = 0.9F, .weight_decay = 0.5F};
  Matrix<> matrix(lion, Shape(3, 50));
  const double b1 = lion.beta1, b2 = lion.beta2;
  double m = 0, p = 1;
  for (std::uint64_t t = 1; t < 6; ++t) {
    const double g = t == 3 ? -4 : 0.25;  // in the third, the mix changes sign and the momentum not
    for (double& value : matrix.g) value = g;
    matrix.update(lion, t, 0.125);
    p -= 0.125 * ((b1 * m + (1 - b1) * 2 * g > 0 ? 1 : -1) + 0.5 * p);
    m = b2 * m + (1 - b2) * 2 * g;
    CHECK(matrix.p[149] == doctest::Approx(p).epsilon(1e-12));
  }
}

TEST_CASE("Adafactor computes its formula") {
  constexpr std::size_t rows = 130, cols = 300;  // several ranges of rows, and a piece of columns
  const Adafactor adafactor{.weight_decay = 0.1F};
  Matrix<> matrix(adafactor, Shape(rows, cols));
  std::vector<double> r(rows), c(cols), p(rows * cols, 1), u(rows * cols);
  for (int t = 1; t <= 3; ++t) {
    const double fresh = std::pow(t, -static_cast<double>(adafactor.decay_power));
    const auto g = [&](std::size_t i, std::size_t j) {
      return std::sin(static_cast<double>(i * cols + j) + t) * (i == 7 ? 100 : 1);
    };
    double mean = 0, rms = 0;
    for (std::size_t i = 0; i < rows; ++i) {
      double sum = 0;
      for (std::size_t j = 0; j < cols; ++j) {
        matrix.g[i * cols + j] = g(i, j) / 2;
        sum += g(i, j) * g(i, j);
      }
      r[i] = (1 - fresh) * r[i] + fresh * sum / cols;
      mean += r[i] / rows;
    }
    for (std::size_t j = 0; j < cols; ++j) {
      double sum = 0;
      for (std::size_t i = 0; i < rows; ++i) sum += g(i, j) * g(i, j);
      c[j] = (1 - fresh) * c[j] + fresh * sum / rows;
    }
    for (std::size_t e = 0; e < p.size(); ++e) {
      u[e] = g(e / cols, e % cols) / std::sqrt(r[e / cols] * c[e % cols] / mean);
      rms += u[e] * u[e] / static_cast<double>(p.size());
    }
    rms = std::sqrt(rms);
    matrix.update(adafactor, static_cast<std::uint64_t>(t), 0.01);
    double worst = 0;
    const double decay = adafactor.weight_decay;
    for (std::size_t e = 0; e < p.size(); ++e) {
      p[e] -= 0.01 * (u[e] / std::fmax(1, rms) + decay * p[e]);
      worst = std::fmax(worst, std::fabs(matrix.p[e] - p[e]));
    }
    CHECK(worst < 1e-12);
  }
}

TEST_CASE("what an optimizer keeps: bytes of each form, and in words") {
  const auto kept = [](const AnyOptimizer& optimizer) {
    Array<Parameter> table(1);
    table[0].shape = Shape(1000, 1000);
    const auto layout = UpdateTable::make(optimizer, table, Dtype::f32);
    return std::to_string(layout->bytes()) + '\n' + layout->text();
  };
  CHECK(kept(AdamW{}) == "8000000\nAdamW\nfirst moment: full 4000000\nsecond moment: full 4000000");
  CHECK(kept(AdamWWith<Bf16Moments>{}) ==
        "4000000\nAdamW\nfirst moment: bf16 2000000\nsecond moment: bf16 2000000");
  // 7813 blocks of 128: 31252 bytes of scales, to the next multiple of 64.
  CHECK(kept(LionWith<Int8Moments>{}) == "1031296\nLion\nmomentum: int8 1031296");
  CHECK(kept(Adafactor{}) ==
        "8256\nAdafactor\nsecond moment, rows: full 4032\nsecond moment, columns: full 4032\n"
        "sums of the update: full 192");
}

/// Of another form in vectors than in matrices.
struct Moody {
  static constexpr const char* name = "moody";
  static constexpr std::size_t state_count = 1;
  static StateSpec state(std::size_t, const ParameterSpec& parameter) {
    return {"sum", 1, parameter.shape.rank() == 1 ? StateForm::bf16 : StateForm::full};
  }
  template <class T>
  void update(const ParameterRange<T>&, const UpdateTerms&) const {}
};

TEST_CASE("a form that differs between parameters is refused") {
  Array<Parameter> table(2);
  table[0].shape = Shape(2, 2);
  table[1].shape = Shape(2);
  const auto layout = UpdateTable::make(Moody{}, table, Dtype::f32);
  REQUIRE_FALSE(layout);
  CHECK(std::string(layout.error.text()).find("another form") != std::string::npos);
}

}}  // namespace optimizer_test
