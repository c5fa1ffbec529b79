// SPDX-License-Identifier: MIT
/// Array, in constant expressions and out of them.
#include <doctest/doctest.h>
#include <adacc/core/array.hpp>

#include <cstddef>
#include <initializer_list>
#include <utility>

namespace array_test {
namespace {

using adacc::Array;

constexpr bool holds(const Array<int>& array, std::initializer_list<int> expected) {
  if (array.size() != expected.size()) return false;
  std::size_t i = 0;
  for (const int value : expected)
    if (array[i++] != value) return false;
  return true;
}

constexpr bool grows_and_shrinks() {
  Array<int> a;
  if (!a.empty() || a.size() != 0) return false;
  for (int i = 0; i < 20; ++i) a.push_back(i * i);
  if (a.size() != 20 || a[19] != 361 || a.back() != 361) return false;
  a.resize(3);
  a.resize(5);  // new elements are zero, also where old ones were
  if (!holds(a, {0, 1, 4, 0, 0})) return false;
  a.insert(1, 7);
  a.insert(0, 8);
  a.insert(a.size(), 9);
  if (!holds(a, {8, 0, 7, 1, 4, 0, 0, 9})) return false;
  a.erase(0);
  a.erase(6);
  if (!holds(a, {0, 7, 1, 4, 0, 0})) return false;
  a.pop_back();
  if (!holds(a, {0, 7, 1, 4, 0})) return false;
  a.clear();
  return a.empty();
}
static_assert(grows_and_shrinks());

constexpr bool copies_are_deep() {
  Array<Array<int>> a(2);
  a[0].push_back(1);
  Array<Array<int>> b = a;
  b[0][0] = 2;
  b[1].push_back(3);
  if (!holds(a[0], {1}) || !a[1].empty()) return false;
  a = b;
  b[0][0] = 5;
  const Array<Array<int>>& itself = a;
  a = itself;
  return holds(a[0], {2}) && holds(a[1], {3});
}
static_assert(copies_are_deep());

constexpr bool moves_leave_nothing_twice() {
  Array<int> a;
  a.push_back(4);
  const int* data = a.data();
  Array<int> b = std::move(a);
  Array<int> c;
  c.push_back(6);
  c = std::move(b);
  return c.data() == data && holds(c, {4});
}
static_assert(moves_leave_nothing_twice());

constexpr bool pushes_its_own_element() {
  Array<int> a;
  for (int i = 0; i < 8; ++i) a.push_back(i + 1);
  a.push_back(a[0]);  // where it has to grow
  return a[8] == 1;
}
static_assert(pushes_its_own_element());

constexpr int sum_by_iteration() {
  Array<int> a(4);
  int next = 1;
  for (int& value : a) value = next++;
  int sum = 0;
  for (const int value : std::as_const(a)) sum += value;
  return sum;
}
static_assert(sum_by_iteration() == 10);

TEST_CASE("the same at run time") {
  CHECK(grows_and_shrinks());
  CHECK(copies_are_deep());
  CHECK(moves_leave_nothing_twice());
  CHECK(pushes_its_own_element());
  CHECK(sum_by_iteration() == 10);
}

}  // namespace

TEST_CASE("an array over lent memory stays there until it outgrows it") {
  int memory[4] = {1, 2, 3, 4};
  {
    auto lent = adacc::Array<int>::over(memory, 2, 4);
    CHECK(lent.size() == 2);
    lent.push_back(7);
    CHECK(memory[2] == 7);
    CHECK(lent.data() == memory);
    adacc::Array<int> copy = lent;  // has memory of its own
    copy[0] = 9;
    CHECK(memory[0] == 1);
    adacc::Array<int> moved = static_cast<adacc::Array<int>&&>(lent);
    CHECK(moved.data() == memory);
    moved.clear();
    for (int i = 0; i < 5; ++i) moved.push_back(i);
    CHECK(moved.data() != memory);
    CHECK(moved.size() == 5);
    CHECK(moved[4] == 4);
    CHECK(memory[3] == 3);
    copy = static_cast<adacc::Array<int>&&>(moved);
    CHECK(copy[4] == 4);
  }
  CHECK(memory[0] == 0);  // and is not freed
}

}  // namespace array_test
