// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ipc/channel/client_end.h"
#include "ipc/control/client_messages.h"
#include "ipc/control/frame.h"
#include "testing/process_mark.h"

namespace isopool::tests {

using std::chrono::milliseconds;

/// The minimal client of a real isopoold: a control connection and the rings, as libisopool has
/// them. For one thread. Every wait has a deadline. begin(), openPool() and statistics() fail the
/// test when it has passed; the other functions return false or nothing.
class ControlClient {
 public:
  struct Worker {
    ipc::IntroduceWorker introduction;
    base::Fd pidfd;
    base::Fd clientControl;
    base::Fd crashLog;
    std::unique_ptr<ipc::ClientEnd> end;
    std::optional<ipc::WorkerDied> died;
    std::vector<ipc::GrantOutputSegment> segments;
    std::vector<base::Fd> segmentObjects;
  };
  using SlotKey = std::pair<uint32_t, uint32_t>;  ///< pool, slot

  explicit ControlClient(ipc::ControlSocket control = {}) : control_(std::move(control)) {}

  /// Sends Hello and waits for Welcome.
  void begin(const std::string& program = {});
  void openPool(uint32_t pool, uint32_t workers);
  /// Waits until every slot of the pool has a worker that is attached.
  bool waitForPool(uint32_t pool, uint32_t workers);
  /// Waits until a worker without a slot is attached. Returns its epoch, or 0.
  uint64_t waitForSpare();
  bool waitFor(const std::function<bool()>& condition, milliseconds patience = milliseconds(5000));
  /// Waits until the supervisor has closed the connection.
  bool waitForEnd(milliseconds patience = milliseconds(5000));
  /// A round trip through the supervisor.
  ipc::Statistics statistics();

  template <typename Message>
  void send(const Message& message, std::initializer_list<int> descriptors = {}) {
    control_.send(message, descriptors);
  }
  void sendBytes(const std::string& bytes);
  /// Calls the worker and returns its answer; nothing if none arrives in time.
  std::optional<std::string> call(uint64_t epoch, const std::string& text,
                                  milliseconds patience = milliseconds(5000));
  /// The same without waiting for an answer.
  void post(uint64_t epoch, const std::string& text) { publish(epoch, text); }
  /// Posts, and waits until the worker has started the call.
  bool begins(uint64_t epoch, const std::string& text);
  /// Kills the worker, reports its death as a client does that has seen the liveness word, and
  /// returns the time of the kill.
  Clock::time_point killAndReport(uint64_t epoch);

  Worker& worker(uint64_t epoch) { return workers_.at(epoch); }
  uint64_t serving(uint32_t pool, uint32_t slot) { return slots_[{pool, slot}]; }
  const ipc::Welcome& welcome() const { return *welcome_; }
  bool isWelcome() const { return welcome_.has_value(); }
  /// True once the supervisor has closed the connection.
  bool controlEnded() const { return ended_; }
  const std::optional<std::string>& failure() const { return failure_; }
  const std::optional<ipc::Drain>& drain() const { return drain_; }
  /// What the last PauseCalls said.
  bool paused() const { return paused_; }
  const std::vector<ipc::CallTimeOver>& callTimesOver() const { return callTimesOver_; }
  const std::vector<uint64_t>& closedChannels() const { return closedChannels_; }
  /// The segments for inputs whose numbers may be used again, as the supervisor said.
  const std::vector<uint32_t>& releasedInputs() const { return releasedInputs_; }
  /// The segments for results that the supervisor wants unmapped.
  const std::vector<ipc::UnmapOutputSegment>& toUnmap() const { return toUnmap_; }
  const std::vector<uint64_t>& retired() const { return retired_; }
  const std::map<uint32_t, ipc::PackageHeld>& held() const { return held_; }
  /// The descriptors that came with the answers for packages, by the package's number.
  std::map<uint32_t, base::Fd>& offered() { return offered_; }
  const std::vector<ipc::SlotQuarantined>& quarantines() const { return quarantines_; }
  size_t deaths() const { return deaths_; }
  /// The time at which the slot received its present worker.
  Clock::time_point assignedAt(uint32_t pool, uint32_t slot) { return assignedAt_[{pool, slot}]; }
  const std::map<uint64_t, Worker>& workers() const { return workers_; }
  void closeControl() { control_.close(); }
  int controlFd() const { return control_.fd(); }

  bool answersIntroductions = true;  ///< false: does not map introduced channels

 protected:
  void setControl(ipc::ControlSocket control) { control_ = std::move(control); }

 private:
  uint64_t publish(uint64_t epoch, const std::string& text);
  bool receive(milliseconds patience);
  void handle(ipc::Frame& frame);
  void introduce(ipc::Frame& frame);

  ipc::ControlSocket control_;
  bool ended_ = false;
  std::optional<ipc::Welcome> welcome_;
  std::optional<std::string> failure_;
  std::optional<ipc::Statistics> statistics_;
  std::optional<ipc::Drain> drain_;
  bool paused_ = false;
  std::vector<ipc::CallTimeOver> callTimesOver_;
  std::vector<uint64_t> closedChannels_;
  std::vector<uint64_t> retired_;
  std::vector<uint32_t> releasedInputs_;
  std::vector<ipc::UnmapOutputSegment> toUnmap_;
  std::map<uint32_t, ipc::PackageHeld> held_;
  std::map<uint32_t, base::Fd> offered_;
  uint64_t lastToken_ = 0;
  std::map<uint64_t, Worker> workers_;
  std::map<SlotKey, uint64_t> slots_;
  std::map<SlotKey, Clock::time_point> assignedAt_;
  std::vector<ipc::SlotQuarantined> quarantines_;
  size_t deaths_ = 0;
};

}  // namespace isopool::tests
