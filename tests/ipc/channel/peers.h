// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "ipc/channel/client_end.h"
#include "ipc/channel/worker_end.h"
#include "ipc/memory/memory_object.h"

namespace isopool::tests {

/// The two control segments of a channel. At most one pair of ends may use them at a time.
class ChannelMemory {
 public:
  enum class Views {
    /// Like those that a supervisor makes: four mappings; each segment is writable through one
    /// of them.
    kSealed,
    /// One writable mapping of each segment, between protected pages: for a hostile peer, and for
    /// the thread sanitizer, which compares addresses, not pages.
    kCommon,
  };
  explicit ChannelMemory(Views views);

  /// For the constructors of the ends. Call each once.
  ipc::Mapping clientOwn() { return std::move(clientOwn_); }
  ipc::Mapping clientPeer() { return std::move(clientPeer_); }
  ipc::Mapping workerOwn() { return std::move(workerOwn_); }
  ipc::Mapping workerPeer() { return std::move(workerPeer_); }

  /// Writable, for a peer that writes false data. Only with kCommon.
  ipc::ClientControl& clientControl() { return *clientControl_; }
  ipc::WorkerControl& workerControl() { return *workerControl_; }

 private:
  ipc::Mapping reservation_;
  ipc::Mapping clientOwn_;
  ipc::Mapping clientPeer_;
  ipc::Mapping workerOwn_;
  ipc::Mapping workerPeer_;
  ipc::ClientControl* clientControl_ = nullptr;
  ipc::WorkerControl* workerControl_ = nullptr;
};

enum class PeerKind { kThread, kProcess };

/// The other end of a channel: code that runs in a thread or in a forked process.
class Peer {
 public:
  /// The process exits with 0 when `life` returns.
  Peer(PeerKind kind, std::function<void()> life);
  /// Kills a process; waits for a thread.
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  void signal(int number) const;
  /// True if the process has ended; waits for its pidfd up to `patience`.
  bool gone(std::chrono::milliseconds patience) const;
  /// Waits for its end and returns its wait status; 0 for a thread.
  int waitForEnd();

 private:
  std::thread thread_;
  pid_t pid_ = -1;
  base::Fd pidfd_;
};

/// Memory that a test shares with the processes it forks.
template <typename T>
class SharedWithChildren {
 public:
  SharedWithChildren()
      : object_(ipc::createMemoryObject("test", ipc::roundUpToPages(sizeof(T)))),
        mapping_(ipc::mapShared(object_, 0, ipc::roundUpToPages(sizeof(T)), ipc::Access::kReadWrite,
                                ipc::Prefault::kYes)),
        value_(new (mapping_.data()) T{}) {}
  T* operator->() { return value_; }
  T& operator*() { return *value_; }

 private:
  base::Fd object_;
  ipc::Mapping mapping_;
  T* value_;
};

/// The bytes that belong to a number. Over all numbers, every length that fits into a slot occurs.
std::vector<std::byte> contentOf(uint64_t number);
bool isContentOf(uint64_t number, const std::byte* bytes, uint32_t count);

ipc::OutgoingCall callWith(const std::vector<std::byte>& content);
ipc::OutgoingPayload payloadWith(const std::vector<std::byte>& content);

/// Sleeps until a call is ready, like a worker that does not spin.
void sleepUntilCall(ipc::WorkerEnd& end);

enum class Awaited {
  kReady,  ///< a completion is ready, of a living or a dead worker
  kDead,   ///< none is ready, and the worker is dead
  kLate,   ///< neither, or it was noticed too late
};
/// Sleeps until a completion is ready or the liveness word shows the worker's death.
Awaited sleepUntilCompletion(ipc::ClientEnd& end);

/// A call with these flags ends serve().
inline constexpr uint32_t kFarewell = uint32_t{1} << 31;

/// A worker's loop: takes each call, starts it unless it was recalled, and answers it with what
/// `run` returns.
void serve(ipc::WorkerEnd& end,
           const std::function<std::vector<std::byte>(const ipc::ReceivedCall&)>& run);

}  // namespace isopool::tests
