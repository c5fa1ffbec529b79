// SPDX-License-Identifier: MIT
/// Attention's softmax over a block of scores, keys down and queries across, and its gradient.
#pragma once

#include <cstddef>
#include <limits>

#include "../../core/vector_target.hpp"
#include "block_product.hpp"
#include "numbers.hpp"
#include "packet.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Queries, and keys, of a block. A multiple of every vector's size.
inline constexpr std::size_t attention_block = 64;

ADACC_TARGET_CODE_BEGIN
/// On the diagonal, the keys down to which a vector of queries at `lane` needs weights, zeros
/// among them: the products read as far as their group of rows.
template <class T, class Target>
std::size_t visible_keys(std::size_t lane, std::size_t keys, bool diagonal) {
  constexpr std::size_t group = BlockProduct<T, Target>::tile_rows;
  const std::size_t end = ((lane + lanes_of<T, Target> - 1) / group + 1) * group;
  return diagonal && end < keys ? end : keys;
}

/// Scores (keys, block) become exp(score - maximum). Maximum and sum now include them; earlier contributions have to
/// be multiplied by `rescale`. The first `lanes` of each row of scores count, a multiple of the vector's.
template <class T, class Target>
void online_softmax(T* score, std::size_t keys, bool diagonal, std::size_t lanes, T* maximum,
                    T* sum, T* rescale) {
  using V = Widest<T, Target>;
  const V none = V::all(-std::numeric_limits<T>::infinity());
  const V zero = V::all(0);
  for (std::size_t lane = 0; lane < lanes; lane += lanes_of<T, Target>) {
    const V query = V::count_from(static_cast<T>(lane));
    const std::size_t end = visible_keys<T, Target>(lane, keys, diagonal);
    const std::size_t mixed = diagonal && lane < end ? lane : end;  // from here on, masked
    T* const column = score + lane;
    const V before = V::load(maximum + lane);
    V top = before;
    for (std::size_t k = 0; k < mixed; ++k)
      top = larger(top, V::load(column + k * attention_block));
    for (std::size_t k = mixed; k < end; ++k)
      top = larger(top, V::load(column + k * attention_block)
                            .unless_less(query, V::all(static_cast<T>(k)), none));

    const V shrink = exp(before - top);
    V total = V::load(sum + lane) * shrink;
    for (std::size_t k = 0; k < end; ++k) {
      V weight = exp(V::load(column + k * attention_block) - top);
      if (k >= mixed) weight = weight.unless_less(query, V::all(static_cast<T>(k)), zero);
      weight.store(column + k * attention_block);
      total = total + weight;
    }
    top.store(maximum + lane);
    total.store(sum + lane);
    shrink.store(rescale + lane);
  }
}

/// Maximum, sum of exp(score - maximum) and sum of exp(score - maximum) dweight go on to include
/// a block of keys.
template <class T, class Target>
void online_statistics(const T* score, const T* dweight, std::size_t keys, bool diagonal,
                       T* maximum, T* inner, T* sum) {
  using V = Widest<T, Target>;
  const V none = V::all(-std::numeric_limits<T>::infinity());
  const V zero = V::all(0);
  for (std::size_t lane = 0; lane < attention_block; lane += lanes_of<T, Target>) {
    const V query = V::count_from(static_cast<T>(lane));
    const std::size_t end = visible_keys<T, Target>(lane, keys, diagonal);
    const std::size_t mixed = diagonal && lane < end ? lane : end;  // from here on, masked
    const V before = V::load(maximum + lane);
    V top = before;
    for (std::size_t k = 0; k < mixed; ++k)
      top = larger(top, V::load(score + k * attention_block + lane));
    for (std::size_t k = mixed; k < end; ++k)
      top = larger(top, V::load(score + k * attention_block + lane)
                            .unless_less(query, V::all(static_cast<T>(k)), none));

    const V shrink = exp(before - top);
    V total = V::load(sum + lane) * shrink;
    V mean = V::load(inner + lane) * shrink;
    for (std::size_t k = 0; k < end; ++k) {
      V weight = exp(V::load(score + k * attention_block + lane) - top);
      V part = weight * V::load(dweight + k * attention_block + lane);
      if (k >= mixed) {
        const V key = V::all(static_cast<T>(k));
        weight = weight.unless_less(query, key, zero);
        part = part.unless_less(query, key, zero);
      }
      total = total + weight;
      mean = mean + part;
    }
    top.store(maximum + lane);
    total.store(sum + lane);
    mean.store(inner + lane);
  }
}

/// Scores become probabilities p; their gradients dp become scale * p * (dp - inner), the
/// gradients of the unscaled scores.
template <class T, class Target>
void softmax_gradient(T* weight, T* dscore, std::size_t keys, bool diagonal, const T* log_sum,
                      const T* inner, T scale) {
  using V = Widest<T, Target>;
  const V zero = V::all(0);
  const V factor = V::all(scale);
  for (std::size_t lane = 0; lane < attention_block; lane += lanes_of<T, Target>) {
    const V query = V::count_from(static_cast<T>(lane));
    const std::size_t end = visible_keys<T, Target>(lane, keys, diagonal);
    const std::size_t mixed = diagonal && lane < end ? lane : end;  // from here on, masked
    const V total = V::load(log_sum + lane);
    const V mean = V::load(inner + lane);
    for (std::size_t k = 0; k < end; ++k) {
      T* const w = weight + k * attention_block + lane;
      T* const d = dscore + k * attention_block + lane;
      V p = exp(V::load(w) - total);
      V ds = p * factor * (V::load(d) - mean);
      if (k >= mixed) {
        const V key = V::all(static_cast<T>(k));
        p = p.unless_less(query, key, zero);
        ds = ds.unless_less(query, key, zero);
      }
      p.store(w);
      ds.store(d);
    }
  }
}

/// dO . O of `queries` rows of a head with `size` channels: sums[i] of row i.
template <class T, class Target>
void inner_products(const T* a, const T* b, std::size_t ld, std::size_t queries, std::size_t size,
                    Wide<T>* sums) {
  for (std::size_t i = 0; i < queries; ++i)
    sums[i] = dot_of_rows<Target>(a + i * ld, b + i * ld, size);
}
ADACC_TARGET_CODE_END

}}}  // namespace adacc::v0_1::detail
