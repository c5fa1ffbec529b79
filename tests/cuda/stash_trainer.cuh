// SPDX-License-Identifier: MIT
/// A trainer written by hand, as somebody has it who never heard of layers: kernels of its own on one stream,
/// device memory, a loop. Layers h += keep * f(norm(h) w), in which f is a rectifier and a softsign in turn, and
/// `keep` is a byte for each element; the loss is half the squared distance to a target. Sizes are odd.
#pragma once

#include <adacc/core/cuda.cuh>
#include <adacc/stash/model.hpp>

#include <cstddef>
#include <vector>

#include "device_memory.hpp"

namespace stash_run {

using namespace adacc;

inline constexpr int layers = 4, rows = 53, channels = 19, elems = rows * channels,
                     weights = channels * channels;

inline __device__ int index() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }

static __global__ void square_rows(const float* h, float* squares) {
  const int b = index();
  if (b >= rows) return;
  float sum = 0;
  for (int c = 0; c < channels; ++c) sum += h[b * channels + c] * h[b * channels + c];
  squares[b] = sum;
}
static __global__ void norm(const float* h, const float* squares, float* n, float* rstd) {
  const int e = index();
  if (e >= elems) return;
  const float scale = 1 / sqrtf(squares[e / channels] / channels + 1e-5F);
  n[e] = h[e] * scale;
  if (e % channels == 0) rstd[e / channels] = scale;
}
static __global__ void linear(const float* n, const float* w, float* z) {
  const int e = index();
  if (e >= elems) return;
  float sum = 0;
  for (int i = 0; i < channels; ++i)
    sum += n[e / channels * channels + i] * w[i * channels + e % channels];
  z[e] = sum;
}
static __global__ void draw(std::uint32_t seed, std::byte* keep) {
  const int e = index();
  if (e < elems)
    keep[e] =
        static_cast<std::byte>((static_cast<std::uint32_t>(e) + seed) * 2654435761U >> 30 != 0);
}
static __global__ void advance(const float* h, const float* z, const std::byte* keep, bool smooth,
                               float* next) {
  const int e = index();
  if (e >= elems) return;
  const float f = smooth ? z[e] / (1 + fabsf(z[e])) : fmaxf(z[e], 0);
  next[e] = h[e] + (keep[e] != std::byte{} ? f : 0);
}
static __global__ void loss_gradient(const float* h, const float* target, float* dh, double* loss) {
  const int e = index();
  if (e < elems) dh[e] = h[e] - target[e];
  if (e != 0) return;
  double sum = 0;
  for (int i = 0; i < elems; ++i) sum += 0.5 * (h[i] - target[i]) * (h[i] - target[i]) / elems;
  *loss = sum;
}
static __global__ void slopes(const float* dh, const float* z, const std::byte* keep, bool smooth,
                              float* dz) {
  const int e = index();
  if (e >= elems) return;
  const float slope = smooth ? 1 / ((1 + fabsf(z[e])) * (1 + fabsf(z[e]))) : (z[e] > 0 ? 1.F : 0.F);
  dz[e] = keep[e] != std::byte{} ? dh[e] * slope : 0;
}
static __global__ void weight_gradient(const float* n, const float* dz, float* dw) {
  const int k = index();
  if (k >= weights) return;
  float sum = 0;
  for (int b = 0; b < rows; ++b)
    sum += n[b * channels + k / channels] * dz[b * channels + k % channels];
  dw[k] = sum;
}
static __global__ void input_gradient(const float* dz, const float* w, float* dn) {
  const int e = index();
  if (e >= elems) return;
  float sum = 0;
  for (int o = 0; o < channels; ++o)
    sum += dz[e / channels * channels + o] * w[e % channels * channels + o];
  dn[e] = sum;
}
static __global__ void norm_gradient(const float* n, const float* rstd, const float* dn,
                                     float* dh) {
  const int b = index();
  if (b >= rows) return;
  float along = 0;
  for (int c = 0; c < channels; ++c) along += n[b * channels + c] * dn[b * channels + c] / channels;
  for (int c = 0; c < channels; ++c) {
    const int e = b * channels + c;
    dh[e] += rstd[b] * (dn[e] - n[e] * along);
  }
}
static __global__ void update(float* w, const float* dw) {
  const int k = index();
  if (k < layers * weights) w[k] -= 2e-3F * dw[k];
}

/// How many blocks of 128 threads do `count` things.
constexpr unsigned blocks(int count) { return (static_cast<unsigned>(count) + 127) / 128; }

inline std::vector<float> numbers(int count, std::uint64_t seed, float scale) {
  std::vector<float> list;
  for (int i = 0; i < count; ++i)
    list.push_back(scale *
                   (2 * unit_float(random_word({.seed = seed}, static_cast<std::size_t>(i))) - 1));
  return list;
}

class Trainer {
 public:
  explicit Trainer(cudaStream_t on) : stream(on), cuda(on) {}

  cudaStream_t stream;
  Cuda cuda;
  Device<float> w{numbers(layers * weights, 1, 0.4F)}, dw{layers * weights};
  Device<float> input{numbers(elems, 2, 1)}, target{numbers(elems, 3, 1)};
  Device<double> loss{8};  ///< of each step
  // What forward and backward use where nobody lends them anything.
  Device<float> own_h{2 * elems}, own_n{elems}, own_rstd{rows}, own_squares{rows}, own_z{elems},
      dh{elems};
  Device<std::byte> own_keep{elems};

  struct Ids {
    int h, n, rstd, z, keep;
  } ids[layers + 1];
  StashModel<float, Cuda> model;
  int carried = -1;  ///< dh; -1: it is this trainer's own

  // Forward's kernels, as forward calls them and as they are called again.
  struct Norm {
    cudaStream_t stream;
    void operator()(const View<const float>* from, const View<float>* to, Bytes workspace) const {
      auto* const squares = reinterpret_cast<float*>(workspace.data());
      square_rows<<<blocks(rows), 128, 0, stream>>>(from[0].data(), squares);
      norm<<<blocks(elems), 128, 0, stream>>>(from[0].data(), squares, to[0].data(), to[1].data());
    }
  } make_norm{stream};
  struct Linear {
    cudaStream_t stream;
    const float* w;
    void operator()(const View<const float>* from, View<float> z) const {
      linear<<<blocks(elems), 128, 0, stream>>>(from[0].data(), w, z.data());
    }
  } make_z[layers];
  struct Draw {
    cudaStream_t stream;
    std::uint32_t seed;
    void operator()(const View<const float>*, View<float> keep) const {
      draw<<<blocks(elems), 128, 0, stream>>>(seed, reinterpret_cast<std::byte*>(keep.data()));
    }
  } make_keep[layers];
  struct Advance {
    cudaStream_t stream;
    bool smooth;
    void operator()(const View<const float>* from, View<float> next) const {
      advance<<<blocks(elems), 128, 0, stream>>>(from[0].data(), from[1].data(),
                                                 reinterpret_cast<const std::byte*>(from[2].data()),
                                                 smooth, next.data());
    }
  } make_h[layers];

  static bool smooth(int layer) { return layer % 2 != 0; }

  /// `holds`: forward's values and all gradients of activations live in the arena, too. Stage `layers` is the
  /// loss.
  template <class Mask, class Lossy>
  void register_all(bool holds) {
    const Shape shape(rows, channels);
    for (int l = 0; l <= layers; ++l) {
      Ids& id = ids[l];
      id.h = model.add("h", shape, l == layers ? StashList{layers} : StashList{});
      if (holds) model.hold(id.h);
      if (l > 0) {
        make_h[l - 1] = {stream, smooth(l - 1)};
        model.recompute(id.h, {ids[l - 1].h, ids[l - 1].z, ids[l - 1].keep}, make_h[l - 1]);
      }
      if (l == layers) break;
      id.n = model.add("n", shape, {l}), id.rstd = model.add("rstd", Shape(rows), {l});
      model.recompute_together({id.n, id.rstd}, {id.h}, make_norm,
                               {.workspace_bytes = rows * sizeof(float)});
      id.z = model.add("z", shape, {l});
      make_z[l] = {stream, w.data + l * weights};
      model.recompute(id.z, {id.n}, make_z[l]);
      id.keep = model.add_bytes("keep", elems, {l});
      make_keep[l] = {stream, static_cast<std::uint32_t>(l)};
      model.recompute(id.keep, {}, make_keep[l]);
      model.allow<Lossy>(id.n);
      if (smooth(l)) model.allow<Lossy>(id.z);
      else model.allow<Mask>(id.z, 0);
      if (holds)
        for (const int value : {id.n, id.rstd, id.z, id.keep}) model.hold(value);
      model.stage_bytes(l, 2 * align_up(elems * sizeof(float)));
    }
    if (holds) carried = model.carry("dh", shape, layers, 0);
  }

  /// One step, queued; nobody waits for it. Writes where the stash says if `placed`.
  template <class AnyStash>
  Error step(AnyStash& stash, bool placed, bool updates = true) {
    if (const Error why = stash.begin(cuda)) return why;
    const Shape shape(rows, channels), row(rows);
    const auto place = [&](int id, float* own, Shape of) {
      const View<float> scratch(own, of);
      return placed ? stash.place(id, scratch) : scratch;
    };
    View<float> h = place(ids[0].h, own_h.data, shape);
    cuda.copy("input", View<const float>(input.data, shape), h);
    if (const Error why = stash.put(ids[0].h, h)) return why;
    for (int l = 0; l < layers; ++l) {
      const Ids& id = ids[l];
      Bytes scratch = stash.workspace(id.n);
      if (!placed || scratch.empty())
        scratch = {reinterpret_cast<std::byte*>(own_squares.data), Shape(rows * sizeof(float))};
      const View<float> norms[] = {place(id.n, own_n.data, shape),
                                   place(id.rstd, own_rstd.data, row)};
      const View<const float> of_norm[] = {h};
      make_norm(of_norm, norms, scratch);
      if (const Error why = stash.put(id.n, norms[0])) return why;
      if (const Error why = stash.put(id.rstd, norms[1])) return why;
      const View<float> z = place(id.z, own_z.data, shape);
      const View<const float> of_z[] = {norms[0]};
      make_z[l](of_z, z);
      if (const Error why = stash.put(id.z, z)) return why;
      Bytes keep(own_keep.data, Shape(elems));
      if (placed) keep = stash.place_bytes(id.keep, keep);
      draw<<<blocks(elems), 128, 0, stream>>>(static_cast<std::uint32_t>(l), keep.data());
      if (const Error why = stash.put_bytes(id.keep, keep)) return why;
      const View<float> next = place(ids[l + 1].h, own_h.data + (l + 1) % 2 * elems, shape);
      advance<<<blocks(elems), 128, 0, stream>>>(h.data(), z.data(), keep.data(), smooth(l),
                                                 next.data());
      h = next;
      if (const Error why = stash.put(ids[l + 1].h, h)) return why;
    }
    if (const Error why = stash.enter(layers)) return why;
    const auto last = stash.get(ids[layers].h);
    if (!last) return last.error;
    const auto d = residual_gradient(stash);
    if (!d) return d.error;
    loss_gradient<<<blocks(elems), 128, 0, stream>>>(last->data(), target.data, d->data(),
                                                     loss.data + steps_ % loss.size);
    for (int l = layers - 1; l >= 0; --l)
      if (const Error why = backward(stash, l)) return why;
    if (updates) update<<<blocks(layers * weights), 128, 0, stream>>>(w.data, dw.data);
    ++steps_;
    return cuda.take_error();
  }

 private:
  template <class AnyStash>
  Result<View<float>> residual_gradient(AnyStash& stash) {
    if (carried >= 0) return stash.carried(carried);
    return View<float>(dh.data, Shape(rows, channels));
  }

  template <class AnyStash>
  Error backward(AnyStash& stash, int l) {
    if (const Error why = stash.enter(l)) return why;
    const auto n = stash.get(ids[l].n), rstd = stash.get(ids[l].rstd), z = stash.get(ids[l].z);
    for (const auto* got : {&n, &rstd, &z})
      if (!*got) return got->error;
    const auto keep = stash.get_bytes(ids[l].keep);
    const auto memory = stash.backward_workspace();
    const auto d = residual_gradient(stash);
    if (!keep) return keep.error;
    if (!memory) return memory.error;
    if (!d) return d.error;
    auto* const dz = reinterpret_cast<float*>(memory->data());
    auto* const dn = reinterpret_cast<float*>(memory->data() + align_up(elems * sizeof(float)));
    slopes<<<blocks(elems), 128, 0, stream>>>(d->data(), z->data(), keep->data(), smooth(l), dz);
    weight_gradient<<<blocks(weights), 128, 0, stream>>>(n->data(), dz, dw.data + l * weights);
    input_gradient<<<blocks(elems), 128, 0, stream>>>(dz, w.data + l * weights, dn);
    norm_gradient<<<blocks(rows), 128, 0, stream>>>(n->data(), rstd->data(), dn, d->data());
    return stash.leave(l);
  }

  std::size_t steps_ = 0;
};

}  // namespace stash_run
