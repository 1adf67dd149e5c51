// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "chaos/program/attachment.h"
#include "chaos/program/rest.h"

namespace chaos {

struct CallerSettings {
  std::string effects;        ///< the file that models append to
  bool plain = false;         ///< the workers are without torch
  bool moreManagers = false;  ///< this caller also makes managers of its own
  std::string plantedFault;   ///< committed by this caller, see planted_fault.h; mostly empty
  uint64_t seed = 0;
};

/// A thread that calls without end in every way: synchronously and asynchronously, with tensors
/// inside and outside shared memory, with and without a deadline, and with calls that kill their
/// worker. Records each call and its outcome. With `moreManagers` it also makes managers for a
/// single call and closes them, now and then and while the program is interrupted.
class Caller {
 public:
  Caller(CallerSettings settings, Attachment& attachment, const HistoryWriter& history,
         Nonces& nonces, Rest& rest);
  /// Returns when the program ends.
  void run();

 private:
  struct Call {
    Record record;
    std::string deed = "none";
    int64_t amount = 0;
    at::Tensor x;
    isopool::CallOptions options;
    std::vector<at::IValue> arguments(const std::string& effects) const;
  };

  Call draw();
  void drawDeed(Call& call);
  void callOnce();
  bool managerIsDue();
  void callByAnotherManager();
  void callOnceAsSuch(const std::shared_ptr<Pool>& pool);
  void callSeveralAtOnce(const std::shared_ptr<Pool>& pool);
  void keep(const at::Tensor& result);
  void makeFaulty(Call& call) const;
  static void judge(Record& record, const Call& call, const at::IValue& value);
  void ended(Record& record) const;
  uint64_t below(uint64_t limit);
  bool oneIn(uint64_t chances) { return below(chances) == 0; }

  const CallerSettings settings_;
  Attachment& attachment_;
  const HistoryWriter& history_;
  Nonces& nonces_;
  Rest& rest_;
  std::mt19937_64 random_;
  bool madeManager_ = false;
  uint64_t interruptionsSeen_ = 0;
  bool faultIsDue_ = false;
  bool faultCommitted_ = false;
  std::vector<at::Tensor> kept_;
  size_t keepAtMost_ = 0;
};

}  // namespace chaos
