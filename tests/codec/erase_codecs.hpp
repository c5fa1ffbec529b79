// SPDX-License-Identifier: MIT
/// Makes the list that erased_codec.hpp declares; included by the source of each type of elements.
#pragma once

#include "codecs.hpp"
#include "erased_codec.hpp"

namespace sample {

template <class T>
const std::vector<ErasedCodec<T>>& erased_codecs() {
  static const std::vector<ErasedCodec<T>> all = [] {
    std::vector<ErasedCodec<T>> codecs;
    for_each_codec([&]<class Codec>() {
      ErasedCodec<T> codec{Codec::name, &Codec::encoded_bytes,      &Codec::split_items,
                           nullptr,     &Codec::template encode<T>, &Codec::template decode<T>};
      if constexpr (requires { &Codec::statistics; }) codec.statistics = &Codec::statistics;
      codecs.push_back(codec);
    });
    return codecs;
  }();
  return all;
}

}  // namespace sample
