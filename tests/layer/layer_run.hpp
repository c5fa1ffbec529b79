// SPDX-License-Identifier: MIT
/// One forward and backward of a layer on random data, for the tests in this folder: in float, double
/// or bfloat16, on real threads.
#pragma once

#include <adacc/core/cpu.hpp>
#include <adacc/core/guarded.hpp>
#include <adacc/core/random.hpp>
#include <adacc/model/contract.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <thread>
#include <type_traits>
#include <vector>

namespace layer_tests {

/// Tiles dealt to threads in turn.
class Threads {
 public:
  explicit Threads(int workers) : workers_(workers) {}
  int workers() const { return workers_; }
  void run(std::size_t tiles, adacc::TileFn tile) const {
    std::vector<std::thread> threads;
    for (int worker = 0; worker < workers_; ++worker)
      threads.emplace_back([=, this] {
        const auto step = static_cast<std::size_t>(workers_);
        for (std::size_t i = static_cast<std::size_t>(worker); i < tiles; i += step)
          tile(i, worker);
      });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  int workers_;
};

/// The value that element i of stream `stream` has in every scalar type, in [-3, 3).
inline float value(std::uint32_t stream, std::size_t i) {
  const adacc::RandomKey key{99, 0, 0, stream, adacc::Purpose::probe};
  return 6 * adacc::unit_float(adacc::random_word(key, i)) - 3;
}

template <class T>
struct Results {
  std::vector<T> y, dx;
  std::vector<adacc::Wide<T>> gradients;
  std::vector<unsigned char> aux;

  bool operator==(const Results& other) const {
    return same(y, other.y) && same(dx, other.dx) && same(gradients, other.gradients) &&
           aux == other.aux;
  }

 private:
  template <class U>
  static bool same(const std::vector<U>& a, const std::vector<U>& b) {
    return a.size() == b.size() &&
           (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(U)) == 0);
  }
};

/// A number as an activation of T.
template <class T>
T activation(float x) {
  if constexpr (std::is_same_v<T, adacc::bfloat16>) return adacc::to_bfloat16(x);
  else return x;
}
inline double number(adacc::bfloat16 x) { return static_cast<double>(adacc::to_float(x)); }
inline double number(double x) { return x; }

/// Runs `f` on `in` with `workers` threads (0: without an executor). Parameters are near 1, x and
/// dy in [-3, 3), tokens below `vocab`. rounded: x, dy and parameters are numbers of bfloat16.
template <class T, class F>
Results<T> run(const F& f, adacc::Shape in, int workers, std::size_t vocab = 1,
               bool rounded = false) {
  using namespace adacc;
  using W = Wide<T>;
  const auto value = [&](std::uint32_t stream, std::size_t i) {
    const float any = layer_tests::value(stream, i);
    return rounded ? to_float(to_bfloat16(any)) : any;
  };
  using X = input_type_of<F, T>;
  using Traits = layer_traits<F>;
  Threads threads(workers);
  Cpu cpu = workers > 0 ? Cpu(ExecutorRef(threads)) : Cpu();
  cpu.key = RandomKey{5, 4, 3, 2, Purpose::dropout};
  const Shape out = Traits::output_shape(f, in);
  std::vector<Parameter> params;
  std::size_t elems = 0;
  Traits::parameters(f, in, [&](const ParameterSpec& spec) {
    Parameter parameter;
    static_cast<ParameterSpec&>(parameter) = spec;
    parameter.offset = elems;
    elems += align_up(spec.shape.elems() * sizeof(W)) / sizeof(W);
    params.push_back(parameter);
  });
  testing::GuardedBlock values(elems * sizeof(W)), gradients(elems * sizeof(W), 0);
  for (std::size_t p = 0; p < params.size(); ++p)
    for (std::size_t i = 0; i < params[p].shape.elems(); ++i)
      values.as<W>()[params[p].offset + i] =
          1 + W(0.25) * value(10 + static_cast<std::uint32_t>(p), i);
  testing::GuardedBlock x(in.elems() * sizeof(X)), y(out.elems() * sizeof(T)),
      dy(out.elems() * sizeof(T)), dx(std::is_same_v<X, T> ? in.elems() * sizeof(T) : 0);
  for (std::size_t i = 0; i < in.elems(); ++i) {
    if constexpr (std::is_same_v<X, T>) x.as<X>()[i] = activation<T>(value(8, i));
    else x.as<X>()[i] = static_cast<X>(random_word({}, i) % vocab);
  }
  for (std::size_t i = 0; i < out.elems(); ++i) dy.as<T>()[i] = activation<T>(value(9, i));
  testing::GuardedBlock aux(Traits::needs(f, in, {dtype_of<T>}).aux);
  const auto scratch = [&](Pass pass) {
    return testing::GuardedBlock(
        Traits::needs(f, in, {dtype_of<T>, cpu.workers(), pass}).workspace);
  };
  auto forward_scratch = scratch(Pass::forward), backward_scratch = scratch(Pass::backward);
  const Params<const W> parameters(values.as<W>(), params.data(), params.size());
  call_forward(f, cpu,
               ForwardCall<T, X>{.x = View<const X>(x.as<X>(), in),
                                 .y = View<T>(y.as<T>(), out),
                                 .params = parameters,
                                 .aux = aux.bytes(),
                                 .workspace = forward_scratch.bytes()});
  call_backward(f, cpu,
                BackwardCall<T, X>{.x = {x.as<X>(), in},
                                   .y = {y.as<T>(), out},
                                   .dy = {dy.as<T>(), out},
                                   .dx = dx.size() > 0 ? View<T>(dx.as<T>(), in) : View<T>(),
                                   .params = parameters,
                                   .dparams = {gradients.as<W>(), params.data(), params.size()},
                                   .aux = aux.bytes(),
                                   .workspace = backward_scratch.bytes()});
  const auto list = [](const testing::GuardedBlock& block) {
    const T* first = block.as<T>();
    return std::vector<T>(first, first + block.size() / sizeof(T));
  };
  const auto* aux_first = aux.as<unsigned char>();
  std::vector<W> all_gradients;  // without the padding, which differs between scalar types
  for (const Parameter& p : params) {
    const W* first = gradients.as<W>() + p.offset;
    all_gradients.insert(all_gradients.end(), first, first + p.shape.elems());
  }
  return {list(y), list(dx), all_gradients,
          std::vector<unsigned char>(aux_first, aux_first + aux.size())};
}

/// The largest |a - b| / max(1, |b|).
template <class A, class B>
double distance(const std::vector<A>& a, const std::vector<B>& b) {
  double worst = a.size() == b.size() ? 0 : 1e300;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const double expected = number(b[i]);
    const double error =
        std::fabs(number(a[i]) - expected) / (std::fabs(expected) > 1 ? std::fabs(expected) : 1);
    if (!std::isnan(worst) && !(error <= worst)) worst = error;
  }
  return worst;
}

/// The length of a - b beside that of b.
template <class A, class B>
double relative_distance(const std::vector<A>& a, const std::vector<B>& b) {
  double errors = a.size() == b.size() ? 0 : 1e300, squares = 1e-300;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const double error = number(a[i]) - number(b[i]);
    errors += error * error;
    squares += number(b[i]) * number(b[i]);
  }
  return std::sqrt(errors / squares);
}

}  // namespace layer_tests
