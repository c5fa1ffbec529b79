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
    adacc::detail::cuda_attention_forward(of_kernels(sizes), cuda, call.qkv, call.out, call.sums);
    return cuda.take_error();
  }
  adacc::Error run_backward(std::size_t number, const Backward& call) override {
    ++backwards;
    const Sizes& sizes = answers()[number].sizes;
    adacc::Cuda cuda(call.stream);
    adacc::detail::cuda_attention_backward(of_kernels(sizes), cuda, call.qkv, call.out, call.dout,
                                           call.dqkv, call.sums,
                                           reinterpret_cast<float*>(call.workspace));
    return cuda.take_error();
  }

 private:
  static constexpr std::size_t forward_bytes = 512;

  static adacc::detail::AttentionSizes of_kernels(const Sizes& s) {
    const auto number = [](std::size_t n) { return static_cast<unsigned>(n); };
    return {.batch = number(s.batch),
            .time = number(s.time),
            .heads = number(s.heads),
            .key_heads = number(s.kv_heads),
            .size = number(s.channels),
            .group = number(s.heads / s.kv_heads)};
  }
  static std::size_t statistics_bytes(const Sizes& s) {
    return 2 * s.batch * s.heads * s.time * sizeof(float);
  }
};
