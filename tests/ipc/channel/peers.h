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

/// The two control segments of a channel. Not in use by more than one pair of ends at a time.
class ChannelMemory {
 public:
  enum class Views {
    /// As a supervisor makes them: four mappings, each segment writable through one.
    kSealed,
    /// One writable mapping of each, between pages that cannot be touched: for a hostile peer, and
    /// for the thread sanitizer, which knows addresses and not pages.
    kCommon,
  };
  explicit ChannelMemory(Views views);

  /// For the ends' constructors; once each.
  ipc::Mapping clientOwn() { return std::move(clientOwn_); }
  ipc::Mapping clientPeer() { return std::move(clientPeer_); }
  ipc::Mapping workerOwn() { return std::move(workerOwn_); }
  ipc::Mapping workerPeer() { return std::move(workerPeer_); }

  /// Writable by anybody who wants to lie. Only with kCommon.
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

/// Somebody at the other end of a channel, in a thread or in a forked process.
class Peer {
 public:
  /// The process exits with 0 when `life` returns.
  Peer(PeerKind kind, std::function<void()> life);
  /// Kills a process; waits for a thread.
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  void signal(int number) const;
  /// True once its pidfd says that it is gone; waits for that up to `patience`.
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

/// The bytes that belong to a number: of every length that fits into a slot.
std::vector<std::byte> contentOf(uint64_t number);
bool isContentOf(uint64_t number, const std::byte* bytes, uint32_t count);

ipc::OutgoingCall callWith(const std::vector<std::byte>& content);
ipc::OutgoingPayload payloadWith(const std::vector<std::byte>& content);

/// Sleeps until a call is there, as a worker does that spins not at all.
void sleepUntilCall(ipc::WorkerEnd& end);

enum class Awaited {
  kReady,  ///< a completion is there, of a living or a dead worker
  kDead,   ///< none is there, and the worker can publish no more
  kLate,   ///< neither, or it was not noticed in time
};
/// Sleeps until there is something to read or the liveness word tells of the worker's death.
Awaited sleepUntilCompletion(ipc::ClientEnd& end);

/// A call with these flags ends serve().
inline constexpr uint32_t kFarewell = uint32_t{1} << 31;

/// A worker's loop: takes each call, starts it unless it was recalled, and answers it with what
/// `run` returns.
void serve(ipc::WorkerEnd& end,
           const std::function<std::vector<std::byte>(const ipc::ReceivedCall&)>& run);

}  // namespace isopool::tests
