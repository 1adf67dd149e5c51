// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "ipc/tensor/input_report.h"
#include "ipc/tensor/value_codec.h"

namespace isopool::worker {

/// Which of the tensors that one client's calls brought were written to, as their version counters
/// show. torch increments a tensor's counter with every operation in place, and all tensors that
/// share it are gone when no other reference to it is left. The call loop's thread.
class InputVersions {
 public:
  /// Adds to `report` what has changed since the last call of this function: inputs of the present
  /// call, number `call` with the counters `ofCall`, and inputs that earlier calls have left behind
  /// handles. Empties `ofCall`. `keeps`: objects that keep inputs of the present call share them
  /// with the client, so that later calls may write to them.
  void collect(uint64_t call, ipc::VersionCounters& ofCall, bool keeps, ipc::InputReport& report);

 private:
  struct Kept {
    ipc::InputVersion input;
    c10::VariableVersion counter;
    uint32_t reported;  ///< its value that the client knows of
  };
  void collectKept(ipc::InputReport& report);

  std::vector<Kept> kept_;
};

}  // namespace isopool::worker
