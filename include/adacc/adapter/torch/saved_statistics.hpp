// SPDX-License-Identifier: MIT
/// SavedStatistics: how many tensors a store of saved tensors took, and in how many bytes they wait.
#pragma once

#include <cstddef>

namespace adacc { inline namespace v0_1 { namespace torch {

/// Counts since the store was made.
struct SavedStatistics {
  std::size_t packed = 0, unpacked = 0;
  // SavedActivation tensors:
  std::size_t parameters = 0;  ///< and their views
  std::size_t small = 0;
  std::size_t others = 0;    ///< not dense, or on a device without kernels (device_codec.hpp)
  std::size_t shared = 0;    ///< views of a storage already saved
  std::size_t storages = 0;  ///< the rest: entries made
  // Storages left to autograd alone:
  std::size_t encoded = 0, decoded = 0;
  std::size_t declined = 0;  ///< forms with too large an error; a milder form was tried
  std::size_t unlike_rows =
      0;  ///< among `encoded`: by a codec's for_unlike_rows, after the codec was declined
  // On devices, of checks whose reports have come:
  std::size_t exact_rows =
      0;  ///< rows of the codec's matrices, kept exactly because the codec failed
  std::size_t uncertified =
      0;                      ///< storages with more failed rows, or with too large an error of all
  std::size_t again = 0;      ///< wait without bytes: operators make them again
  std::size_t raw_bytes = 0;  ///< bytes before encoding, those kept as they are included
  std::size_t encoded_bytes = 0;  ///< bytes since
  std::size_t opaque_bytes = 0;   ///< in both counts: operators' workspaces, which no codec takes
};

}}}  // namespace adacc::v0_1::torch
