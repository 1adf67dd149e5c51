// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "client/transport/request_outcome.h"
#include "ipc/channel/client_end.h"
#include "ipc/control/client_messages.h"
#include "ipc/control/frame.h"
#include "tests/simulation/call_text.h"
#include "tests/simulation/ledger.h"
#include "tests/simulation/process_table.h"

namespace isopool::simulation {

/// A client program. It uses the real control messages, the real client end of real rings and
/// libisopool's own decisions (client/pool/worker_choice.h, client/transport/request_outcome.h). It
/// does one step after the other where libisopool uses threads and locks.
class SimulatedClient final : public Program {
 public:
  struct Plan {
    uint32_t workers = 1;
    uint32_t calls = 20;
    bool shared = false;
    bool loadsPackage = false;
    Microseconds pause{0};  ///< the longest pause between two calls
    Microseconds longestCall{0};
  };
  struct Places {
    World& world;
    ProcessTable& processes;
    Ledger& ledger;
    const Misfortunes& misfortunes;
    uint64_t& lastCall;
    uint64_t& quarantines;  ///< the number of quarantines reported to all clients
    /// Wakes workers: one of them may have a call to read.
    std::function<void()> wakeWorkers;
    /// Makes a connection to the supervisor. The result is not valid if the supervisor is gone.
    std::function<base::Fd()> connect;
  };

  SimulatedClient(const Places& places, pid_t pid, const Plan& plan);
  ~SimulatedClient() override;

  void act() override;
  void appendDescriptors(std::vector<int>& descriptors) const override;
  void die() override;

  /// True if the client has made all its calls and each has ended.
  bool done() const {
    return over_ || (made_ == plan_.calls && waiting_.empty() && inFlight_ == 0);
  }
  /// True if a living worker serves each of the client's slots.
  bool served() const;
  bool over() const { return over_; }
  bool askedToDrain() const { return draining_; }
  const std::string& failure() const { return failure_; }
  /// Closes the connection as a manager's destructor does.
  void leave();
  uint64_t quarantines() const { return quarantines_; }
  /// The supervisor's number; 0 before Welcome.
  uint64_t number() const { return number_; }
  /// True if it was in quarantine itself.
  bool wasQuarantined() const { return wasQuarantined_; }

 private:
  struct Call {
    uint64_t id = 0;
    bool idempotent = false;
    std::optional<TimePoint> deadline;
    CallText text;
  };
  struct Channel {
    base::Fd pidfd;
    std::unique_ptr<ipc::ClientEnd> end;
    std::map<uint64_t, Call> inFlight;  ///< by sequence
    std::set<uint64_t> abandoned;       ///< no caller waits for their answers
    bool dead = false;
  };
  struct Slot {
    uint64_t epoch = 0;  ///< 0: none yet
    std::string quarantine;
  };

  void begin();
  void readControl();
  void handle(ipc::Frame& frame);
  void introduce(ipc::Frame& frame);
  void assign(const ipc::AssignWorker& message);
  void died(const ipc::WorkerDied& message);
  void makeCalls();
  void dispatch();
  bool publish(Channel& channel, size_t slot, Call call);
  void deliver(Channel& channel);
  void reportFalsely(uint64_t epoch);
  void noticeDeath(uint64_t epoch, Channel& channel);
  void settle(Channel& channel);
  void watchDeadlines(uint64_t epoch, Channel& channel);
  void conclude(Call call, client::RequestOutcome outcome);
  void lose(const std::string& reason);
  Channel* channelOf(uint64_t epoch);
  template <typename Message>
  void send(const Message& message, std::initializer_list<int> descriptors = {});

  const Places places_;
  const pid_t pid_;
  const Plan plan_;
  ipc::ControlSocket control_;
  std::map<uint64_t, Channel> channels_;
  std::set<uint64_t> died_;
  std::map<uint64_t, int> falseReports_;  ///< by epoch
  std::vector<Slot> slots_;
  std::deque<Call> waiting_;
  size_t inFlight_ = 0;
  uint32_t made_ = 0;
  std::optional<size_t> lastSlot_;
  TimePoint nextCall_;
  base::Fd package_;
  bool packageHeld_ = false;
  bool begun_ = false;
  bool opened_ = false;
  bool draining_ = false;
  bool paused_ = false;
  bool left_ = false;
  bool over_ = false;
  bool dead_ = false;
  uint64_t quarantines_ = 0;
  uint64_t number_ = 0;
  bool wasQuarantined_ = false;
  std::string failure_;
};

}  // namespace isopool::simulation
