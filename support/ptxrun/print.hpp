// SPDX-License-Identifier: MIT
// printf on a device, which is a call of vprintf(format, numbers): what each thread prints, at once.
#pragma once
#include "registers.hpp"

namespace ptxrun {

/// a: address of the format, b: of the numbers behind one another as C passes them, d: how many there were.
inline void print(Machine& m, Warp& w, const Inst& in, u32 mask) {
  for (int l = 0; l < 32; ++l) {
    if (!(mask >> l & 1)) continue;
    const auto read = [&](u64& at, u64 bytes) {
      at = (at + bytes - 1) / bytes * bytes;
      u64 value = 0;
      std::memcpy(&value,
                  m.access(in, w, l, Space::generic, at, bytes, Machine::Access::read, nullptr),
                  bytes);
      at += bytes;
      return value;
    };
    const auto text_at = [&](u64 at) {
      std::string text;
      while (const char c = static_cast<char>(read(at, 1))) text += c;
      return text;
    };
    const std::string format = text_at(reg<u64>(w, in.a)[l]);
    u64 number = reg<u64>(w, in.b)[l];
    u32 count = 0;
    std::string out;
    for (std::size_t i = 0; i < format.size(); ++i) {
      if (format[i] != '%') {
        out += format[i];
        continue;
      }
      const std::size_t end = format.find_first_of("diouxXcsfFeEgGaAp%", i + 1);
      if (end == std::string::npos) m.fault("printf: " + format.substr(i), in, w, l);
      std::string one = format.substr(i, end + 1 - i);
      i = end;
      const char kind = one.back();
      if (kind == '%') {
        out += '%';
        continue;
      }
      if (one.find('*') != std::string::npos) m.fault("printf: " + one, in, w, l);
      ++count;
      char shown[512];
      if (kind == 's') {
        const std::string text = text_at(read(number, 8));
        std::snprintf(shown, sizeof shown, one.c_str(), text.c_str());
      } else if (std::string("fFeEgGaA").find(kind) != std::string::npos) {
        std::snprintf(shown, sizeof shown, one.c_str(), std::bit_cast<double>(read(number, 8)));
      } else if (kind == 'p') {
        std::snprintf(shown, sizeof shown, one.c_str(), reinterpret_cast<void*>(read(number, 8)));
      } else if (one.find_first_of("ljztq") != std::string::npos) {
        std::snprintf(shown, sizeof shown, one.c_str(), read(number, 8));
      } else {
        std::snprintf(shown, sizeof shown, one.c_str(), static_cast<u32>(read(number, 4)));
      }
      out += shown;
    }
    std::fputs(out.c_str(), stdout);
    if (in.d != 0) reg_out<u32>(w, in.d)[l] = count;
  }
}
/// What a call returned, from the register that it was left in.
inline void returned(Machine&, Warp& w, const Inst& in, u32 mask) {
  const u32* const a = reg<u32>(w, in.a);
  lanes_of(reg_out<u32>(w, in.d), mask, [=](int l) { return a[l]; });
}

}  // namespace ptxrun
