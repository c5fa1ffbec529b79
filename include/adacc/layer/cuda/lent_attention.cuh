// SPDX-License-Identifier: MIT
/// Attention on a CUDA device by a library, lent to contexts as products are: adapter/cudnn.cuh has cuDNN's.
///
/// A library says only when asked which sizes it takes, and how much workspace it wants. A graph that is made with the
/// object (GraphOptions::attention) asks once for the sizes of each layer, and the arena has room for the workspace.
/// Steps run where a context lends the same object. Our own kernels remain the reference, and run where the library
/// refuses the sizes (CudaAttention::refusal says why) and for activations in fp32. A library keeps the promise that a
/// recomputed activation has the bits of the first: it runs the same kernels for the same sizes, in the same order.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "../../core/array.hpp"
#include "../../core/bfloat16.hpp"
#include "../../core/bytes.hpp"
#include "../../core/dtype.hpp"
#include "../../core/error.hpp"
#include "../../core/shape.hpp"
#include "../../core/view.hpp"
#include "../../model/contract.hpp"

namespace adacc { inline namespace v0_1 {

/// Causal attention over activations in bfloat16. Used by one thread at a time.
class CudaAttention {
 public:
  /// Sizes of a layer's call. A row of qkv has the queries of all heads, then all keys, then all values.
  struct Sizes {
    std::size_t batch = 0, time = 0;
    std::size_t heads = 0, kv_heads = 0;
    std::size_t channels = 0;  ///< of a head
    bool operator==(const Sizes&) const = default;
  };
  /// The library's answer about sizes.
  struct Answer {
    Sizes sizes;
    Error refused;                                      ///< why the library does not take them
    std::size_t forward_bytes = 0, backward_bytes = 0;  ///< workspaces, 256-byte aligned
  };
  struct Forward {
    cudaStream_t stream;
    const bfloat16* qkv;
    bfloat16* out;
    float* sums;  ///< log-sum-exp of the scaled scores, (batch, heads, time)
    std::byte* workspace;
  };
  struct Backward {
    cudaStream_t stream;
    const bfloat16 *qkv, *out, *dout;
    const float* sums;
    bfloat16* dqkv;
    std::byte* workspace;
  };

  CudaAttention() = default;
  CudaAttention(const CudaAttention&) = delete;
  CudaAttention& operator=(const CudaAttention&) = delete;
  virtual ~CudaAttention() = default;

  /// The library's name and version, for reports.
  virtual const char* name() const = 0;

  /// For set-up: asks the library, if these sizes are new.
  const Answer& prepare(const Sizes& sizes) {
    if (const Answer* known = find(sizes)) return *known;
    Answer answer;
    answer.sizes = sizes;
    take_up(answers_.size(), answer);
    answers_.push_back(answer);
    return answers_[answers_.size() - 1];
  }
  /// The answer about prepared sizes; null if the sizes were not prepared.
  const Answer* find(const Sizes& sizes) const {
    for (const Answer& known : answers_)
      if (known.sizes == sizes) return &known;
    return nullptr;
  }
  /// Why the library refused sizes, of any layer so far; empty if it refused none.
  Error refusal() const {
    for (const Answer& known : answers_)
      if (known.refused) return known.refused;
    return {};
  }
  const Array<Answer>& answers() const { return answers_; }

  /// Queues a pass over sizes that were prepared and not refused.
  Error forward(const Answer& answer, const Forward& call) {
    return run_forward(number_of(answer), call);
  }
  Error backward(const Answer& answer, const Backward& call) {
    return run_backward(number_of(answer), call);
  }

 protected:
  /// Fills the answer about its sizes, which get this number: 0, 1, 2 and so on.
  virtual void take_up(std::size_t number, Answer& answer) = 0;
  virtual Error run_forward(std::size_t number, const Forward& call) = 0;
  virtual Error run_backward(std::size_t number, const Backward& call) = 0;

 private:
  std::size_t number_of(const Answer& answer) const {
    return static_cast<std::size_t>(&answer - answers_.data());
  }

  Array<Answer> answers_;
};

namespace detail {

/// Boundary of a library's workspace; arenas place tensors at multiples of less.
inline constexpr std::size_t library_boundary = 256;

constexpr std::size_t library_room(std::size_t bytes) {
  return div_up(bytes, library_boundary) * library_boundary;
}

/// `F` is an Attention, of any mask.
template <class F>
CudaAttention::Sizes lent_sizes(const F& f, Shape in) {
  return {in[0], in[1], f.heads, f.key_heads(), f.head_size(in)};
}

/// Workspace of a backward pass: room for forward's results, which are computed again if input or output are not exact,
/// and for the library.
struct LentBackwardRoom {
  std::size_t out, sums, library;

  explicit LentBackwardRoom(const CudaAttention::Answer& answer)
      : out(library_room(rows(answer) * answer.sizes.channels * sizeof(bfloat16))),
        sums(library_room(rows(answer) * sizeof(float))),
        library(answer.forward_bytes < answer.backward_bytes ? answer.backward_bytes
                                                             : answer.forward_bytes) {}
  std::size_t bytes() const { return out + sums + library + library_boundary; }

 private:
  static std::size_t rows(const CudaAttention::Answer& answer) {
    return answer.sizes.batch * answer.sizes.time * answer.sizes.heads;
  }
};

/// The bytes of workspace that `pass` takes if `answer` is the library's.
inline std::size_t lent_workspace(const CudaAttention::Answer& answer, Pass pass) {
  if (pass != Pass::forward) return LentBackwardRoom(answer).bytes();
  return answer.forward_bytes == 0 ? 0 : answer.forward_bytes + library_boundary;
}

/// Whether lent attention takes the sizes of a layer's call.
template <class F>
constexpr bool lent_takes(const F& f, Shape in, const NeedsQuery& query) {
  return F::causal && query.attention != nullptr && query.scalar == Dtype::bf16 &&
         !query.attention->prepare(lent_sizes(f, in)).refused;
}

/// Adds the room for lent attention, which takes the sizes, to the room for our own kernels: a context may lend none.
template <class F>
constexpr std::size_t with_lent_workspace(const F& f, Shape in, const NeedsQuery& query,
                                          std::size_t own) {
  if (!lent_takes(f, in, query)) return own;
  const std::size_t lent = lent_workspace(query.attention->prepare(lent_sizes(f, in)), query.pass);
  return own < lent ? lent : own;
}

/// The part of a workspace from the first place good for a library.
inline std::byte* library_place(Bytes workspace) {
  const std::size_t past = reinterpret_cast<std::uintptr_t>(workspace.data()) % library_boundary;
  return workspace.data() + (past == 0 ? 0 : library_boundary - past);
}

/// The lent attention's answer about a call. Null: our own kernels run. Notes an error if the graph was made without
/// this attention, and sets `stops`.
template <class T, class F, class Context>
const CudaAttention::Answer* lent_answer(const F& f, Context& cuda, Shape in, Bytes workspace,
                                         Pass pass, bool& stops) {
  if (!F::causal || dtype_of<T> != Dtype::bf16 || cuda.attention() == nullptr) return nullptr;
  const CudaAttention::Answer* const answer = cuda.attention()->find(lent_sizes(f, in));
  if (answer != nullptr && answer->refused) return nullptr;
  if (answer != nullptr && workspace.size() >= lent_workspace(*answer, pass)) return answer;
  stops = true;
  cuda.note(Error::misuse(F::name, ": the context lends attention by ", cuda.attention()->name(),
                          ", and the graph was made without: name it in GraphOptions::attention, "
                          "or lend the context none"));
  return nullptr;
}

/// Runs the pass by the context's lent attention. False: our own kernels are to run the pass.
template <class F, class Context, class T>
bool lent_forward(const F& f, Context& cuda, const ForwardCall<T>& call) {
  bool stops = false;
  const CudaAttention::Answer* const answer =
      lent_answer<T>(f, cuda, call.x.shape(), call.workspace, Pass::forward, stops);
  if constexpr (dtype_of<T> == Dtype::bf16)
    if (answer != nullptr)
      cuda.note(cuda.attention()->forward(
          *answer, {cuda.stream(), call.x.data(), call.y.data(),
                    reinterpret_cast<float*>(call.aux.data()), library_place(call.workspace)}));
  return stops || answer != nullptr;
}

template <class F, class Context, class T>
bool lent_backward(const F& f, Context& cuda, const BackwardCall<T>& call) {
  bool stops = false;
  const CudaAttention::Answer* const answer =
      lent_answer<T>(f, cuda, call.x.shape(), call.workspace, Pass::backward, stops);
  if constexpr (dtype_of<T> == Dtype::bf16)
    if (answer != nullptr) {
      const LentBackwardRoom room(*answer);
      std::byte* const place = library_place(call.workspace);
      std::byte* const library = place + room.out + room.sums;
      const bfloat16* out = call.y.data();
      auto* sums = reinterpret_cast<const float*>(call.aux.data());
      if (!call.exact_input || !call.exact_output) {
        // Probabilities have to add up to 1 for the decoded input.
        auto* const new_out = reinterpret_cast<bfloat16*>(place);
        auto* const new_sums = reinterpret_cast<float*>(place + room.out);
        cuda.note(cuda.attention()->forward(
            *answer, {cuda.stream(), call.x.data(), new_out, new_sums, library}));
        out = new_out, sums = new_sums;
      }
      cuda.note(cuda.attention()->backward(
          *answer,
          {cuda.stream(), call.x.data(), out, call.dy.data(), sums, call.dx.data(), library}));
    }
  return stops || answer != nullptr;
}

}  // namespace detail

}}  // namespace adacc::v0_1
