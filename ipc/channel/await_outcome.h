// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ipc/channel/ring.h"

namespace isopool::ipc {

/// How a client's thread waits at the completion ring for the outcome of one call, and what it does
/// at the worker's death: the order of these steps gives each call exactly one outcome. A template
/// for the reason that ring.h is one.
///
/// Client has
///   deliver()          hands over every completion that lies ready
///   hasOutcome()       the call has what the thread waits for
///   workerDied()       nothing is published any more
/// settle() gives every call without an outcome the one that it has at its worker's death
///   leaves()           the thread has another reason to go
///   watch()            notes the words' values, for sleep()
///   sleep()            until one of them is woken
///   completionReady(), announceSleep(), withdrawSleep()   the ring reader's
///
/// True if the call has its outcome, false if the thread leaves without.
template <typename Client>
bool awaitOutcome(Client& client) {
  for (;;) {
    client.deliver();
    if (client.hasOutcome()) return true;
    if (client.workerDied()) {
      // What lies in the ring now is all there will ever be.
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
