// SPDX-License-Identifier: MIT
/// Which tensors are no more than elements in memory, so hooks may take them apart and rebuild them.
///
/// A tensor's dispatch keys name the parts of libtorch involved in operations on the tensor. For tensors of plain
/// numbers on the CPU or on a CUDA device, all keys are known. Any other key means more than a storage: a subclass wrapping another
/// tensor, torch.func, nested, sparse, quantized, conjugated, symbolic or fake tensors, zeros of forward-mode
/// differentiation, another device. Tensors with keys added to libtorch later are left alone, too.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>

#include "../../core/config.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

/// True for strided tensors on the CPU or a CUDA device with memory of their own or none at all.
inline bool is_plain(const at::Tensor& tensor) {
  if (!tensor.defined()) return false;
  const std::uint64_t known = (c10::DispatchKeySet(c10::DispatchKey::CPU) |
                               c10::DispatchKeySet(c10::DispatchKey::AutogradCPU) |
                               c10::DispatchKeySet(c10::DispatchKey::CUDA) |
                               c10::DispatchKeySet(c10::DispatchKey::AutogradCUDA) |
                               c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView) |
                               c10::autograd_dispatch_keyset | c10::autocast_dispatch_keyset)
                                  .raw_repr();
  if ((tensor.key_set().raw_repr() & ~known) != 0 || !tensor.has_storage() ||
      tensor.layout() != at::kStrided)
    return false;
  return tensor.storage().nbytes() == 0 || tensor.storage().data() != nullptr;
}

}}}  // namespace adacc::v0_1::torch
