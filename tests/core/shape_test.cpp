// SPDX-License-Identifier: MIT
/// Shapes, views, byte units and element types.
#include <doctest/doctest.h>
#include <adacc/core/bytes.hpp>
#include <adacc/core/dtype.hpp>
#include <adacc/core/shape.hpp>
#include <adacc/core/view.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace shape_test { namespace {

using namespace adacc;

constexpr std::size_t most = static_cast<std::size_t>(-1);

static_assert(Shape{}.rank() == 0 && Shape{}.elems() == 0);
static_assert(Shape{}.rows() == 0 && Shape{}.cols() == 0);
static_assert(Shape(2, 3, 4).rank() == 3 && Shape(2, 3, 4).elems() == 24);
static_assert(Shape(2, 3, 4).rows() == 6 && Shape(2, 3, 4).cols() == 4);
static_assert(Shape(7).rows() == 1 && Shape(7).cols() == 7);
static_assert(Shape(2, 3, 4)[0] == 2 && Shape(2, 3, 4)[2] == 4);
static_assert(Shape(2, 0, 4).elems() == 0 && Shape(2, 0, 4).rows() == 0);
static_assert(Shape(3, 0).elems() == 0 && Shape(3, 0).rows() == 0);

// Products that do not fit are 0, whichever factor overflows.
static_assert(Shape(most, 2).elems() == 0 && Shape(most, 2).rows() == 0);
static_assert(Shape(most / 2, 1, 3).elems() == 0);
constexpr std::size_t root = std::size_t{1} << 4 * sizeof(std::size_t);
static_assert(Shape(root, root / 2, 2).elems() == 0);
static_assert(Shape(root, root / 2).elems() == most / 2 + 1);
static_assert(Shape(most, 1).elems() == most);

static_assert(Shape(2, 3).with_cols(5) == Shape(2, 5));
static_assert(Shape(2, 3).append(5) == Shape(2, 3, 5));
static_assert(Shape().append(5) == Shape(5) && Shape().with_cols(5) == Shape());
static_assert(Shape(2, 3) != Shape(2, 3, 1) && Shape(2, 3) != Shape(3, 2));
static_assert(!std::is_convertible_v<int, Shape>);

static_assert(align_up(0) == 0 && align_up(1) == 64 && align_up(64) == 64 && align_up(65) == 128);
static_assert(div_up(0, 64) == 0 && div_up(1, 64) == 1 && div_up(64, 64) == 1 &&
              div_up(65, 64) == 2);
static_assert(div_up(most, 64) == most / 64 + 1);
static_assert(MiB == 1048576 && GiB == 1024 * MiB);

constexpr bool multiplies() {
  std::size_t product = 5;
  if (multiply(most, 2, product) || product != 5) return false;
  return multiply(most / 3, 3, product) && product == most && multiply(0, most, product) &&
         product == 0 && multiply(most, 0, product) && product == 0;
}
static_assert(multiplies());

static_assert(bytes_of(Dtype::f32) == sizeof(float) && bytes_of(Dtype::f64) == sizeof(double));
static_assert(bytes_of(Dtype::i32) == sizeof(std::int32_t));
static_assert(dtype_of<float> == Dtype::f32 && dtype_of<double> == Dtype::f64);
static_assert(dtype_of<std::int32_t> == Dtype::i32 && name_of(Dtype::f64)[1] == '6');

static_assert(std::is_convertible_v<View<float>, View<const float>>);
static_assert(!std::is_convertible_v<View<const float>, View<float>>);
static_assert(!std::is_convertible_v<View<double>, View<const float>>);

TEST_CASE("a view is a matrix of its last extent") {
  float data[24];
  for (int i = 0; i < 24; ++i) data[i] = static_cast<float>(i);
  const View<float> view(data, Shape(2, 3, 4));
  CHECK(view.rows() == 6);
  CHECK(view.cols() == 4);
  CHECK(view.row(5) == data + 20);
  CHECK(view[7] == 7);
  CHECK(view.end() - view.begin() == 24);
  const View<const float> same = view;
  CHECK(same.data() == data);
  CHECK(same.shape() == view.shape());
  CHECK(!same.empty());
  CHECK(View<float>().empty());
  CHECK(View<float>(data, Shape(0, 4)).empty());
  CHECK(View<float>(nullptr, Shape(3, 4)).empty());
}

TEST_CASE("carve cuts what carved_bytes adds up to, aligned") {
  alignas(alignment) std::byte block[3 * alignment + 20];
  Bytes memory(block, Shape(sizeof block));
  const View<float> a = carve<float>(memory, 1);
  CHECK(carved_bytes<float>(1) == alignment);
  CHECK(static_cast<void*>(a.data()) == block);
  CHECK(a.size() == 1);
  const View<double> b = carve<double>(memory, 9);  // 72 bytes
  CHECK(static_cast<void*>(b.data()) == block + alignment);
  CHECK(memory.data() == block + 3 * alignment);
  const View<std::int32_t> c = carve<std::int32_t>(memory, 5);  // the last one unpadded
  CHECK(static_cast<void*>(c.data()) == block + 3 * alignment);
  CHECK(memory.size() == 0);

  ConstBytes constant(block, Shape(sizeof block));
  const View<const float> d = carve<float>(constant, 16);
  CHECK(static_cast<const void*>(d.data()) == block);
  CHECK(constant.data() == block + alignment);
}

}}  // namespace shape_test
