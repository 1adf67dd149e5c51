// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace isopool::client {

/// One connection to a supervisor: whether its messages are read now. They are not while this
/// process has no free descriptor for those that messages bring. Until they are read, a worker or a
/// segment that this process does not know may be a valid one: nothing may be judged by that. Any
/// thread; set() for the control thread.
class UnreadMessages {
 public:
  /// `connection`: see SupervisorConnection::number(). Throws std::bad_alloc.
  explicit UnreadMessages(uint64_t connection);
  ~UnreadMessages();
  UnreadMessages(const UnreadMessages&) = delete;
  UnreadMessages& operator=(const UnreadMessages&) = delete;

  void set(bool unread) noexcept;

  /// True if messages of that connection wait unread, or did when it was lost. False if there is no
  /// such connection.
  static bool of(uint64_t connection);
  /// Why they wait, and what to do.
  static const char* cause();

 private:
  struct Known;
  static Known& known();

  const uint64_t connection_;
  Known& all_;
  bool unread_ = false;  // guarded by the mutex of all_
};

}  // namespace isopool::client
