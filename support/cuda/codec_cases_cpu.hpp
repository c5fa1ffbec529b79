// SPDX-License-Identifier: MIT
/// What codec_cases.hpp declares of the CPU, for a source that no nvcc compiles: it instantiates its cases.
#pragma once

#include "codec_cases.hpp"

namespace codec_cases {

using namespace adacc;

template <class Case>
const char* name() {
  return Case::Codec::name;
}
template <class Case>
std::size_t encoded_bytes(Shape shape, Dtype dtype) {
  return Case::Codec::encoded_bytes(shape.rows(), shape.cols(), dtype);
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
template <class Case, class T>
RowErrors cpu_row_errors([[maybe_unused]] View<const T> x, [[maybe_unused]] ConstBytes blob,
                         [[maybe_unused]] std::size_t i) {
  if constexpr (requires { Case::Codec::row_bound; }) {
    Cpu cpu;
    return Case::Codec::row_errors(cpu, x, blob,
                                   Part{i, 1, Case::Codec::split_items(x.rows(), x.cols())});
  } else {
    return {};
  }
}

}  // namespace codec_cases

#define ADACC_CASE(Case)                                       \
  template const char* codec_cases::name<codec_cases::Case>(); \
  template std::size_t codec_cases::encoded_bytes<codec_cases::Case>(adacc::Shape, adacc::Dtype)
#define ADACC_CASE_ENCODES(Case, T)                                    \
  template adacc::Error codec_cases::cpu_encode<codec_cases::Case, T>( \
      const adacc::RandomKey&, adacc::View<const T>, adacc::Bytes)
#define ADACC_CASE_DECODES(Case, T)                                                      \
  template adacc::Error codec_cases::cpu_decode<codec_cases::Case, T>(adacc::ConstBytes, \
                                                                      adacc::View<T>)
#define ADACC_CASE_JUDGES(Case, T)                                             \
  template adacc::RowErrors codec_cases::cpu_row_errors<codec_cases::Case, T>( \
      adacc::View<const T>, adacc::ConstBytes, std::size_t)
