// SPDX-License-Identifier: MIT
/// Every codec of codecs.hpp as plain functions.
///
/// What tests do with all codecs is so compiled once per type of elements and not once per codec and
/// type, and the codecs themselves are compiled once for all tests (erased_codec_*.cpp).
#pragma once

#include <adacc/codec/statistics.hpp>
#include <adacc/core/bfloat16.hpp>
#include <adacc/core/cpu.hpp>
#include <adacc/core/dtype.hpp>
#include <adacc/core/error.hpp>
#include <adacc/core/view.hpp>

#include <cstddef>
#include <vector>

namespace sample {

/// A codec for elements of type T; its members are those of the codec contract.
template <class T>
struct ErasedCodec {
  const char* name;
  std::size_t (*encoded_bytes)(std::size_t rows, std::size_t cols, adacc::Dtype dtype);
  std::size_t (*split_items)(std::size_t rows, std::size_t cols);
  adacc::CodecStatistics (*statistics)(adacc::ConstBytes blob, std::size_t rows, std::size_t cols,
                                       adacc::Dtype dtype);  ///< null if the codec has none
  adacc::Error (*encode_part)(adacc::Cpu& cpu, adacc::View<const T> x, adacc::Bytes blob,
                              adacc::Part part);
  adacc::Error (*decode_part)(adacc::Cpu& cpu, adacc::ConstBytes blob, adacc::View<T> x,
                              adacc::Part part);

  std::size_t bytes_for(std::size_t rows, std::size_t cols) const {
    return encoded_bytes(rows, cols, adacc::dtype_of<T>);
  }
  adacc::Error encode(adacc::Cpu& cpu, adacc::View<const T> x, adacc::Bytes blob,
                      adacc::Part part = {}) const {
    return encode_part(cpu, x, blob, part);
  }
  adacc::Error decode(adacc::Cpu& cpu, adacc::ConstBytes blob, adacc::View<T> x,
                      adacc::Part part = {}) const {
    return decode_part(cpu, blob, x, part);
  }
};

/// All of them, in the order of codecs.hpp; T is float, double or bfloat16.
template <class T>
const std::vector<ErasedCodec<T>>& erased_codecs();

/// Calls f(codec) for every codec with every type of elements.
template <class F>
void for_each_erased_codec(const F& f) {
  for (const ErasedCodec<float>& codec : erased_codecs<float>()) f(codec);
  for (const ErasedCodec<double>& codec : erased_codecs<double>()) f(codec);
  for (const ErasedCodec<adacc::bfloat16>& codec : erased_codecs<adacc::bfloat16>()) f(codec);
}

}  // namespace sample
