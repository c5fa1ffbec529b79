// SPDX-License-Identifier: MIT
/// The processes that train together, if a launcher of MPI (mpirun) started this one among others.
#pragma once

#include <adacc/core/error.hpp>
#include <adacc/ranks/collectives.hpp>
#ifdef ADACC_LINKS_MPI
#include <adacc/adapter/mpi.hpp>
#endif

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include <unistd.h>

class Ranks {
 public:
  Ranks() = default;
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  /// Joins the others, if there are any. `limit_seconds`: how long one may let the others wait.
  adacc::Error join(int& argc, char**& argv, double limit_seconds) {
    if (!launched()) return {};
#ifdef ADACC_LINKS_MPI
    int initialized = 0;
    MPI_Initialized(&initialized);
    if (initialized == 0) MPI_Init(&argc, &argv);
    auto group = adacc::MpiGroup::make(MPI_COMM_WORLD, {.limit_seconds = limit_seconds});
    if (!group) return group.error;
    group_ = std::move(*group);
    limit_seconds_ = limit_seconds;
    joined_ = true;
    // One speaks for all.
    if (rank() != 0 && std::freopen("/dev/null", "w", stdout) == nullptr)
      return adacc::Error::say("/dev/null cannot be opened");
    return {};
#else
    static_cast<void>(argc);
    static_cast<void>(argv);
    static_cast<void>(limit_seconds);
    return adacc::Error::say(
        "was started as one of several processes, and built without MPI: install it (Debian: "
        "libopenmpi-dev openmpi-bin), configure again and build");
#endif
  }

  /// Leaves, with the status to exit with. If not all others are about to, there is no waiting for
  /// them: the launcher is told by how this process ends.
  int leave(int status) {
#ifdef ADACC_LINKS_MPI
    if (!joined_) return status;
    adacc::Error alone;
    {
      auto last = std::move(group_);
      another_ = adacc::MpiGroup();
      // Of a size that nothing else has: whoever is elsewhere hears at once that this is the end.
      std::uint64_t mine[5] = {static_cast<std::uint64_t>(status)};
      std::vector<std::uint64_t> all(5 * static_cast<std::size_t>(last.size()));
      alone = adacc::all_gather(
          last, {reinterpret_cast<std::byte*>(mine), adacc::Shape(sizeof mine)},
          {reinterpret_cast<std::byte*>(all.data()), adacc::Shape(8 * all.size())});
      for (std::size_t r = 0; r < all.size() && !alone; r += 5)
        if (status == 0) status = static_cast<int>(all[r]);
    }
    if (alone) {
      std::fflush(nullptr);
      ::_exit(status == 0 ? 2 : status);
    }
    MPI_Finalize();
#endif
    return status;
  }

  adacc::GroupRef group() {
#ifdef ADACC_LINKS_MPI
    if (joined_) return group_;
#endif
    return {};
  }
  /// For what runs beside all else in the same ranks (ranks/group.hpp): a group of its own. All call it,
  /// once.
  adacc::Result<adacc::GroupRef> another() {
#ifdef ADACC_LINKS_MPI
    if (joined_) {
      auto group = adacc::MpiGroup::make(MPI_COMM_WORLD, {.limit_seconds = limit_seconds_});
      if (!group) return group.error;
      another_ = std::move(*group);
      return adacc::GroupRef(another_);
    }
#endif
    return adacc::GroupRef();
  }
  int rank() { return group().rank(); }
  int size() { return group().size(); }

 private:
  /// Whether the launcher of Open MPI or MPICH started more than this process.
  static bool launched() {
    for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
      if (const char* size = std::getenv(name); size != nullptr && std::atoi(size) > 1) return true;
    return false;
  }

#ifdef ADACC_LINKS_MPI
  adacc::MpiGroup group_, another_;
  double limit_seconds_ = 0;
  bool joined_ = false;
#endif
};
