// SPDX-License-Identifier: MIT
/// Included before all else in tests: std::to_string of a floating-point number, which asks the host's
/// locale for the point, is a warning, and so an error, wherever a test instantiates it.
#pragma once

#include <string>

namespace std { inline namespace __cxx11 {
[[deprecated]] inline string to_string(float);
[[deprecated]] inline string to_string(double);
[[deprecated]] inline string to_string(long double);
}}  // namespace std::__cxx11
