// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "client/program/event_log.h"
#include "client/transport/worker_link.h"
#include "isopool/errors.h"

namespace isopool::client {

/// Receives the events of one pool of a connection. The control thread calls its members, which
/// must not block and must not throw anything but std::bad_alloc. It calls none of them while it
/// holds a lock. Events may still arrive after SupervisorConnection::closePool() has returned: the
/// control thread may have begun to report one.
class PoolEvents {
 public:
  virtual ~PoolEvents() = default;
  /// A worker can be called that may serve a slot of the pool later. No call of the pool finds it
  /// before.
  virtual void workerIntroduced(const std::shared_ptr<WorkerLink>& channel) = 0;
  /// `channel` leads to the worker that serves `slot` from now on.
  virtual void workerAssigned(uint32_t slot, std::shared_ptr<WorkerLink> channel) = 0;
  /// The worker of `slot` has died, and its link is dead. Its replacement may have been assigned
  /// before. Not reported for a worker that was replaced on purpose.
  /// `asked`: the program has asked for it, by the cancel of a call, a deadline, or from within.
  virtual void workerDied(uint32_t slot, const WorkerLost::Death& death, bool asked) = 0;
  /// `slot` stays empty for a while; `text` has the reason.
  virtual void slotQuarantined(uint32_t slot, std::string text) = 0;
  /// The connection with this number has ended, and the pool gets no further worker from it; `text`
  /// has the reason. The links of its workers end right after this. May be reported more than once,
  /// also when the pool has another connection already.
  virtual void supervisorLost(uint64_t connection, std::string text) = 0;
  /// The supervisor is about to end: from here on the pool refuses new calls with this text. False
  /// if earlier calls are under way: another thread calls SupervisorConnection::drained() when they
  /// have ended.
  virtual bool drain(const std::string& text) = 0;
  /// The pool may report its calls to the supervisor: called every two seconds if that is shared.
  virtual void reportCalls() = 0;
  /// Where the connection reports what concerns all its pools.
  virtual const EventLog& eventLog() const = 0;
};

}  // namespace isopool::client
