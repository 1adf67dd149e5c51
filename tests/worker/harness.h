// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/ATen.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ipc/channel/client_end.h"
#include "ipc/channel/copy_reason.h"
#include "ipc/channel/lease_table.h"
#include "ipc/control/frame.h"
#include "ipc/memory/page_arena.h"
#include "ipc/tensor/value_codec.h"

/// A real isopool-worker, for which the test acts as supervisor and client. All of it is for one
/// thread. Every wait has a deadline, kPatience unless stated otherwise, and throws
/// std::runtime_error when it has passed.
namespace isopool::tests {

using std::chrono::milliseconds;
inline constexpr milliseconds kPatience{180'000};  // one test compiles a model

void waitUntil(const std::function<bool()>& condition, const char* what,
               milliseconds patience = kPatience);

struct ProcessEnd {
  int signal = 0;
  int exitCode = 0;
};

/// A forked worker as the supervisor sees it.
struct WorkerProcess {
  uint64_t epoch = 0;
  pid_t pid = 0;
  base::Fd pidfd;
  ipc::ControlSocket control;
  base::Fd lifeline;  ///< the write end
  base::Fd doorbellObject;
  ipc::Mapping doorbell;
  base::Fd crashLog;
  std::chrono::microseconds forkToReady{0};
  std::optional<ProcessEnd> ended;
  uint64_t clients = 0;  ///< attached so far; the number of the last one

  /// Kills the worker's process group, unless waitForEnd() has reaped the worker.
  ~WorkerProcess();
  /// Sends a message and rings the doorbell.
  template <typename Message>
  void send(const Message& message, std::initializer_list<int> descriptors = {}) {
    control.send(message, descriptors);
    ring();
  }
  void ring();
  /// Waits for the next message of the worker.
  ipc::Frame receive();
  bool hasMessage(milliseconds patience) { return control.waitReadable(patience); }
  void kill(int signal = 9);
  /// Waits for the end of the process and reaps it.
  ProcessEnd waitForEnd();
  /// False once the process has ended, also before it is reaped.
  bool alive();
  /// At most the last 64 KiB of the crash log.
  std::string readCrashLog() const;
};

/// isopool-worker --zygote, started by this test.
class ZygoteProcess {
 public:
  /// `environment`: NAME=VALUE entries in addition to the environment of the test; they win.
  /// `through`: a command that executes the zygote, whose command line is appended to it. The
  /// zygote's stdout is a pipe that output() reads.
  explicit ZygoteProcess(std::vector<std::string> environment = {},
                         std::vector<std::string> through = {});
  ~ZygoteProcess();

  /// The first message: ZygoteReady or ZygoteFailed.
  const ipc::Frame& greeting() const { return greeting_; }
  /// Forks a worker and waits until it is ready. Throws if the zygote refuses to fork.
  std::unique_ptr<WorkerProcess> fork(uint64_t seed);
  pid_t pid() const { return pid_; }
  base::Fd& lifeline() { return lifeline_; }
  ipc::ControlSocket& control() { return control_; }
  /// Waits until the output since the last call contains `text`, and returns that output.
  std::string output(const std::string& text);
  std::chrono::milliseconds startTime() const { return startTime_; }

 private:
  pid_t pid_ = 0;
  ipc::ControlSocket control_;
  base::Fd lifeline_;
  base::Fd stdout_;
  ipc::Frame greeting_;
  std::chrono::milliseconds startTime_{0};
};

/// The zygote that most tests share, and the package that holds a Probe (probe.py).
ZygoteProcess& sharedZygote();
const std::string& probePackage();

struct Answer {
  ipc::CompletionStatus status{};
  at::IValue value;                            ///< kValue
  std::map<ipc::CopyReason, uint64_t> copies;  ///< kValue
  std::vector<std::string> error;              ///< kPythonError
  ipc::RefusalKind refusal{};                  ///< kRefused
  std::string reason;                          ///< kRefused
  std::vector<ipc::StorageRecord> storages;

  uint64_t copied() const {
    uint64_t sum = 0;
    for (const auto& entry : copies) sum += entry.second;
    return sum;
  }
};

/// A minimal client of one worker. The constructor attaches its channel.
class TestClient {
 public:
  explicit TestClient(WorkerProcess& worker, uint64_t outputBytes = 8 << 20,
                      uint64_t inputBytes = 16 << 20);

  // ---- memory
  /// A tensor in the input arena.
  at::Tensor tensor(at::IntArrayRef sizes, at::ScalarType type = at::kFloat);
  /// Adds a segment to the input arena and announces it to the worker.
  void addInputSegment(uint64_t bytes);
  /// Adds a segment to the worker's output arena, as the supervisor does.
  void grantOutputSegment(uint64_t bytes);
  /// Bytes of the input arena that are in use, after returned leases have been collected.
  size_t inputBytesInUse();
  /// The number of input leases that the worker has not returned.
  uint32_t inputLeasesOut();
  /// Sends the file to the worker as package 1.
  void loadPackage(const std::string& path);
  /// The client's view of the worker's first output segment, which is writable.
  std::span<std::byte> outputSegment() { return {outputs_.at(1).data(), outputs_.at(1).bytes()}; }
  /// Returns when the worker has detached the client.
  void detach();

  // ---- calls
  using Body = std::function<void(ipc::PayloadWriter&)>;
  /// Publishes a request; returns its sequence number.
  uint64_t publish(ipc::Operation operation, const Body& body, uint32_t flags = ipc::kGradEnabled);
  /// Waits for the answer to this request, which must be the next one. Throws if the worker dies.
  Answer receive(uint64_t sequence);
  bool answered() { return end_->completionReady(); }
  Answer ask(ipc::Operation operation, const Body& body, uint32_t flags = ipc::kGradEnabled) {
    return receive(publish(operation, body, flags));
  }
  /// Defines object 1: the Probe.
  void defineProbe();
  uint64_t publishProbe(const std::string& name, std::vector<at::IValue> arguments = {},
                        const std::vector<std::pair<std::string, at::IValue>>& named = {},
                        uint32_t flags = ipc::kGradEnabled);
  /// Calls a method of the Probe.
  Answer probe(const std::string& name, std::vector<at::IValue> arguments = {},
               const std::vector<std::pair<std::string, at::IValue>>& named = {},
               uint32_t flags = ipc::kGradEnabled) {
    return receive(publishProbe(name, std::move(arguments), named, flags));
  }
  /// The same for a method that must succeed: throws if it does not, else returns its value.
  at::IValue probeValue(const std::string& name, std::vector<at::IValue> arguments = {});

  ipc::ClientEnd& end() { return *end_; }

 private:
  struct InFlight {
    std::vector<c10::Storage> inputs;
    void* blob = nullptr;
  };
  Answer decode(const ipc::ReceivedCompletion& completion, InFlight call);
  std::vector<c10::Storage> storagesOf(const std::vector<ipc::StorageRecord>& records,
                                       const InFlight& call);

  WorkerProcess& worker_;
  const uint64_t number_;
  std::unique_ptr<ipc::ClientEnd> end_;
  ipc::PageArena inputs_{size_t{4} << 30};
  uint32_t inputSegments_ = 0;
  std::unique_ptr<ipc::LeaseTable> leases_;
  std::map<uint32_t, ipc::Mapping> outputs_;
  std::map<uint64_t, InFlight> inFlight_;
  ipc::PayloadWriter writer_;
};

}  // namespace isopool::tests
