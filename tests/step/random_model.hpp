// SPDX-License-Identifier: MIT
/// Random networks for property tests: chains with residual sums, projected or not, and repeated
/// blocks, composed at run time from small layers, under random policies.
///
/// A model is whatever has visit(visitor), so a recipe drawn at run time is one too.
#pragma once

#include <adacc/adacc.hpp>

#include <array>
#include <cstring>
#include <random>
#include <vector>

namespace random_model {

using adacc::BackwardCall;
using adacc::Bytes;
using adacc::ConstBytes;
using adacc::Cpu;
using adacc::Dtype;
using adacc::ForwardCall;
using adacc::LayerNeeds;
using adacc::LossCall;
using adacc::NeedsQuery;
using adacc::Pass;
using adacc::Shape;
using adacc::View;

/// Writes every byte of a workspace, each worker its own part, so that tests see it was used.
inline void use_workspace(Cpu& cpu, Bytes workspace) {
  const auto workers = static_cast<std::size_t>(cpu.workers());
  const std::size_t part = workspace.size() / workers;
  cpu.parallel(workers,
               [&](std::size_t i, int) { std::memset(workspace.data() + i * part, 0x11, part); });
  std::memset(workspace.data() + part * workers, 0x11, workspace.size() - part * workers);
}

/// y = x + b: parameters, reads nothing, dx in place of dy.
struct Shift {
  static constexpr const char* name = "shift";
  static constexpr auto split = adacc::Split::rows;
  static constexpr auto backward_reads = adacc::reads::none;
  static constexpr adacc::LayerFacts facts{.dx_overwrites_dy = true};
  static constexpr std::array<adacc::ParameterSpec, 1> parameters(Shape in) {
    return {{{"bias", Shape(in.cols()), adacc::Init::uniform(0.5F)}}};
  }
  template <class T>
  void forward(Cpu&, const ForwardCall<T>& call) const {
    for (std::size_t i = 0; i < call.x.size(); ++i)
      call.y[i] = call.x[i] + call.params[0][i % call.x.cols()];
  }
  template <class T>
  void backward(Cpu&, const BackwardCall<T>& call) const {
    for (std::size_t i = 0; i < call.dy.size(); ++i)
      call.dparams[0][i % call.dy.cols()] += call.dy[i];
    std::memmove(call.dx.data(), call.dy.data(), call.dy.size() * sizeof(T));
  }
};

/// y = x^2 / (1 + x^2): reads its input, aux of odd size, workspace for every worker.
struct Bump {
  static constexpr const char* name = "bump";
  static constexpr auto split = adacc::Split::rows;
  static constexpr auto backward_reads = adacc::reads::input;
  static constexpr LayerNeeds needs(Shape in, NeedsQuery query) {
    return {.aux = in.rows() + 3,
            .workspace = (in.cols() * 5 + 1) * static_cast<std::size_t>(query.workers) +
                         (query.pass == Pass::forward ? 7 : 0)};
  }

  template <class T>
  void forward(Cpu& cpu, const ForwardCall<T>& call) const {
    use_workspace(cpu, call.workspace);
    std::memset(call.aux.data(), 0x22, call.aux.size());
    for (std::size_t i = 0; i < call.x.size(); ++i)
      call.y[i] = call.x[i] * call.x[i] / (1 + call.x[i] * call.x[i]);
  }
  template <class T>
  void backward(Cpu& cpu, const BackwardCall<T>& call) const {
    use_workspace(cpu, call.workspace);
    T factor = 2;
    for (std::size_t i = 0; i < call.aux.size(); ++i)
      if (call.aux[i] != std::byte{0x22}) factor = 0;  // aux lost: the gradient shows it
    for (std::size_t i = 0; i < call.x.size(); ++i) {
      const T d = 1 + call.x[i] * call.x[i];
      call.dx[i] = call.dy[i] * factor * call.x[i] / (d * d);
    }
  }
};

/// y = x / (1 + |x|): reads its output, the small contract, dx in place of dy.
struct Softsign {
  static constexpr const char* name = "softsign";
  static constexpr auto split = adacc::Split::rows;
  static constexpr auto backward_reads = adacc::reads::output;
  static constexpr adacc::LayerFacts facts{.dx_overwrites_dy = true};
  template <class T>
  void forward(Cpu&, View<const T> x, View<T> y) const {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] / (1 + (x[i] < 0 ? -x[i] : x[i]));
  }
  template <class T>
  void backward(Cpu&, View<const T> y, View<const T> dy, View<T> dx) const {
    for (std::size_t i = 0; i < y.size(); ++i) {
      const T rest = 1 - (y[i] < 0 ? -y[i] : y[i]);
      dx[i] = dy[i] * rest * rest;
    }
  }
};

/// Multiplies the columns by Up / Down: reads both tensors, needs dx of another size.
template <std::size_t Up, std::size_t Down>
struct Resize {
  static constexpr const char* name = Up > Down ? "widen" : "narrow";
  static constexpr auto split = adacc::Split::batch;
  static constexpr auto backward_reads = adacc::reads::both;
  static constexpr adacc::Reads reads_when(adacc::Wanted) { return adacc::Reads::both; }
  static constexpr Shape output_shape(Shape in) { return in.with_cols(in.cols() * Up / Down); }
  template <class T>
  void forward(Cpu&, View<const T> x, View<T> y) const {
    for (std::size_t i = 0; i < y.size(); ++i) {
      T sum = 0;
      for (std::size_t j = 0; j < Down; ++j) sum += x[i / Up * Down + j];
      y[i] = sum * (i % 2 == 0 ? T(0.75) : T(-0.5));
    }
  }
  template <class T>
  void backward(Cpu&, const BackwardCall<T>& call) const {
    const T seen = call.x[0] == call.x[0] && call.y[0] == call.y[0] ? 1 : 0;
    if (call.dx.data() == nullptr) return;
    for (std::size_t i = 0; i < call.dx.size(); ++i) call.dx[i] = 0;
    for (std::size_t i = 0; i < call.dy.size(); ++i)
      for (std::size_t j = 0; j < Down; ++j)
        call.dx[i / Up * Down + j] += seen * call.dy[i] * (i % 2 == 0 ? T(0.75) : T(-0.5));
  }
};
using Widen = Resize<2, 1>;
using Narrow = Resize<1, 2>;

/// Random noise, drawn again in backward: y = x * u.
struct Noise {
  static constexpr const char* name = "noise";
  static constexpr adacc::LayerFacts facts{.draws_numbers = true};
  static constexpr auto split = adacc::Split::rows;
  static constexpr auto backward_reads = adacc::reads::none;
  template <class T>
  void forward(Cpu& cpu, const ForwardCall<T>& call) const {
    scale(cpu, call.part.first, call.x, call.y);
  }
  template <class T>
  void backward(Cpu& cpu, const BackwardCall<T>& call) const {
    scale(cpu, call.part.first, call.dy, call.dx);
  }
  template <class T>
  static void scale(Cpu& cpu, std::size_t row, View<const T> from, View<T> to) {
    const std::size_t begin = row * from.cols();
    for (std::size_t i = 0; i < from.size(); ++i)
      to[i] = from[i] * static_cast<T>(adacc::unit_float(adacc::random_word(cpu.key, begin + i)));
  }
};

struct HalfSquare {
  static constexpr const char* name = "half_square";
  static constexpr auto split = adacc::Split::rows;
  static constexpr adacc::LayerFacts facts{.dx_overwrites_x = true};
  static constexpr LayerNeeds needs(Shape in, NeedsQuery) { return {.workspace = in.cols() + 1}; }

  template <class T>
  double forward(Cpu& cpu, const LossCall<T>& call) const {
    use_workspace(cpu, call.workspace);
    double sum = 0;
    for (std::size_t i = 0; i < call.x.size(); ++i)
      sum +=
          0.5 * static_cast<double>((call.x[i] - call.targets[i]) * (call.x[i] - call.targets[i]));
    return sum;
  }
  template <class T>
  double forward_backward(Cpu& cpu, const LossCall<T>& call) const {
    const double sum = forward(cpu, call);
    for (std::size_t i = 0; i < call.x.size(); ++i) call.dx[i] = call.x[i] - call.targets[i];
    return sum;
  }
};

/// A codec without loss, with a blob larger than its tensor.
struct Verbatim {
  static constexpr const char* name = "verbatim";
  static constexpr bool lossless = true;
  static constexpr std::size_t encoded_bytes(std::size_t rows, std::size_t cols, Dtype dtype) {
    return rows * cols * adacc::bytes_of(dtype) + 5;
  }
  template <class T>
  static adacc::Error encode(Cpu&, View<const T> x, Bytes blob) {
    std::memcpy(blob.data(), x.data(), x.size() * sizeof(T));
    std::memset(blob.data() + x.size() * sizeof(T), 0x33, 5);
    return {};
  }
  template <class T>
  static adacc::Error decode(Cpu&, ConstBytes blob, View<T> x) {
    std::memcpy(x.data(), blob.data(), x.size() * sizeof(T));
    return {};
  }
};

/// A codec with loss: two bytes of each float.
struct Truncate {
  static constexpr const char* name = "truncate";
  static constexpr std::size_t encoded_bytes(std::size_t rows, std::size_t cols, Dtype) {
    return rows * cols * 2;
  }
  template <class T>
  static adacc::Error encode(Cpu&, View<const T> x, Bytes blob) {
    static_assert(sizeof(T) == 4);
    for (std::size_t i = 0; i < x.size(); ++i)
      std::memcpy(blob.data() + 2 * i, reinterpret_cast<const std::byte*>(&x[i]) + 2, 2);
    return {};
  }
  template <class T>
  static adacc::Error decode(Cpu&, ConstBytes blob, View<T> x) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = 0;
      std::memcpy(reinterpret_cast<std::byte*>(&x[i]) + 2, blob.data() + 2 * i, 2);
    }
    return {};
  }
};

enum class Kind {
  shift,
  bump,
  softsign,
  widen,
  narrow,
  noise,
  residual_begin,
  branch,
  residual_end,  ///< what stands before a branch is the projection
};

struct Item {
  Kind kind;
  int policy;  ///< 0 retain, 1 recompute, 2 lossless codec, 3 lossy codec, 4 planned
};

/// A recipe: items, of which [repeat_begin, repeat_end) is a block with `copies` copies.
struct Model {
  using last_layer = Shift;
  std::vector<Item> before, block, after;
  int copies = 1;
  bool retain_everything = false;  ///< the same network under Retain

  template <class Visitor>
  struct Part {
    const Model& model;
    const std::vector<Item>& items;
    void visit(Visitor& v) const { model.items(v, items); }
  };
  template <class Visitor>
  void visit(Visitor& v) const {
    items(v, before);
    if (!block.empty()) v.repeat(copies, Part<Visitor>{*this, block});
    items(v, after);
  }

 private:
  template <class Visitor>
  void items(Visitor& v, const std::vector<Item>& list) const {
    std::vector<int> sources;
    for (const Item& item : list) {
      switch (item.kind) {
        case Kind::shift: add<Shift>(v, item); break;
        case Kind::bump: add<Bump>(v, item); break;
        case Kind::softsign: add<Softsign>(v, item); break;
        case Kind::widen: add<Widen>(v, item); break;
        case Kind::narrow: add<Narrow>(v, item); break;
        case Kind::noise: add<Noise>(v, item); break;
        case Kind::residual_begin: sources.push_back(v.current()); break;
        case Kind::branch: {
          const int from = sources.back();
          sources.back() = v.current();
          v.branch(from);
          break;
        }
        case Kind::residual_end:
          v.add(sources.back());
          sources.pop_back();
          break;
      }
    }
  }
  template <class Functor, class Visitor>
  void add(Visitor& v, const Item& item) const {
    static constexpr Functor functor{};  // outlives every dispatch table
    switch (retain_everything ? 0 : item.policy) {
      case 0: v.template layer<adacc::Retain>(functor); break;
      case 1: v.template layer<adacc::Recompute>(functor); break;
      case 2: v.template layer<adacc::Compress<Verbatim>>(functor); break;
      case 3: v.template layer<adacc::Compress<Truncate>>(functor); break;
      default: v.template layer<adacc::Planned>(functor); break;
    }
  }
};

struct Network {
  Model model;
  HalfSquare loss;
};

/// Layers that keep the shape, with properly nested residual sums, some of them `projected` if that is
/// wanted. Sums end behind layers whose backward does not read its output, as Residual demands.
inline void draw_items(std::mt19937& random, std::vector<Item>& items, int layers, bool lossy,
                       bool projected, int depth = 0) {
  const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
  const auto policy = [&] {
    const int drawn = below(5);
    return drawn == 3 && !lossy ? 2 : drawn;
  };
  for (int i = 0; i < layers; ++i) {
    if (depth < 3 && below(4) == 0) {
      items.push_back({Kind::residual_begin, 0});
      if (projected && below(3) == 0) {
        draw_items(random, items, 1 + below(2), lossy, projected, depth + 1);
        items.push_back({Kind::branch, 0});
      }
      draw_items(random, items, 1 + below(4), lossy, projected, depth + 1);
      const Kind ends[] = {Kind::shift, Kind::bump, Kind::noise};
      if (below(2) == 0 || items.back().kind != Kind::residual_end)
        items.push_back({ends[below(3)], policy()});
      items.push_back({Kind::residual_end, 0});
    } else if (below(5) == 0) {
      items.push_back({Kind::widen, policy()});
      if (below(2) == 0) items.push_back({Kind::softsign, policy()});
      items.push_back({Kind::narrow, policy()});
    } else {
      const Kind kinds[] = {Kind::shift, Kind::bump, Kind::softsign, Kind::noise};
      items.push_back({kinds[below(4)], policy()});
    }
  }
}

inline Network draw(unsigned seed, bool lossy, bool projected = true) {
  std::mt19937 random(seed);
  Network network;
  draw_items(random, network.model.before, static_cast<int>(random() % 4), lossy, projected);
  if (random() % 3 != 0)
    draw_items(random, network.model.block, 1 + static_cast<int>(random() % 6), lossy, projected);
  network.model.copies = 1 + static_cast<int>(random() % 4);
  draw_items(random, network.model.after, 1 + static_cast<int>(random() % 4), lossy, projected);
  return network;
}

inline Shape draw_shape(unsigned seed) { return Shape(1 + seed % 5, 2 * (1 + seed % 7)); }

}  // namespace random_model
