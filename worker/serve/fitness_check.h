// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/resource.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/process/credentials.h"
#include "worker/process/kept_attributes.h"
#include "worker/process/kept_streams.h"
#include "worker/process/own_descriptors.h"
#include "worker/sandbox/sandbox.h"
#include "worker/serve/interpreter_check.h"

namespace isopool::worker {

/// Checks whether this process can still serve a client after it ran the code of another client:
/// allocate memory, open descriptors, start threads, make system calls, run Python code. Under the
/// sandbox strict also whether processes of the other client's code still run. The call loop's
/// thread, with the GIL.
class FitnessCheck {
 public:
  /// Records the limits and filters of the process and what its interpreter has. To be made before
  /// any user code runs. `sandbox` must outlive this object. `descriptors`: that the worker needs.
  FitnessCheck(const Sandbox& sandbox, std::initializer_list<int> descriptors);

  /// To be called before each call of `client`. Returns why the worker is not fit for it, or an
  /// empty text. If another client was served before, sets back the standard streams and
  /// KeptAttributes, and checks what takes a microsecond: processes that still run, what the
  /// process may access, limits of resources, a free descriptor, the number of built-in names. All
  /// else is checked at most every 100 ms, unless the sandbox is still to be closed.
  std::string failureBefore(uint64_t client);
  /// To be called when a client has left, after its last call. Returns the same.
  std::string failureAfter(uint64_t client);
  /// False if user code has closed or replaced descriptors that the worker needs.
  bool hasDescriptors() const noexcept { return descriptors_.areThere(); }
  /// Checks now, independently of the client.
  std::string failure() const;

 private:
  /// After code of another client: what is checked each time.
  std::string failureOfEachChange();
  std::string failureOfProcesses();
  std::string failureOfLimits() const;
  std::string failureOfFilters() const;

  const Sandbox& sandbox_;
  const InterpreterCheck interpreter_;
  const OwnDescriptors descriptors_;
  const KeptStreams streams_;
  const KeptAttributes attributes_;
  const std::optional<Credentials> credentials_;  ///< nullopt: user code can't change them
  std::optional<uint64_t>
      filters_;  ///< number of system call filters on the main thread; nullopt: unknown
  const std::string laterCapabilities_;  ///< the main thread's, for programs that it starts
  /// Whether the kernel allowed it at first to examine its parent; under strict it does not.
  const bool seesParent_;
  const std::pair<dev_t, ino_t> root_;
  const std::vector<ino_t> namespaces_;  ///< of the main thread
  std::array<rlimit, RLIM_NLIMITS> limits_{};
  uint64_t lastServed_ = 0;
  uint64_t servedSinceCheck_ = 0;  ///< the client that was served since the last complete check
  bool servedOthers_ = false;      ///< others were, too
  bool noProcesses_ = false;       ///< user code has none and can start none
  int64_t checkedAt_ = 0;
};

}  // namespace isopool::worker
