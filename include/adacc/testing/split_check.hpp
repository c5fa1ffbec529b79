// SPDX-License-Identifier: MIT
/// Runs a layer in the parts allowed by its `split`, in the way of a step: for the gradient checker.
///
/// Each part of a layer cut by rows or batch has guarded memory of its own here: reads and writes beyond its rows are
/// seen.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "../core/cpu.hpp"
#include "../core/guarded.hpp"
#include "../model/contract.hpp"

namespace adacc { inline namespace v0_1 { namespace testing::detail {

/// The tensors of a layer's forward and backward; y, dx (empty for tokens) and gradients are
/// written.
template <class X>
struct SplitTensors {
  Params<const double> params;
  View<const X> x;
  View<const double> dy;
  View<double> y, dx;
  Params<double> gradients;
};

/// Forward in at most `parts` parts, then backward in the same.
template <class F, class X>
class SplitRun {
  using Traits = layer_traits<F>;
  static constexpr bool own = Traits::split() == Split::own;

 public:
  /// With `keeps`, parts have memory in common (ForwardCall::packed).
  SplitRun(const F& f, const Cpu& cpu, const SplitTensors<X>& tensors, std::size_t parts,
           bool keeps)
      : f_(f), cpu_(cpu), all_(tensors), keeps_(keeps), cut_(cut_of(f, tensors.x.shape(), parts)) {}

  std::size_t parts() const { return cut_.parts(); }
  static Cut cut_of(const F& f, Shape in, std::size_t parts) {
    const std::size_t items = Traits::needs(f, in, {Dtype::f64}).split_items;
    return make_cut(Traits::split(), items == 0 ? items_of(Traits::split(), in) : items, parts, 0,
                    0);
  }

  Error run() {
    if (!own && (all_.y.size() % cut_.items != 0 || all_.x.size() % cut_.items != 0))
      return Error::say("split is ", name_of(Traits::split()), ", but x ", all_.x.shape(),
                        " and y ", all_.y.shape(), " have not both ", cut_.items, " items");
    for (std::size_t part = 0; part < (own ? 1 : parts()); ++part)
      memory_.emplace_back(*this, part);
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      GuardedBlock packed(packed_bytes(pass));
      for (std::size_t part = 0; part < parts(); ++part) {
        const Bytes kept = packed.bytes();
        if (const Error why = pass == Pass::forward ? forward(part, kept) : backward(part, kept))
          return why;
      }
      if (!packed.intact()) return Error::say("a part wrote more than its packed bytes");
    }
    for (std::size_t part = 0; part < memory_.size(); ++part) {
      copy_out(memory_[part].y, all_.y, part);
      copy_out(memory_[part].dx, all_.dx, part);
    }
    return {};
  }

 private:
  /// Memory read and written by a part.
  struct Memory {
    Memory(const SplitRun& run, std::size_t part)
        : x(run.share(run.all_.x.size(), part) * sizeof(X)),
          dy(run.share(run.all_.dy.size(), part) * sizeof(double)),
          y(run.share(run.all_.y.size(), part) * sizeof(double)),
          dx(run.share(run.all_.dx.size(), part) * sizeof(double)),
          aux(run.needs(run.shape(run.all_.x.shape(), part), Pass::forward).aux) {
      run.copy_in(run.all_.x, x, part);
      run.copy_in(run.all_.dy, dy, part);
    }
    GuardedBlock x, dy, y, dx, aux;
  };

  LayerNeeds needs(Shape in, Pass pass) const {
    return Traits::needs(f_, in, {Dtype::f64, cpu_.workers(), pass});
  }
  std::size_t packed_bytes(Pass pass) const {
    return keeps_ ? needs(all_.x.shape(), pass).packed : 0;
  }
  std::size_t share(std::size_t elems, std::size_t part) const {
    return own ? elems : elems / cut_.items * cut_.count(part);
  }
  Shape shape(Shape whole, std::size_t part) const {
    return whole.rank() == 0 ? whole : cut_.shape(whole, cut_.count(part));
  }
  template <class T>
  void copy_in(View<T> from, GuardedBlock& to, std::size_t part) const {
    if (to.size() != 0)
      std::memcpy(to.data(), from.data() + cut_.offset(from.size(), cut_.first(part)), to.size());
  }
  void copy_out(const GuardedBlock& from, View<double> to, std::size_t part) const {
    if (from.size() != 0)
      std::memcpy(to.data() + cut_.offset(to.size(), cut_.first(part)), from.data(), from.size());
  }

  Part part_of(std::size_t part) const { return {cut_.first(part), cut_.count(part), cut_.items}; }
  GuardedBlock workspace(std::size_t part, Pass pass) const {
    return GuardedBlock(needs(shape(all_.x.shape(), part), pass).workspace);
  }
  Memory& memory(std::size_t part) { return memory_[own ? 0 : part]; }

  Error forward(std::size_t part, Bytes packed) {
    Memory& m = memory(part);
    GuardedBlock scratch = workspace(part, Pass::forward);
    call_forward(
        f_, cpu_,
        ForwardCall<double, X>{.x = {m.x.template as<X>(), shape(all_.x.shape(), part)},
                               .y = {m.y.template as<double>(), shape(all_.y.shape(), part)},
                               .params = all_.params,
                               .aux = m.aux.bytes(),
                               .workspace = scratch.bytes(),
                               .packed = packed,
                               .packed_holds = part > 0,
                               .part = part_of(part)});
    return intact(m, scratch, "forward");
  }

  Error backward(std::size_t part, Bytes packed) {
    Memory& m = memory(part);
    GuardedBlock scratch = workspace(part, Pass::backward);
    constexpr Reads reads = Traits::backward_reads();
    View<const X> x;
    View<const double> y;
    View<double> dx;
    const Shape in = shape(all_.x.shape(), part), out = shape(all_.y.shape(), part);
    if (reads_input(reads)) x = {m.x.template as<X>(), in};
    if (reads_output(reads)) y = {m.y.template as<double>(), out};
    if (!all_.dx.empty()) dx = {m.dx.template as<double>(), in};
    call_backward(f_, cpu_,
                  BackwardCall<double, X>{.x = x,
                                          .y = y,
                                          .dy = {m.dy.template as<double>(), out},
                                          .dx = dx,
                                          .params = all_.params,
                                          .dparams = all_.gradients,
                                          .aux = m.aux.bytes(),
                                          .workspace = scratch.bytes(),
                                          .packed = packed,
                                          .packed_holds = part > 0,
                                          .part = part_of(part)});
    return intact(m, scratch, "backward");
  }

  Error intact(const Memory& m, const GuardedBlock& scratch, const char* call) const {
    if (m.x.intact() && m.dy.intact() && m.y.intact() && m.dx.intact() && m.aux.intact() &&
        scratch.intact())
      return {};
    return Error::say(call, " on a part of the ", name_of(Traits::split()),
                      " wrote outside that part's memory");
  }

  const F& f_;
  Cpu cpu_;
  SplitTensors<X> all_;
  bool keeps_;
  Cut cut_;
  std::vector<Memory> memory_;
};

/// Whether two tensors agree but for the order of sums.
inline bool nearly(const double* a, const double* b, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i)
    if (!(std::fabs(a[i] - b[i]) <= 1e-9 * (1 + std::fabs(b[i])))) return false;
  return true;
}

}}}  // namespace adacc::v0_1::testing::detail
