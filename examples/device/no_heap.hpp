// SPDX-License-Identifier: MIT
/// A device has no heap: what would ask for memory ends the program. For one source of a program.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

void* operator new(std::size_t) { std::abort(); }
void* operator new[](std::size_t) { std::abort(); }
void operator delete(void*) noexcept {}
void operator delete[](void*) noexcept {}
void operator delete(void*, std::size_t) noexcept {}
void operator delete[](void*, std::size_t) noexcept {}
