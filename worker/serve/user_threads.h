// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

namespace isopool::worker {

/// Which client's code has started each thread of the interpreter, so that a worker of several
/// clients finds the threads that one of them has left behind. A thread belongs to the client whose
/// code ran last when it was first seen; one that never runs Python code has no owner. The call
/// loop's thread, with the GIL.
class UserThreads {
 public:
  /// To be called when code of `client` has run. Takes some nanoseconds if no thread was started.
  void ranCodeOf(uint64_t client) noexcept {
    if (newestThread() != newestSeen_) note(client);
  }
  /// To be called when a client has left. Its threads have one second from now on to end.
  void left(uint64_t client);

  /// When leftBehind() is to be called next, by ipc::monotonicNow(); nothing: no client has left.
  std::optional<int64_t> nextLook() const noexcept { return look_; }
  /// The number of threads that run Python code and that clients which have left had started.
  size_t leftBehind();

 private:
  static uint64_t newestThread() noexcept;
  void note(uint64_t client) noexcept;

  uint64_t newestSeen_ = newestThread();
  std::map<uint64_t, uint64_t> owners_;  ///< by the interpreter's number of the thread
  std::set<uint64_t> departed_;
  std::optional<int64_t> look_;
};

}  // namespace isopool::worker
