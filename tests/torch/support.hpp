// SPDX-License-Identifier: MIT
/// What the tests of adapter/torch share: tensors, gradients, bit comparison.
#pragma once

#include <cstddef>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/version.h>

#include <adacc/adapter/torch.hpp>

// Debian's libtorch brings glog along, whose macro has the same name.
#undef CHECK
#include <doctest/doctest.h>

namespace torch_tests {

namespace guest = adacc::torch;

/// What the exception says that `run` ends with; nothing if it ends without.
template <class Run>
std::string words_of(const Run& run) {
  try {
    run();
  } catch (const std::exception& why) {
    return why.what();
  }
  return "";
}
inline bool mentions(const std::string& words, const char* part) {
  return words.find(part) != std::string::npos;
}

inline at::Tensor parameter(const at::Tensor& value) {
  return value.detach().clone().requires_grad_(true);
}

/// Equal in type, sizes and every bit (NaN too).
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const at::Tensor x = a.contiguous(), y = b.contiguous();
  return x.numel() == 0 || std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}
inline bool same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!same_bits(a[i], b[i])) return false;
  return true;
}

/// Gradients of `loss`, undefined if it does not depend on one.
inline std::vector<at::Tensor> gradients(const at::Tensor& loss, const std::vector<at::Tensor>& of,
                                         bool retain = false, bool create = false) {
  return torch::autograd::grad({loss}, of, {}, retain || create, create, /*allow_unused=*/true);
}

/// |a - b|^2 / |b|^2 over all of them.
inline double relative_error(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double square = 0, whole = 1e-30;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!b[i].defined()) continue;
    square += (a[i].to(at::kDouble) - b[i].to(at::kDouble)).square().sum().item<double>();
    whole += b[i].to(at::kDouble).square().sum().item<double>();
  }
  return square / whole;
}

}  // namespace torch_tests
