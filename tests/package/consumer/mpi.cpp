// SPDX-License-Identifier: MIT
/// Links MPI by the target alone, and asks it for nothing: no launcher is needed.
#include <adacc/adapter/mpi.hpp>

#include <cstdio>

int main() {
  int major = 0, minor = 0;
  MPI_Get_version(&major, &minor);
  const adacc::MpiGroup none;
  std::printf("MPI %d.%d\n", major, minor);
  return major >= 3 && none.size() <= 1 ? 0 : 1;
}
