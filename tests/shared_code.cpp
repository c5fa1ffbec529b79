// SPDX-License-Identifier: MIT
// CMake precompiles headers for a target with a source.
