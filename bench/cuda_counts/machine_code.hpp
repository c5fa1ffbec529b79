// SPDX-License-Identifier: MIT
/// Machine code of kernels, as ptxas makes it from PTX: registers, spills, and how many instructions
/// came from each line of the PTX.
///
/// The executor knows how often each line of the PTX was executed. A machine instruction is executed
/// as often as the line that it came from, so both together say how many instructions a warp issues,
/// without a GPU. ptxas tells the lines in the debug information of its output, if PTX names its own
/// lines as the source. Where ptxas unrolls a loop itself the estimate is too high, for each copy
/// counts as often as the loop went round. Subroutines for divisions by rare numbers are left out.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace cuda_counts {

struct MachineCode {
  unsigned registers = 0;           ///< of a thread
  unsigned shared_bytes = 0;        ///< of a block, static
  unsigned spilled_bytes = 0;       ///< stores and loads
  std::map<int, unsigned> by_line;  ///< instructions from a line of the PTX

  /// Blocks of `threads`, and with so much dynamic shared memory, that an SM of sm_80 (A100) or sm_90 (H100, H200)
  /// holds at a time.
  unsigned blocks_per_sm(unsigned threads, unsigned shared_bytes_of_sm,
                         unsigned dynamic_shared) const;
};

/// The machine code of each kernel of `ptx` that is `wanted`, by the linker's name of the kernel.
/// `architecture` is "sm_90". The map is empty, and `why` says why, if ptxas cannot be run or its output
/// is not understood.
std::map<std::string, MachineCode> assemble(const std::string& ptxas, std::string_view ptx,
                                            const std::set<std::string>& wanted,
                                            const std::string& architecture, std::string& why);

}  // namespace cuda_counts
