// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <deque>

#include "tests/simulation/simulated_worker.h"

namespace isopool::simulation {

/// A zygote: starts, forks simulated workers one after the other, and fails in every possible way.
class SimulatedZygote final : public Program {
 public:
  /// `beforeAny`: no zygote of this supervisor has been ready yet.
  SimulatedZygote(const SimulatedWorker::Places& places, pid_t pid, base::Fd control,
                  base::Fd lifeline, bool& everReady);

  void act() override;
  void appendDescriptors(std::vector<int>& descriptors) const override;
  void die() override;

 private:
  struct Forked {
    uint64_t epoch;
    pid_t worker;
  };

  void fork(ipc::Frame& frame);

  const SimulatedWorker::Places places_;
  const pid_t pid_;
  ipc::ControlSocket control_;
  base::Fd lifeline_;
  bool& everReady_;
  bool saidReady_ = false;
  bool dead_ = false;
  std::deque<ipc::Frame> requests_;
  std::deque<Forked> unannounced_;
};

}  // namespace isopool::simulation
