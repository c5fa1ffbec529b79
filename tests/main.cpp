// SPDX-License-Identifier: MIT
/// The main function of every test program: doctest's, compiled once.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
