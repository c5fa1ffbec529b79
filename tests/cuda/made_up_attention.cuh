// SPDX-License-Identifier: MIT
/// A library of attention that is made up: it runs our own kernels, in the workspace that it is lent, and counts.
#pragma once

#include <support/cuda/attention.cuh>

class MadeUpAttention final : public adacc::CudaAttention {
 public:
  const char* name() const override { return "made-up attention"; }

  int asked = 0, forwards = 0, backwards = 0;
  bool refuses = false;

 protected:
  void take_up(std::size_t number, Answer& answer) override {
    ++asked;
    if (number + 1 != static_cast<std::size_t>(asked)) answer.refused = adacc::Error::say("late");
    if (refuses)
      answer.refused = adacc::Error::say("heads of ", answer.sizes.channels, " channels are odd");
    answer.forward_bytes = forward_bytes;
    answer.backward_bytes = statistics_bytes(answer.sizes);
  }
  adacc::Error run_forward(std::size_t number, const Forward& call) override {
    ++forwards;
    const Sizes& sizes = answers()[number].sizes;
    adacc::Cuda cuda(call.stream);
    // All of the workspace is written: who has given less is told by the executor.
    cuda.set_bytes("workspace", {call.workspace, adacc::Shape(forward_bytes)}, 0xFF);
    const adacc::CausalAttention layer{.heads = sizes.heads};
    const adacc::View<const adacc::bfloat16> qkv(call.qkv, shape_of(sizes));
    adacc::detail::cuda_attention_forward(
        layer, cuda, qkv, adacc::View<adacc::bfloat16>(call.out, layer.output_shape(qkv.shape())),
        call.sums);
    return cuda.take_error();
  }
  adacc::Error run_backward(std::size_t number, const Backward& call) override {
    ++backwards;
    const Sizes& sizes = answers()[number].sizes;
    adacc::Cuda cuda(call.stream);
    const adacc::CausalAttention layer{.heads = sizes.heads};
    adacc::detail::cuda_attention_backward(
        layer, cuda, adacc::View<const adacc::bfloat16>(call.qkv, shape_of(sizes)), call.out,
        call.dout, call.dqkv, call.sums, reinterpret_cast<float*>(call.workspace));
    return cuda.take_error();
  }

 private:
  static constexpr std::size_t forward_bytes = 512;

  static adacc::Shape shape_of(const Sizes& s) {
    return {s.batch, s.time, 3 * s.heads * s.channels};
  }
  static std::size_t statistics_bytes(const Sizes& s) {
    return 2 * s.batch * s.heads * s.time * sizeof(float);
  }
};
