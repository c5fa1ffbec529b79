// SPDX-License-Identifier: MIT
/// A GPT that trains on a device, as the trainer drives it: cuda.cu, which nvcc compiles, has one for
/// CUDA.
#pragma once

#include <adacc/core/error.hpp>
#include <adacc/core/view.hpp>
#include <adacc/model/frozen.hpp>
#include <adacc/optimizer/any_optimizer.hpp>
#include <adacc/plan/request.hpp>
#include <adacc/program/program.hpp>
#include <adacc/train/training.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "options.hpp"
#include "profile_file.hpp"

class DeviceTraining {
 public:
  using TokenView = adacc::View<const std::int32_t>;  ///< batch by time, in the host's memory

  DeviceTraining() = default;
  DeviceTraining(const DeviceTraining&) = delete;
  DeviceTraining& operator=(const DeviceTraining&) = delete;
  virtual ~DeviceTraining() = default;

  /// As those of Training.
  virtual adacc::Error prepare(TokenView inputs, TokenView targets) = 0;
  virtual adacc::Result<double> accumulate(TokenView inputs, TokenView targets) = 0;
  virtual adacc::Result<adacc::TrainingOutcome> update(double rate) = 0;
  virtual adacc::Result<adacc::TrainingOutcome> step(TokenView inputs, TokenView targets,
                                                     double rate) = 0;
  virtual adacc::Error save(const std::string& path, const std::string& notes) const = 0;
  virtual adacc::Error load(const std::string& path, adacc::Restore what) = 0;
  virtual std::uint64_t updates() const = 0;
  virtual const adacc::PlanBoundary& boundary() const = 0;
  virtual const adacc::Evolution* evolution() const = 0;
  virtual adacc::TrainingMemoryUse memory_use() const = 0;
  virtual const adacc::Program& program() const = 0;
  virtual std::uint64_t captured_steps() const = 0;
  virtual adacc::Error capture_failure() const = 0;

  virtual void set_seed(std::uint64_t seed) = 0;
  virtual void set_data_position(std::uint64_t position) = 0;
  /// All parameters, padding included, to and from the host's memory.
  virtual adacc::Error read_parameters(adacc::View<float> to) const = 0;
  virtual adacc::Error write_parameters(adacc::View<const float> from) = 0;

  /// The mean loss of a batch.
  virtual adacc::Result<double> evaluate(TokenView inputs, TokenView targets) = 0;

  /// What retaining everything needs of the arena, and what all of training may take; 0 without --total.
  virtual std::size_t retain_peak() const = 0;
  virtual std::size_t total_bytes() const = 0;
  /// Rows that the head computes at a time, at most.
  virtual std::size_t head_rows() const = 0;
  /// Arena bytes that training steps have touched, up to the end of the last cache line that did not
  /// stay as it was.
  virtual std::size_t measured_peak() const = 0;
  /// Name of the device.
  virtual std::string device() const = 0;
};

/// What the host makes up its mind about: the plan, if the policies are fixed; the solver, if not.
struct DevicePlanning {
  adacc::Plan fixed;
  adacc::Planner planner;
  const adacc::TrainedSet* trained = nullptr;  ///< that --train names; null: all
  ProfileFile* profile = nullptr;              ///< null: costs are not read
  adacc::AnyOptimizer optimizer;
};

/// A training as `options` have it, which outlive it, with parameters drawn. The error says what of
/// driver, device or memory is missing.
adacc::Result<std::unique_ptr<DeviceTraining>> make_device_training(const Options& options,
                                                                    const DevicePlanning& planning);
