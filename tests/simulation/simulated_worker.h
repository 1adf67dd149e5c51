// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "ipc/channel/status_page.h"
#include "ipc/channel/worker_end.h"
#include "ipc/control/frame.h"
#include "ipc/memory/memory_object.h"
#include "tests/simulation/call_text.h"
#include "tests/simulation/ledger.h"
#include "tests/simulation/lives.h"
#include "tests/simulation/process_table.h"

namespace isopool::simulation {

/// A worker without an interpreter. It uses real control messages and the real worker end of real
/// rings, runs one call at a time and reads its socket between two calls. It may die at each step.
class SimulatedWorker final : public Program {
 public:
  struct Places {
    World& world;
    ProcessTable& processes;
    Ledger& ledger;
    Lives& lives;
    const Misfortunes& misfortunes;
    /// Wakes clients: one of them may wait on its ring.
    std::function<void()> wakeClients;
  };

  /// `descriptors`: those of the message ForkWorker.
  SimulatedWorker(const Places& places, pid_t pid, uint64_t epoch,
                  std::vector<base::Fd> descriptors);

  void act() override;
  void appendDescriptors(std::vector<int>& descriptors) const override;
  void die() override;

  uint64_t epoch() const { return epoch_; }

 private:
  struct Channel {
    std::unique_ptr<ipc::WorkerEnd> end;
    ipc::Mapping kernelsView;  ///< to mark the liveness word at a death, as the kernel does
    std::set<uint32_t> packages;
  };
  struct Running {
    uint64_t client = 0;
    uint64_t sequence = 0;
    CallText text;
    bool endless = false;
    TimePoint until;
  };

  bool readControl();
  void handle(ipc::Frame& frame);
  void attach(ipc::Frame& frame);
  void takeCall();
  void finishCall();
  bool dies();
  void later(Microseconds time) { wakeAt(places_.world.now() + time); }

  const Places places_;
  const pid_t pid_;
  const uint64_t epoch_;
  ipc::ControlSocket control_;
  base::Fd lifeline_;
  ipc::Mapping doorbell_;
  base::Fd crashLog_;
  ipc::Mapping statusPageObject_;
  ipc::WorkerStatusPage* statusPage_;
  std::map<uint64_t, Channel> channels_;
  std::optional<Running> running_;
  bool saidReady_ = false;
  bool dead_ = false;
};

}  // namespace isopool::simulation
