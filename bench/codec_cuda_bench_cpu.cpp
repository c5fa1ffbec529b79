// SPDX-License-Identifier: MIT
/// The CPU's side of codec_cuda_bench; see codec_cuda_cases.hpp.
#include "codec_cuda_cases.hpp"

namespace codec_cuda_bench {

template <class Case>
const char* name() {
  return Case::Codec::name;
}
template <class Case>
std::size_t encoded_bytes(adacc::Shape shape, adacc::Dtype dtype) {
  return Case::Codec::encoded_bytes(shape.rows(), shape.cols(), dtype);
}
template <class Case, class T>
adacc::Error cpu_encode(adacc::View<const T> x, adacc::Bytes blob) {
  adacc::Cpu cpu;
  return Case::Codec::encode(cpu, x, blob);
}

#define ADACC_INSTANTIATE(Case)                                                               \
  template const char* name<Case>();                                                          \
  template std::size_t encoded_bytes<Case>(adacc::Shape, adacc::Dtype);                       \
  template adacc::Error cpu_encode<Case, float>(adacc::View<const float>, adacc::Bytes);      \
  template adacc::Error cpu_encode<Case, adacc::bfloat16>(adacc::View<const adacc::bfloat16>, \
                                                          adacc::Bytes)
ADACC_INSTANTIATE(Int8Default);
ADACC_INSTANTIATE(Int8NoOutliers);
ADACC_INSTANTIATE(Int8Symmetric);
ADACC_INSTANTIATE(Int8Stochastic);
ADACC_INSTANTIATE(Int8Group32);
ADACC_INSTANTIATE(Int8Group128);
ADACC_INSTANTIATE(Int8Group256);
ADACC_INSTANTIATE(Int8Channels);
ADACC_INSTANTIATE(Int8Rows);
ADACC_INSTANTIATE(Int4Default);
ADACC_INSTANTIATE(Int4NoOutliers);
ADACC_INSTANTIATE(Int4Symmetric);
ADACC_INSTANTIATE(Int4Stochastic);
ADACC_INSTANTIATE(Int4Group32);
ADACC_INSTANTIATE(Int4Group128);
ADACC_INSTANTIATE(Int4Group256);
ADACC_INSTANTIATE(Int4Channels);
ADACC_INSTANTIATE(Int4Rows);
ADACC_INSTANTIATE(Bf16);
ADACC_INSTANTIATE(Mask);
ADACC_INSTANTIATE(Index4);
ADACC_INSTANTIATE(Index11);

}  // namespace codec_cuda_bench
