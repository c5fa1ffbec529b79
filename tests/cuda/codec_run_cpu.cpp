// SPDX-License-Identifier: MIT
/// The CPU's side of codec_run; see codec_run_cases.hpp.
#include "codec_run_cases.hpp"

namespace codec_run {

using namespace adacc;

template <class Case>
std::size_t encoded_bytes(Shape shape, Dtype dtype) {
  return Case::Codec::encoded_bytes(shape.rows(), shape.cols(), dtype);
}
template <class Case>
const char* name() {
  return Case::Codec::name;
}
template <class Case, class T>
Error cpu_encode(const RandomKey& key, View<const T> x, Bytes blob) {
  Cpu cpu;
  cpu.key = key;
  return Case::Codec::encode(cpu, x, blob);
}
template <class Case, class T>
Error cpu_decode(ConstBytes blob, View<T> x) {
  Cpu cpu;
  return Case::Codec::decode(cpu, blob, x);
}

#define ADACC_INSTANTIATE_OF(Case, T)                                         \
  template Error cpu_encode<Case, T>(const RandomKey&, View<const T>, Bytes); \
  template Error cpu_decode<Case, T>(ConstBytes, View<T>)
#define ADACC_INSTANTIATE(Case)                           \
  template std::size_t encoded_bytes<Case>(Shape, Dtype); \
  template const char* name<Case>();                      \
  ADACC_INSTANTIATE_OF(Case, float);                      \
  ADACC_INSTANTIATE_OF(Case, double);                     \
  ADACC_INSTANTIATE_OF(Case, bfloat16)

ADACC_INSTANTIATE(Default);
ADACC_INSTANTIATE(Stochastic);
ADACC_INSTANTIATE(Group32);
ADACC_INSTANTIATE(Channels);
ADACC_INSTANTIATE(Rows);
ADACC_INSTANTIATE(codec_run::Bf16);
ADACC_INSTANTIATE(Mask);
ADACC_INSTANTIATE(Index5);

}  // namespace codec_run
