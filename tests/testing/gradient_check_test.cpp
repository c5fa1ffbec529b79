// SPDX-License-Identifier: MIT
// A checker that cannot fail is worth nothing: here are layers that are wrong in one way each.
#include <doctest/doctest.h>
#include <adacc/testing/gradient_check.hpp>
#include <array>
#include <string>
#include <vector>

namespace gradient_check_test {

using namespace adacc;
using namespace adacc::testing;

namespace {

/// What a Faulty layer does wrong.
enum class Fault {
  none,
  gradient,
  parameter_gradient,
  one_element,
  dx_added,
  dx_left_out,
  parameter_gradient_overwritten,
  state,
  forward_workspace_overrun,
  backward_workspace_overrun,
  aux_overrun,
  workspace_read_first,
  workers,
  order,
  worker_count,
  y_left_out,
  reads_undeclared,
  not_in_place,
  changes_x,
  changes_aux,
  gap_written,
  nested,
  evaluation,
  nan,
  split,
  packed_of_part,
  packed_overrun,
  random_key,
};

/// y = weight * x^2 + sum(x) / 8 per row, correct but for its fault. aux: the rows' sums.
template <Fault fault>
struct Faulty {
  static constexpr auto backward_reads =
      fault == Fault::reads_undeclared ? reads::none : reads::input;
  static constexpr LayerFacts facts{.dx_overwrites_dy = true};
  static constexpr Reads reads_when(Wanted) { return backward_reads; }
  static constexpr auto split = Split::rows;
  mutable double calls = 0;

  std::array<ParameterSpec, 2> parameters(Shape in) const {
    return {ParameterSpec{"weight", Shape(in.cols()), Init::normal(1)},
            ParameterSpec{"unused", Shape(3), Init::zeros()}};
  }
  /// An eighth, which is made once.
  constexpr LayerNeeds needs(Shape in, NeedsQuery query) const {
    return {.aux = in.rows() * bytes_of(query.scalar),
            .workspace = static_cast<std::size_t>(query.workers) * 3 * bytes_of(query.scalar),
            .packed = query.pass == Pass::forward ? bytes_of(query.scalar) : 0};
  }

  template <class T>
  T eighth(const ForwardCall<T>& call) const {
    if (call.packed.empty()) return T(0.125);
    auto* const kept = static_cast<T*>(static_cast<void*>(call.packed.data()));
    if (!call.packed_holds) kept[0] = T(0.125);
    if (fault == Fault::packed_of_part && !call.packed_holds) kept[0] += T(1e-12) * call.x[0];
    if (fault == Fault::packed_overrun)
      ++reinterpret_cast<unsigned char&>(call.packed.data()[call.packed.size()]);
    return kept[0];
  }

  template <class T>
  void forward(Cpu& cpu, const ForwardCall<T>& call) const {
    const T share = eighth(call);
    auto* const sums = static_cast<T*>(static_cast<void*>(call.aux.data()));
    auto* const scratch = static_cast<T*>(static_cast<void*>(call.workspace.data()));
    const std::size_t cols = call.x.cols();
    std::size_t finished = 0;
    if (fault == Fault::state) calls += 1;
    cpu.parallel(call.x.rows(), [&](std::size_t r, int worker) {
      T sum = 0;
      for (std::size_t c = 0; c < cols; ++c) sum += call.x[r * cols + c];
      if (fault == Fault::workers) sum += T(1e-12) * static_cast<T>(worker);
      if (fault == Fault::worker_count) sum += T(1e-12) * static_cast<T>(cpu.workers());
      if (fault == Fault::order) sum += T(1e-12) * static_cast<T>(finished++);
      if (fault == Fault::state) sum += T(1e-12) * static_cast<T>(calls);
      if (fault == Fault::random_key) sum += T(1e-12) * static_cast<T>(cpu.key.step);
      if (fault == Fault::evaluation && !cpu.training) sum *= 2;
      if (fault == Fault::split) sum += T(0.01) * static_cast<T>(r);  // the row of this part
      if (fault == Fault::workspace_read_first) sum += T(1e-3) * scratch[0];
      if (fault == Fault::nested) cpu.parallel(2, [](std::size_t, int) {});
      sums[r] = sum;
      for (std::size_t c = 0; c < cols; ++c) {
        const T v = call.x[r * cols + c];
        if (fault == Fault::y_left_out && r == 0 && c == 0) continue;
        call.y[r * cols + c] = call.params[0][c] * v * v + sum * share;
      }
    });
    if (fault == Fault::forward_workspace_overrun)
      ++reinterpret_cast<unsigned char&>(call.workspace.data()[call.workspace.size()]);
    if (fault == Fault::aux_overrun)
      ++reinterpret_cast<unsigned char&>(call.aux.data()[call.aux.size()]);
    if (fault == Fault::changes_x) const_cast<T&>(call.x[0]) += 1;
    if (fault == Fault::nan) call.y[0] = call.y[0] / T(0) * T(0);
  }

  template <class T>
  void backward(Cpu&, const BackwardCall<T>& call) const {
    const std::size_t cols = call.dy.cols();
    for (std::size_t c = 0; c < cols; ++c) {
      T sum = 0;
      for (std::size_t r = 0; r < call.dy.rows(); ++r) {
        const T v = call.x[r * cols + c];
        sum += call.dy[r * cols + c] * v * v;
      }
      if (fault == Fault::parameter_gradient) sum *= T(1.0001);
      if (call.dparams[0].empty()) continue;
      if (fault == Fault::parameter_gradient_overwritten) call.dparams[0][c] = sum;
      else call.dparams[0][c] += sum;
    }
    if (fault == Fault::gap_written && !call.dparams[1].empty()) call.dparams[1][3] = 0;
    if (fault == Fault::backward_workspace_overrun)
      ++reinterpret_cast<unsigned char&>(call.workspace.data()[call.workspace.size()]);
    if (fault == Fault::changes_aux)
      ++reinterpret_cast<unsigned char&>(const_cast<std::byte&>(call.aux.data()[0]));
    if (call.dx.empty()) return;
    if (fault == Fault::not_in_place)
      for (std::size_t i = 0; i < call.dx.size(); ++i) call.dx[i] = 0;
    for (std::size_t r = 0; r < call.dy.rows(); ++r) {
      T total = 0;
      for (std::size_t c = 0; c < cols; ++c) total += call.dy[r * cols + c];
      for (std::size_t c = 0; c < cols; ++c) {
        const std::size_t i = r * cols + c;
        T gradient = 2 * call.params[0][c] * call.x[i] * call.dy[i] + total / 8;
        if (fault == Fault::gradient) gradient *= T(1.0001);
        if (fault == Fault::one_element && i == 7) gradient += T(1e-4);
        if (fault == Fault::dx_added) call.dx[i] += gradient;
        else if (fault != Fault::dx_left_out || i != 7) call.dx[i] = gradient;
      }
    }
  }
};

template <Fault fault>
GradientCheckResult check() {
  return gradient_check(Faulty<fault>{}, Shape{5, 4});
}

void expect(const GradientCheckResult& result, const char* words) {
  CHECK(!result.passed);
  CHECK(!result);
  CHECK_MESSAGE(std::string(result.text()).find(words) != std::string::npos, result.text());
  CHECK(std::string(result.text()).rfind("failed: ", 0) == 0);
}

enum class LossFault {
  none,
  gradient,
  value,
  overwritten,
  dx_added,
  workspace,
  state,
  workers,
  split
};

/// Half the mean of weight * (x - target)^2, tokens as targets, correct but for its fault.
template <LossFault fault>
struct FaultyLoss {
  using target_type = std::int32_t;
  static constexpr LayerFacts facts{.dx_overwrites_x = true};
  static constexpr auto split = Split::rows;
  mutable double calls = 0;

  std::array<ParameterSpec, 1> parameters(Shape) const {
    return {ParameterSpec{"weight", Shape(1), Init::constant(1)}};
  }
  constexpr LayerNeeds needs(Shape, NeedsQuery query) const {
    return {.workspace = query.pass == Pass::forward ? std::size_t{0} : std::size_t{5}};
  }

  template <class T>
  double forward(Cpu& cpu, const LossCall<T, std::int32_t>& call) const {
    double sum = 0;
    for (std::size_t i = 0; i < call.x.size(); ++i) {
      const double d = static_cast<double>(call.x[i]) - call.targets[i];
      sum += 0.5 * static_cast<double>(call.params[0][0]) * d * d;
    }
    if (fault == LossFault::state) sum += 1e-9 * ++calls;
    if (fault == LossFault::workers) sum += 1e-12 * cpu.workers();
    return sum / elems(call);
  }
  template <class T>
  double forward_backward(Cpu& cpu, const LossCall<T, std::int32_t>& call) const {
    double loss = forward(cpu, call);
    if (fault == LossFault::value) loss *= 1.001;
    const T n = static_cast<T>(elems(call));
    T weight_gradient = 0;
    for (std::size_t i = 0; i < call.x.size(); ++i) {
      const T d = call.x[i] - static_cast<T>(call.targets[i]);
      weight_gradient += d * d / 2 / n;
      T gradient = call.params[0][0] * d / n;
      if (fault == LossFault::gradient) gradient *= T(1.001);
      if (fault == LossFault::dx_added) call.dx[i] += gradient;
      else call.dx[i] = gradient;
    }
    if (fault == LossFault::overwritten) call.dparams[0][0] = weight_gradient;
    else call.dparams[0][0] += weight_gradient;
    if (fault == LossFault::workspace)
      ++reinterpret_cast<unsigned char&>(call.workspace.data()[call.workspace.size()]);
    return loss;
  }

 private:
  /// Of all parts together.
  template <class T>
  static double elems(const LossCall<T, std::int32_t>& call) {
    const bool whole = call.part.whole == 0 || fault == LossFault::split;
    return static_cast<double>((whole ? call.x.rows() : call.part.whole) * call.x.cols());
  }
};

template <LossFault fault>
GradientCheckResult check_loss() {
  static const std::int32_t targets[] = {0, 3, 1, 2, 2, 0};
  return gradient_check_loss(FaultyLoss<fault>{}, Shape{2, 3},
                             View<const std::int32_t>(targets, Shape{2, 3}));
}

}  // namespace

namespace {

enum class WantedFault { none, other_dx, other_gradient, reads_undeclared, reads_more, not_all };

/// y = w x + b, correct but for what it does if not all gradients are wanted.
template <WantedFault fault>
struct Choosy {
  static constexpr auto backward_reads = reads::input;
  constexpr Reads reads_when(Wanted wanted) const {
    if (fault == WantedFault::reads_more && !wanted.dx) return reads::both;
    if (fault == WantedFault::not_all) return reads::none;
    const bool reads = wanted.parameter(0) && fault != WantedFault::reads_undeclared;
    return reads || wanted.everything() ? reads::input : reads::none;
  }
  std::array<ParameterSpec, 2> parameters(Shape in) const {
    return {ParameterSpec{"w", Shape(in.cols())}, ParameterSpec{"b", Shape(in.cols())}};
  }
  template <class T>
  void forward(Cpu&, const ForwardCall<T>& call) const {
    for (std::size_t i = 0; i < call.x.size(); ++i)
      call.y[i] = call.params[0][i % call.x.cols()] * call.x[i] + call.params[1][i % call.x.cols()];
  }
  template <class T>
  void backward(Cpu&, const BackwardCall<T>& call) const {
    const View<T> dw = call.dparams[0], db = call.dparams[1];
    const T off = dw.empty() ? T(1.0001) : T(1);
    for (std::size_t i = 0; i < call.dy.size(); ++i) {
      const std::size_t c = i % call.dy.cols();
      if (!dw.empty()) dw[c] += call.x[i] * call.dy[i];
      if (!db.empty()) db[c] += call.dy[i] * (fault == WantedFault::other_gradient ? off : T(1));
      if (!call.dx.empty())
        call.dx[i] = call.params[0][c] * call.dy[i] * (fault == WantedFault::other_dx ? off : T(1));
    }
  }
};

template <WantedFault fault>
GradientCheckResult check_choosy() {
  return gradient_check(Choosy<fault>{}, Shape{5, 4});
}

}  // namespace

TEST_CASE("gradient check: what becomes of the others if some gradients are not wanted") {
  const auto good = check_choosy<WantedFault::none>();
  CHECK_MESSAGE(good.passed, std::string(good.text()));
  expect(check_choosy<WantedFault::other_dx>(), "others have other bits");
  expect(check_choosy<WantedFault::other_gradient>(), "others have other bits");
  expect(check_choosy<WantedFault::reads_undeclared>(), "others have other bits");
  expect(check_choosy<WantedFault::reads_more>(), "names more than backward_reads");
  expect(check_choosy<WantedFault::not_all>(), "the gradient of w");
}

TEST_CASE("gradient check: a layer without fault passes, and every gradient is compared") {
  const auto result = check<Fault::none>();
  CHECK_MESSAGE(result.passed, result.text());
  CHECK(result.compared == 5 * 4 + 4 + 3);
  CHECK(result.max_relative_error < 1e-7);
  CHECK(std::string(result.text()).rfind("passed", 0) == 0);
}

TEST_CASE("gradient check: wrong gradients are found and named") {
  const auto gradient = check<Fault::gradient>();
  expect(gradient, "gradient of dx");
  CHECK(std::string(gradient.tensor) == "dx");
  CHECK(gradient.max_relative_error == doctest::Approx(1e-4).epsilon(0.01));
  CHECK(gradient.analytic == doctest::Approx(gradient.numeric * 1.0001));
  const auto parameter = check<Fault::parameter_gradient>();
  expect(parameter, "gradient of weight");
  CHECK(std::string(parameter.tensor) == "weight");
  const auto element = check<Fault::one_element>();
  expect(element, "dx[7]");
  CHECK(element.element == 7);
  expect(check<Fault::nan>(), "gradient of");
}

TEST_CASE("gradient check: broken promises about buffers are found") {
  expect(check<Fault::dx_added>(), "dx depends on what it held before");
  expect(check<Fault::dx_left_out>(), "dx depends on what it held before");
  expect(check<Fault::parameter_gradient_overwritten>(), "accumulated");
  expect(check<Fault::y_left_out>(), "unwritten");
  expect(check<Fault::forward_workspace_overrun>(), "forward wrote outside its workspace");
  expect(check<Fault::backward_workspace_overrun>(), "backward wrote outside its workspace");
  expect(check<Fault::aux_overrun>(), "outside aux");
  expect(check<Fault::workspace_read_first>(), "what the workspace held before");
  expect(check<Fault::gap_written>(), "outside a parameter's gradient");
  expect(check<Fault::changes_x>(), "changed x");
  expect(check<Fault::changes_aux>(), "changed y or aux");
  expect(check<Fault::not_in_place>(), "dx_overwrites_dy");
  expect(check<Fault::reads_undeclared>(), "gradient of");
}

TEST_CASE("gradient check: state, order and threads are found") {
  expect(check<Fault::state>(), "second forward");
  expect(check<Fault::workers>(), "workers and tiles in another order");
  expect(check<Fault::order>(), "tiles in another order");
  expect(check<Fault::worker_count>(), "2 workers");
  expect(check<Fault::nested>(), "a tile called parallel");
  expect(check<Fault::random_key>(), "another random key");
  expect(check<Fault::evaluation>(), "gradient of");
  expect(check<Fault::split>(), "parts of the (5, 4) input do not add up");
  expect(check<Fault::packed_of_part>(), "other bits than without");
  expect(check<Fault::packed_overrun>(), "more than its packed bytes");
}

TEST_CASE("gradient check: losses") {
  const auto good = check_loss<LossFault::none>();
  CHECK_MESSAGE(good.passed, good.text());
  CHECK(good.compared == 7);
  expect(check_loss<LossFault::gradient>(), "gradient of dx");
  expect(check_loss<LossFault::value>(), "different losses");
  expect(check_loss<LossFault::overwritten>(), "accumulated");
  expect(check_loss<LossFault::dx_added>(), "dx depends on what it held before");
  expect(check_loss<LossFault::workspace>(), "outside its workspace");
  expect(check_loss<LossFault::state>(), "second call");
  expect(check_loss<LossFault::workers>(), "2 workers");
  expect(check_loss<LossFault::split>(), "parts of the (2, 3) input do not add up");
}

TEST_CASE("gradient check: input that does not fit is refused in words") {
  const double three[3] = {};
  expect(gradient_check(Faulty<Fault::none>{}, Shape{5, 4},
                        {.x = View<const double>(three, Shape(3))}),
         "options.x has 3 elements");
  expect(gradient_check(Faulty<Fault::none>{}, Shape{5, 0}), "no elements");
  expect(
      gradient_check_loss(FaultyLoss<LossFault::none>{}, Shape{2, 3}, View<const std::int32_t>()),
      "0 targets");
}

TEST_CASE("gradient check: only as many elements as asked for, spread over the tensor") {
  const auto result = gradient_check(Faulty<Fault::none>{}, Shape{5, 4}, {.max_elements = 4});
  CHECK_MESSAGE(result.passed, result.text());
  CHECK(result.compared == 4 + 4 + 3);
}

TEST_CASE("guarded block: aligned, exact, and it notices one byte on either side") {
  for (const std::size_t size : {0U, 1U, 63U, 64U, 1000U}) {
    GuardedBlock block(size);
    CHECK(reinterpret_cast<std::uintptr_t>(block.data()) % alignment == 0);
    block.fill(0);
    CHECK(block.intact());
    ++reinterpret_cast<unsigned char&>(block.data()[size]);
    CHECK(!block.intact());
    --reinterpret_cast<unsigned char&>(block.data()[size]);
    CHECK(block.intact());
    --reinterpret_cast<unsigned char&>(*(block.data() - 1));
    CHECK(!block.intact());
  }
}

TEST_CASE("permuted executor: every tile once, workers in range, order not that of the tiles") {
  PermutedExecutor executor(3);
  std::vector<std::size_t> order;
  bool in_range = true, several = false;
  const auto tile = [&](std::size_t i, int worker) {
    order.push_back(i);
    in_range &= worker >= 0 && worker < 3;
    several |= worker > 0;
  };
  executor.run(20, TileFn(tile));
  std::vector<int> calls(20);
  bool permuted = false;
  for (std::size_t i = 0; i < order.size(); ++i) ++calls[order[i]], permuted |= order[i] != i;
  CHECK(calls == std::vector<int>(20, 1));
  CHECK(in_range);
  CHECK(several);
  CHECK(permuted);
}

}  // namespace gradient_check_test
