// SPDX-License-Identifier: MIT
// Instructions that compute with integers and floats, compare and choose.
#pragma once
#include "registers.hpp"

namespace ptxrun {

// Operations. Integers are computed without sign where a sign makes no difference.
struct Add {
  template <class T>
  static T of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return canonical(a + b);
    else return static_cast<T>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b));
  }
};
struct Sub {
  template <class T>
  static T of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return canonical(a - b);
    else return static_cast<T>(static_cast<Unsigned<T>>(a) - static_cast<Unsigned<T>>(b));
  }
};
struct Mul {
  template <class T>
  static T of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return canonical(a * b);
    else return static_cast<T>(u64{1} * static_cast<Unsigned<T>>(a) * static_cast<Unsigned<T>>(b));
  }
};
struct MulHi {
  template <class T>
  static T of(T a, T b) {
    if constexpr (sizeof(T) == 8) {
      __extension__ using Signed = __int128;
      __extension__ using Plain = unsigned __int128;
      using W = std::conditional_t<std::is_signed_v<T>, Signed, Plain>;
      return static_cast<T>(static_cast<W>(a) * static_cast<W>(b) >> 64);
    } else {
      using W = std::conditional_t<std::is_signed_v<T>, s64, u64>;
      return static_cast<T>(static_cast<W>(a) * static_cast<W>(b) >> 8 * sizeof(T));
    }
  }
};
struct Div {
  template <class T>
  static T of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return canonical(a / b);
    else if (b == 0) return static_cast<T>(~T{0});
    else if (std::is_signed_v<T> && b == static_cast<T>(-1)) return Sub::of(T{0}, a);
    else return static_cast<T>(a / b);
  }
};
struct Rem {
  template <class T>
  static T of(T a, T b) {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
  }
};
struct Min {
  template <class T>
  static T of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (a != a) return canonical(b);
      if (b != b) return canonical(a);
      if (a == 0 && b == 0) return std::signbit(a) ? a : b;
    }
    return a < b ? a : b;
  }
};
struct Max {
  template <class T>
  static T of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (a != a) return canonical(b);
      if (b != b) return canonical(a);
      if (a == 0 && b == 0) return std::signbit(a) ? b : a;
    }
    return a > b ? a : b;
  }
};
/// The magnitude of b with the sign of a.
struct CopySign {
  template <class T>
  static T of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return std::copysign(b, a);
    else return b;
  }
};
struct And {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

template <class Op, class T>
void binary(Machine&, Warp& w, const Inst& in, u32 mask) {
  const auto *a = reg<T>(w, in.a), *b = reg<T>(w, in.b);
  lanes_of(reg_out<T>(w, in.d), mask, [=](int l) {
    return to_slot<T>(Op::template of<T>(from_slot<T>(a[l]), from_slot<T>(b[l])));
  });
}
template <bool left, class T>
void shift(Machine&, Warp& w, const Inst& in, u32 mask) {
  const auto* a = reg<T>(w, in.a);
  const u32* b = reg<u32>(w, in.b);
  constexpr u32 bits = 8 * sizeof(T);
  lanes_of(reg_out<T>(w, in.d), mask, [=](int l) {
    const T x = from_slot<T>(a[l]);
    const u32 n = b[l];
    if constexpr (left)
      return to_slot<T>(n >= bits ? T{0} : static_cast<T>(static_cast<Unsigned<T>>(x) << n));
    else if constexpr (std::is_signed_v<T>)
      return to_slot<T>(static_cast<T>(x >> (n >= bits ? bits - 1 : n)));
    else return to_slot<T>(n >= bits ? T{0} : static_cast<T>(x >> n));
  });
}
/// what: 0 not, 1 neg, 2 abs, 3 copy
template <class T>
void unary(Machine&, Warp& w, const Inst& in, u32 mask) {
  const auto* a = reg<T>(w, in.a);
  const int what = in.what;
  lanes_of(reg_out<T>(w, in.d), mask, [=](int l) {
    const T x = from_slot<T>(a[l]);
    if constexpr (std::is_floating_point_v<T>) {
      return to_slot<T>(what == 1 ? -x : what == 2 ? std::fabs(x) : x);
    } else {
      if (what == 0) return to_slot<T>(static_cast<T>(~x));
      if (what == 1) return to_slot<T>(Sub::of(T{0}, x));
      if (what == 2) return to_slot<T>(x < 0 ? Sub::of(T{0}, x) : x);
      return to_slot<T>(x);
    }
  });
}
template <class T>
void move(Machine&, Warp& w, const Inst& in, u32 mask) {
  const auto* a = reg<T>(w, in.a);
  lanes_of(reg_out<T>(w, in.d), mask, [=](int l) { return a[l]; });
}
/// a * b + c; what: 0 low half, 1 high half
template <class T>
void multiply_add(Machine&, Warp& w, const Inst& in, u32 mask) {
  const auto *a = reg<T>(w, in.a), *b = reg<T>(w, in.b), *c = reg<T>(w, in.c);
  const int what = in.what;
  lanes_of(reg_out<T>(w, in.d), mask, [=](int l) {
    const T x = from_slot<T>(a[l]), y = from_slot<T>(b[l]), z = from_slot<T>(c[l]);
    if constexpr (std::is_floating_point_v<T>) return to_slot<T>(canonical(std::fma(x, y, z)));
    else return to_slot<T>(Add::of(what == 1 ? MulHi::of(x, y) : Mul::of(x, y), z));
  });
}
/// T is the narrow type.
template <class T, bool add>
void multiply_wide(Machine&, Warp& w, const Inst& in, u32 mask) {
  using W = std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, s64, u64>,
                               std::conditional_t<std::is_signed_v<T>, s32, u32>>;
  const auto *a = reg<T>(w, in.a), *b = reg<T>(w, in.b);
  const auto* c = reg<W>(w, in.c);
  lanes_of(reg_out<W>(w, in.d), mask, [=](int l) {
    const W p =
        static_cast<W>(static_cast<W>(from_slot<T>(a[l])) * static_cast<W>(from_slot<T>(b[l])));
    if constexpr (add) return to_slot<W>(Add::of(p, from_slot<W>(c[l])));
    else return to_slot<W>(p);
  });
}
template <class T>
void select(Machine&, Warp& w, const Inst& in, u32 mask) {
  const auto *a = reg<T>(w, in.a), *b = reg<T>(w, in.b);
  const u32 p = pred(w, in.c);
  lanes_of(reg_out<T>(w, in.d), mask, [=](int l) { return p >> l & 1 ? a[l] : b[l]; });
}

enum Compare : u8 { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan_ };
template <class T>
inline bool compared(u8 how, T x, T y) {
  const bool unordered = x != x || y != y;
  switch (how) {
    case eq: return x == y;
    case ne: return x != y && !unordered;
    case lt: return x < y;
    case le: return x <= y;
    case gt: return x > y;
    case ge: return x >= y;
    case equ: return x == y || unordered;
    case neu: return x != y || unordered;
    case ltu: return x < y || unordered;
    case leu: return x <= y || unordered;
    case gtu: return x > y || unordered;
    case geu: return x >= y || unordered;
    case num: return !unordered;
    default: return unordered;
  }
}
template <u8 how, class T>
inline u32 compared_lanes(const Slot<T>* a, const Slot<T>* b) {
  u32 r = 0;
  for (int l = 0; l < 32; ++l)
    r |= static_cast<u32>(compared(how, from_slot<T>(a[l]), from_slot<T>(b[l]))) << l;
  return r;
}
template <class T>
u32 compare_lanes(const Warp& w, const Inst& in) {
  const auto *a = reg<T>(w, in.a), *b = reg<T>(w, in.b);
  switch (in.what) {
    case eq: return compared_lanes<eq, T>(a, b);
    case ne: return compared_lanes<ne, T>(a, b);
    case lt: return compared_lanes<lt, T>(a, b);
    case le: return compared_lanes<le, T>(a, b);
    case gt: return compared_lanes<gt, T>(a, b);
    case ge: return compared_lanes<ge, T>(a, b);
    case equ: return compared_lanes<equ, T>(a, b);
    case neu: return compared_lanes<neu, T>(a, b);
    case ltu: return compared_lanes<ltu, T>(a, b);
    case leu: return compared_lanes<leu, T>(a, b);
    case gtu: return compared_lanes<gtu, T>(a, b);
    case geu: return compared_lanes<geu, T>(a, b);
    case num: return compared_lanes<num, T>(a, b);
    default: return compared_lanes<nan_, T>(a, b);
  }
}
/// size: 0 alone, 1 and, 2 or, 3 xor with predicate c; d2 the complement (or 0: none).
template <class T>
void set_predicate(Machine&, Warp& w, const Inst& in, u32 mask) {
  const u32 r = compare_lanes<T>(w, in);
  u32 p = r, q = ~r;
  if (in.size != 0) {
    const u32 c = in.is_signed ? ~pred(w, in.c) : pred(w, in.c);
    p = in.size == 1 ? p & c : in.size == 2 ? p | c : p ^ c;
    q = in.size == 1 ? q & c : in.size == 2 ? q | c : q ^ c;
  }
  set_pred(w, in.d, p, mask);
  if (in.d2 != 0) set_pred(w, in.d2, q, mask);
}
/// what: 0 mov, 1 and, 2 or, 3 xor, 4 not
inline void predicates(Machine&, Warp& w, const Inst& in, u32 mask) {
  const u32 a = pred(w, in.a), b = pred(w, in.b);
  const u32 r = in.what == 0   ? a
                : in.what == 1 ? a & b
                : in.what == 2 ? a | b
                : in.what == 3 ? a ^ b
                               : ~a;
  set_pred(w, in.d, r, mask);
}

}  // namespace ptxrun
