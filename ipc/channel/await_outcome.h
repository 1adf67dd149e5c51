// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ipc/channel/ring.h"

namespace isopool::ipc {

/// Waits on a thread of the client for the outcome of one call, and handles the worker's death: the
/// order of these steps gives each call exactly one outcome. It is a template for the same reason
/// as ring.h: the model checker runs it, too.
///
/// Client has
///   deliver()          hands over every completion that is in the ring
///   hasOutcome()       true: the call has the outcome that the thread waits for
///   workerDied()       true: the worker can't publish anything any more
///   settle()           gives every call without an outcome the outcome of its worker's death
///   leaves()           true: the thread has another reason to stop waiting
///   watch()            stores the values of the words on which sleep() sleeps
///   sleep()            sleeps until one of these words is woken
///   completionReady(), announceSleep(), withdrawSleep()   as in RingReader
///
/// Returns true if the call has its outcome, false if the thread stops waiting without one: then
/// the call stays published. One thread per channel at a time, because it consumes completions.
template <typename Client>
bool awaitOutcome(Client& client) {
  for (;;) {
    client.deliver();
    if (client.hasOutcome()) return true;
    if (client.workerDied()) {
      // The dead worker publishes nothing more: this delivers the last completions.
      client.deliver();
      client.settle();
      return true;
    }
    if (client.leaves()) return false;
    client.watch();
    sleepUnless([&](auto&& step) { step(client); },
                [&] { return client.completionReady() || client.workerDied(); },
                [&] { client.sleep(); });
  }
}

}  // namespace isopool::ipc
