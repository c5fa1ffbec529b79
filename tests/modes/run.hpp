// SPDX-License-Identifier: MIT
/// What each unit and library of these programs does with adacc, and what it finds.
#pragma once

/// Equal for all units of a program, whatever they include, in what order, from what library.
struct Findings {
  double loss;                ///< of a small network after some steps
  unsigned long checksum;     ///< over the bits of its parameters
  const void* codec;          ///< a codec's identity: an address that must be one in a program
  unsigned long error_bytes;  ///< what an error holds of a text that is too long
};

Findings find_forwards();
Findings find_backwards();
