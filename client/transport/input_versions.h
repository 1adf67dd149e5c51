// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>

#include "ipc/tensor/input_report.h"
#include "ipc/tensor/value_codec.h"

namespace isopool::client {

/// Increments all counters: a worker may have written to their tensors. Any thread.
void noteWrites(const ipc::VersionCounters& versions);

/// The version counters of the caller's tensors that objects in one worker keep, so that later
/// requests may write to them. Not thread-safe; the counters may be used by other threads.
class KeptInputs {
 public:
  /// Increments the counters that the worker reports in its answer to request `call`, whose
  /// counters are `versions`, and notes which are kept. Throws ValueError if the report names a
  /// counter that the request did not have.
  void note(const ipc::InputReport& report, uint64_t call, const ipc::VersionCounters& versions);
  /// The same for an answer that leaves open what was written to and is kept: assumes all.
  void noteUnknown(uint64_t call, const ipc::VersionCounters& versions);
  /// The worker may have written to all that is kept, and writes no more.
  void noteDeath();

 private:
  std::map<ipc::InputVersion, c10::VariableVersion> kept_;
};

}  // namespace isopool::client
