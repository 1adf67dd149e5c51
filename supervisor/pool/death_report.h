// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "supervisor/pool/death_origin.h"
#include "supervisor/pool/slot_table.h"

namespace isopool::supervisor {

/// What the log states of a worker's death. Noted when the worker is lost, written when it is
/// reaped, because only then the cause is known.
struct DeathReport {
  std::string name;          ///< of the worker, see WorkerGroup::describe()
  std::optional<Slot> slot;  ///< nothing: a spare
  bool early = false;        ///< it was introduced, and completed no call
  bool replaced = false;     ///< it was retiring: another worker has its slot
  pid_t processId = 0;
  DeathOrigin origin;  ///< in a private pool always of no client
  std::string whose;   ///< the same as a part of the line; empty: of no client
  /// Clients against which the death counts, unless something outside of the worker caused it:
  /// those of `origin` that had completed no call on the worker, see WorkerGroup::settleOrigin().
  std::vector<ClientId> suspects;
  base::Milliseconds vacancy{0};  ///< how long its place stays empty

  /// The line: name, death, cause and what follows. `replacement`: the process that serves the slot
  /// now; 0: none yet; nothing: no worker follows, because the pool or the group has ended.
  std::string text(const std::string& death, const std::string& cause,
                   std::optional<pid_t> replacement) const;
};

/// The last line of a worker's crash log, printable: user code may have written it.
std::string lastLineOf(const base::Fd& crashLog);

/// True if a worker's crash log shows that the last crash was in its main thread, which runs the
/// calls: with its C and Python code, and not while Python's garbage collector ran, which may run
/// code of any program. `crashLog` is what Python's faulthandler has written; user code may have
/// written it, too.
bool crashedInCall(const base::Fd& crashLog);

/// Appends a line to the crash log of a worker that the supervisor is about to kill, so that its
/// caller gets the reason with the death. Ignores errors.
void noteInCrashLog(const base::Fd& crashLog, const std::string& line);

}  // namespace isopool::supervisor
