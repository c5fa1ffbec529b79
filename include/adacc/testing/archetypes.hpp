// SPDX-License-Identifier: MIT
/// The smallest functor, loss, codec, context, optimizer and executor that satisfy each contract.
///
/// Archetypes prove that contracts ask for no more than they say: code that compiles with an archetype needs nothing
/// beyond it. Everything else is deleted here or missing: no default constructor, no assignment, one scalar type, no
/// name, nothing optional.
#pragma once

#include <cstddef>
#include <cstring>

#include "../codec/codec.hpp"
#include "../core/cpu.hpp"
#include "../core/executor.hpp"
#include "../model/contract.hpp"
#include "../optimizer/optimizer.hpp"

namespace adacc { inline namespace v0_1 { namespace testing {

/// The smallest layer functor: y = factor * x, for one scalar type. The functor can be copied, and its backward reads
/// nothing. `Layer<LayerArchetype<float>>{LayerArchetype<float>(2)}` holds the functor; only `Layer`'s default
/// construction would need a default constructor.
template <class T>
class LayerArchetype {
 public:
  constexpr explicit LayerArchetype(T factor) : factor_(factor) {}
  LayerArchetype() = delete;
  constexpr LayerArchetype(const LayerArchetype&) = default;
  LayerArchetype& operator=(const LayerArchetype&) = delete;

  static constexpr auto backward_reads = reads::none;

  void forward(Cpu&, View<const T> x, View<T> y) const { scale(x, y); }
  void backward(Cpu&, View<const T> dy, View<T> dx) const { scale(dy, dx); }

 private:
  void scale(View<const T> from, View<T> to) const {
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = factor_ * from[i];
  }

  T factor_;
};

/// The smallest loss: half the mean squared distance from the targets, for one scalar type.
template <class T>
class LossArchetype {
 public:
  constexpr explicit LossArchetype(T scale) : scale_(scale) {}
  LossArchetype() = delete;
  constexpr LossArchetype(const LossArchetype&) = default;
  LossArchetype& operator=(const LossArchetype&) = delete;

  double forward(Cpu&, const LossCall<T>& call) const {
    double sum = 0;
    for (std::size_t i = 0; i < call.x.size(); ++i) {
      const double distance = static_cast<double>(call.x[i] - call.targets[i]);
      sum += 0.5 * static_cast<double>(scale_) * distance * distance;
    }
    return sum / static_cast<double>(call.x.size());
  }

  double forward_backward(Cpu& cpu, const LossCall<T>& call) const {
    const double loss = forward(cpu, call);
    for (std::size_t i = 0; i < call.x.size(); ++i)
      call.dx[i] = scale_ * (call.x[i] - call.targets[i]) / static_cast<T>(call.x.size());
    return loss;
  }

 private:
  T scale_;
};

/// The smallest codec: a copy. Only the type is used; nobody makes an object of it.
class CodecArchetype {
 public:
  CodecArchetype() = delete;

  static constexpr const char* name = "archetype";

  static constexpr std::size_t encoded_bytes(std::size_t rows, std::size_t cols, Dtype dtype) {
    return rows * cols * bytes_of(dtype);
  }
  template <class T>
  static Error encode(Cpu&, View<const T> x, Bytes blob) {
    std::memcpy(blob.data(), x.data(), blob.size());
    return {};
  }
  template <class T>
  static Error decode(Cpu&, ConstBytes blob, View<T> x) {
    std::memcpy(x.data(), blob.data(), blob.size());
    return {};
  }
};

/// The smallest execution context: no threads, no parts, and no copies.
class ContextArchetype : public KernelCall {
 public:
  static constexpr bool runs_parts = false;

  ContextArchetype() = default;
  ContextArchetype(const ContextArchetype&) = delete;
  ContextArchetype& operator=(const ContextArchetype&) = delete;

  int workers() const { return 1; }

  template <class T>
  void fill(View<T> to, T value) {
    for (T& x : to) x = value;
  }
  template <class T>
  void accumulate(View<const T> from, View<T> to) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
  }

  class Loss {
   public:
    void clear() { sum_ = 0; }
    void add(double share) { sum_ += share; }
    double value() const { return sum_; }

   private:
    double sum_ = 0;
  };
};

/// The smallest context whose kernels have memory of their own, and all that such a one may declare:
/// here they run at once, and in the host's memory.
class DeviceArchetype : public ContextArchetype {
 public:
  Error take_error() { return {}; }
  Error take_any_error() { return {}; }
  static Error memory_fault(const char*, const void*, std::size_t) { return {}; }
  static Error host_memory_fault(const char*, const void*, std::size_t) { return {}; }
  const void* stream() const { return nullptr; }

  void copy(const char*, ConstBytes from, Bytes to) {
    if (from.size() != 0) std::memcpy(to.data(), from.data(), from.size());
  }
  void set_bytes(const char*, Bytes to, unsigned char value) {
    if (to.size() != 0) std::memset(to.data(), value, to.size());
  }
  void widen(const char*, View<const bfloat16> from, View<float> to) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = to_float(from[i]);
  }
  void gather(const std::byte* from, const Pieces& pieces, std::byte* to) {
    for (std::size_t i = 0; i < pieces.count; ++i)
      std::memcpy(to + i * pieces.bytes, from + pieces.first + i * pieces.stride, pieces.bytes);
  }

  bool memory_is_checked = false;

  class Loss : public ContextArchetype::Loss {
   public:
    Error fault() const { return {}; }
  };
};

/// The smallest optimizer: p -= rate * factor * scale * gradient, without state.
class OptimizerArchetype {
 public:
  static constexpr const char* name = "archetype";
  static constexpr std::size_t state_count = 0;

  constexpr OptimizerArchetype() = default;  // Options and Result hold one
  constexpr explicit OptimizerArchetype(float factor) : factor_(factor) {}

  template <class T>
  void update(const ParameterRange<T>& range, const UpdateTerms& terms) const {
    for (std::size_t e = range.first; e < range.first + range.count; ++e) {
      range.values[e] -=
          static_cast<T>(terms.rate * terms.scale) * static_cast<T>(factor_) * range.gradient[e];
      range.gradient[e] = 0;
    }
  }

 private:
  float factor_ = 1;
};

/// The smallest executor: runs tiles on the calling thread, last one first. Objects can be neither copied nor moved,
/// and `run` is not const.
class ExecutorArchetype {
 public:
  explicit ExecutorArchetype(int workers) : workers_(workers) {}
  ExecutorArchetype(const ExecutorArchetype&) = delete;
  ExecutorArchetype& operator=(const ExecutorArchetype&) = delete;

  int workers() const { return workers_; }

  void run(std::size_t tiles, TileFn tile) {
    for (std::size_t i = tiles; i > 0; --i)
      tile(i - 1, static_cast<int>((i - 1) % static_cast<std::size_t>(workers_)));
  }

 private:
  int workers_;
};

}}}  // namespace adacc::v0_1::testing
