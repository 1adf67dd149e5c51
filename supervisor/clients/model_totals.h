// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "ipc/control/model_calls.h"

namespace isopool::supervisor {

/// Calls by model, as clients report them: of one client, or of all of a class since the
/// supervisor's start. No count falls.
class ModelTotals {
 public:
  /// So many models have counts of their own; the calls of all others count for kOthers together.
  /// Bounds the memory that a client takes by reporting invented names.
  static constexpr size_t kMostModels = 64;
  static constexpr const char* kOthers = "(others)";

  /// Throws ipc::ProtocolError if the message is invalid; then nothing was added.
  void add(const std::vector<ipc::ModelCalls>& calls);
  /// Adds the others' counts, and sets those to none.
  void take(ModelTotals& others);
  /// By name.
  std::vector<ipc::ModelCalls> all() const;

 private:
  void addOne(const ipc::ModelCalls& calls);

  std::map<std::string, ipc::ModelCalls> byName_;
};

}  // namespace isopool::supervisor
