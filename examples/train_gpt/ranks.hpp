// SPDX-License-Identifier: MIT
/// The processes that train together, if a launcher of MPI (mpirun) started this one among others.
#pragma once

#include <adacc/core/error.hpp>
#include <adacc/ranks/farewell.hpp>
#ifdef ADACC_LINKS_MPI
#include <adacc/adapter/mpi.hpp>
#endif

#include <cstdio>
#include <cstdlib>
#include <utility>

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
    adacc::Farewell end;
    {
      auto last = std::move(group_), beside = std::move(another_);
      end =
          adacc::say_farewell(last, status, beside_ ? adacc::GroupRef(beside) : adacc::GroupRef());
      status = end.status;
      if (end.alone && status == 0)
        std::fprintf(stderr, "train_gpt, rank %d: has ended, and not all others have: %s\n",
                     last.rank(), end.alone.text());
    }
    if (end.alone) {
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
      beside_ = true;
      if (const adacc::Error why = another_.prepare(1)) return why;
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
  bool joined_ = false, beside_ = false;
#endif
};
