// SPDX-License-Identifier: MIT
/// The device umbrella compiles for every kind of codec, option and element type.
#include <adacc/adacc.cuh>

namespace trainer {

using namespace adacc;

template <class Codec, class T>
Error there_and_back(Cuda& cuda, View<T> x, Bytes blob) {
  if (Error error = codec_kernel<Codec, Cuda>::template encode<T>(cuda, x, blob)) return error;
  return codec_kernel<Codec, Cuda>::template decode<T>(cuda, blob, x);
}

template <class T>
Error all(Cuda& cuda, View<T> x, Bytes blob) {
  using enum Outliers;
  using Groups = Int8OutlierWith<Int8Options{.group = 128, .symmetric = true}>;
  using Rows = Int4OutlierWith<Int4Options{
      .group = whole_row, .outliers = channels, .rounding = Rounding::stochastic}>;
  if (Error error = there_and_back<Int8Outlier>(cuda, x, blob)) return error;
  if (Error error = there_and_back<Groups>(cuda, x, blob)) return error;
  if (Error error = there_and_back<Rows>(cuda, x, blob)) return error;
  if (Error error = there_and_back<Bf16>(cuda, x, blob)) return error;
  if (Error error = there_and_back<BitMask>(cuda, x, blob)) return error;
  return there_and_back<PackedIndexWith<5>>(cuda, x, blob);
}
template Error all(Cuda&, View<float>, Bytes);
template Error all(Cuda&, View<bfloat16>, Bytes);
template Error all(Cuda&, View<double>, Bytes);

}  // namespace trainer
