// SPDX-License-Identifier: MIT
/// The main function of every test program: doctest's, compiled once, in a locale with a decimal comma.
///
/// A host may call setlocale(), and from then on printf writes "0,5" and strtod reads no further than
/// "0". No number of the library may depend on that, so all tests run as in such a host.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <stdlib.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>

int main(int argc, char** argv) {
#ifdef ADACC_TEST_LOCALES
  char text[8] = "";
  if (setenv("LOCPATH", ADACC_TEST_LOCALES, 1) != 0 ||
      std::setlocale(LC_NUMERIC, "decimal_comma") == nullptr ||
      std::snprintf(text, sizeof text, "%.1f", 0.5) < 0 || std::strcmp(text, "0,5") != 0 ||
      std::strtod("0.5", nullptr) != 0) {
    std::fprintf(stderr, "%s has no locale with a decimal comma\n", ADACC_TEST_LOCALES);
    return 1;
  }
#endif
  return doctest::Context(argc, argv).run();
}
