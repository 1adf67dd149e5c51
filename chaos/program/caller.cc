// SPDX-License-Identifier: BSD-3-Clause
#include "chaos/program/caller.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>

#include "chaos/program/failure.h"
#include "chaos/program/interruption.h"
#include "chaos/program/payload.h"
#include "chaos/program/planted_fault.h"

namespace chaos {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr uint64_t kLargest = 128 * 1024;  // elements: 1 MiB

bool losesSupervisor(Outcome outcome) {
  return outcome == Outcome::kSupervisorLost || outcome == Outcome::kSupervisorLostUnstarted;
}

}  // namespace

Caller::Caller(CallerSettings settings, Attachment& attachment, const HistoryWriter& history,
               Nonces& nonces, Rest& rest)
    : settings_(std::move(settings)),
      attachment_(attachment),
      history_(history),
      nonces_(nonces),
      rest_(rest),
      random_(settings_.seed) {}

void Caller::run() {
  for (;;) {
    if (rest_.wanted()) {
      kept_.clear();
      if (!rest_.take()) return;
      // After the first rest: by then chaos has measured the state without the fault.
      faultIsDue_ = !settings_.plantedFault.empty() && !faultCommitted_;
    }
    callOnce();
    rest_.pause(microseconds(below(1500)));
  }
}

bool Caller::managerIsDue() {
  if (faultIsDue_) return isFaultOfManager(settings_.plantedFault);
  if (!settings_.moreManagers) return false;
  // Makes the first manager before the program's first rest: memory that the library then keeps
  // does not count as a leak.
  return !madeManager_ || interruptions() != interruptionsSeen_ || oneIn(2000);
}

void Caller::callByAnotherManager() {
  madeManager_ = true;
  const std::string fault = faultIsDue_ ? settings_.plantedFault : std::string();
  {
    const std::shared_ptr<Pool> pool = attachment_.another(oneIn(2), fault);
    if (pool && fault.empty()) callOnceAsSuch(pool);
  }
  // Signals from now on make the next manager due.
  interruptionsSeen_ = interruptions();
  if (fault.empty()) return;
  faultIsDue_ = false;
  faultCommitted_ = true;
}

void Caller::callOnce() {
  try {
    const std::shared_ptr<Pool> pool = attachment_.pool();
    if (!pool) {
      rest_.pause(milliseconds(20));
      return;
    }
    if (managerIsDue()) callByAnotherManager();
    // This must not affect other callers that call at the same time.
    if (oneIn(200)) pool->step().unload();
    if (!faultIsDue_ && oneIn(6)) {
      callSeveralAtOnce(pool);
    } else {
      callOnceAsSuch(pool);
    }
  } catch (const std::exception&) {
    // Memory for a call's tensors or for a manager is short: nothing was made.
    rest_.pause(milliseconds(5));
  }
}

std::vector<at::IValue> Caller::Call::arguments(const std::string& effects) const {
  return {static_cast<int64_t>(record.nonce), effects, deed, amount, x};
}

Caller::Call Caller::draw() {
  Call call;
  call.record.nonce = nonces_.next();
  const uint64_t elements = oneIn(40)  ? 1 + below(kLargest)
                            : oneIn(3) ? 65 + below(8 * 1024)
                                       : 1 + below(64);
  const auto size = static_cast<int64_t>(elements);
  call.x = oneIn(2) ? isopool::empty({size}, at::kLong) : at::empty({size}, at::kLong);
  fillInput(call.x, call.record.nonce);
  drawDeed(call);
  const bool deadly = (call.record.flags & kDeadly) != 0;
  if (call.record.deadline == 0 && !oneIn(3)) call.record.deadline = oneIn(5) ? 50 : 2000;
  if (call.record.deadline != 0) call.options.deadline = milliseconds(call.record.deadline);
  if (!deadly && oneIn(5)) {
    call.options.idempotent = true;
    call.record.flags |= kIdempotent;
  }
  return call;
}

void Caller::drawDeed(Call& call) {
  const uint64_t draw = below(8000);
  if (draw < 10) {
    call.deed = "exit";
    call.amount = static_cast<int64_t>(below(2));
  } else if (draw < 20) {
    call.deed = "segv";
    call.amount = static_cast<int64_t>(below(8));
  } else if (draw < 25) {
    call.deed = "abort";
  } else if (draw < 35) {
    // The call exceeds its deadline: the worker is killed.
    call.deed = "wait";
    call.amount = 400;
    call.record.deadline = 100;
  }
  if (call.deed != "none") {
    call.record.flags |= kDeadly;
    return;
  }
  if (draw < 100) {
    call.deed = "raise";
  } else if (draw < 900) {
    call.deed = "spin";
    call.amount = static_cast<int64_t>(below(4));
  } else if (draw < 905) {
    call.deed = "allocate";
    call.amount = settings_.plain ? 32 : 500;
    call.record.flags |= kDeadly;  // memory may run out where no error can be reported
  } else if (draw < 1400 && !settings_.plain) {
    call.deed = "keep";
  }
}

void Caller::callOnceAsSuch(const std::shared_ptr<Pool>& pool) {
  Call call = draw();
  call.record.when = now();
  if (faultIsDue_) makeFaulty(call);
  history_.write(call.record);
  if (faultIsDue_) commitFault(settings_.plantedFault);
  Record record = call.record;
  try {
    const at::IValue value = pool->step().call(call.arguments(settings_.effects), {}, call.options);
    judge(record, call, value);
    ended(record);
    if (record.outcome == Outcome::kValue) keep(value.toTensor());
  } catch (...) {
    describeFailure(record, std::current_exception());
    ended(record);
  }
  if (faultIsDue_ && record.outcome == Outcome::kValue) faultCommitted_ = true;
  if (faultIsDue_ && record.outcome == Outcome::kWrong) faultCommitted_ = true;
  if (faultCommitted_) faultIsDue_ = false;
  if (record.outcome == Outcome::kRefused) kept_.clear();
  if (losesSupervisor(record.outcome)) attachment_.lost(pool);
}

void Caller::callSeveralAtOnce(const std::shared_ptr<Pool>& pool) {
  std::vector<Call> calls(1 + below(4));
  for (Call& call : calls) call = draw();
  std::vector<isopool::PendingCall> pending;
  pending.reserve(calls.size());
  std::atomic<bool> supervisorLost{false};
  for (Call& call : calls) {
    call.record.when = now();
    history_.write(call.record);
    const auto judgeAndWrite = [this, &call, &supervisorLost](const isopool::Outcome& outcome) {
      Record record = call.record;
      try {
        judge(record, call, outcome.value());
      } catch (...) {
        describeFailure(record, std::current_exception());
      }
      if (losesSupervisor(record.outcome)) supervisorLost = true;
      ended(record);
    };
    try {
      pending.push_back(pool->step().callAsync(call.arguments(settings_.effects), judgeAndWrite, {},
                                               call.options));
    } catch (...) {
      Record record = call.record;
      describeFailure(record, std::current_exception());
      ended(record);
    }
  }
  if (oneIn(8) && !pending.empty()) pending.back().cancel();
  for (const isopool::PendingCall& each : pending) each.wait();
  if (supervisorLost) attachment_.lost(pool);
}

void Caller::judge(Record& record, const Call& call, const at::IValue& value) {
  if (!value.isTensor() || !isResult(value.toTensor(), record.nonce, call.x.numel())) {
    record.outcome = Outcome::kWrong;
    setText(record, "the result has wrong bytes");
  } else if (!isInput(call.x, record.nonce)) {
    record.outcome = Outcome::kWrong;
    setText(record, "the call changed its input");
  } else {
    record.outcome = Outcome::kValue;
  }
}

void Caller::ended(Record& record) const {
  record.event = Event::kEnded;
  record.when = now();
  if (faultIsDue_ && settings_.plantedFault == "silent") return;
  history_.write(record);
  if (faultIsDue_ && settings_.plantedFault == "two-outcomes") history_.write(record);
}

// Keeps results until they are as many as the drawn number, or one is refused.
void Caller::keep(const at::Tensor& result) {
  if (kept_.size() >= keepAtMost_) {
    kept_.clear();
    keepAtMost_ = oneIn(50) ? 4000 : below(16);
  }
  kept_.push_back(result);
}

void Caller::makeFaulty(Call& call) const {
  const char* deed = deedOfFault(settings_.plantedFault);
  call.deed = deed != nullptr ? deed : "none";
  call.amount = 0;
  call.record.flags = 0;
  call.options.idempotent = false;
}

uint64_t Caller::below(uint64_t limit) {
  return std::uniform_int_distribution<uint64_t>(0, limit - 1)(random_);
}

}  // namespace chaos
