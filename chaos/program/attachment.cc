// SPDX-License-Identifier: BSD-3-Clause
#include "chaos/program/attachment.h"

#include <chrono>

#include "chaos/program/failure.h"

namespace chaos {

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::shared_ptr<Pool> Attachment::pool() {
  std::lock_guard lock(mutex_);
  if (pool_) return pool_;
  Record record;
  record.nonce = nonces_.next();
  record.flags = kAttaching;
  record.when = now();
  history_.write(record);
  try {
    pool_ = std::make_shared<Pool>(workers_, package_);
    record.outcome = Outcome::kValue;
  } catch (...) {
    describeFailure(record, std::current_exception());
  }
  record.event = Event::kEnded;
  record.when = now();
  history_.write(record);
  return pool_;
}

void Attachment::lost(const std::shared_ptr<Pool>& pool) {
  std::shared_ptr<Pool> dropped;  // after the lock: other threads need not wait for its end
  std::lock_guard lock(mutex_);
  if (pool_ == pool) dropped = std::move(pool_);
}

void Attachment::end() {
  std::lock_guard lock(mutex_);
  pool_.reset();
}

}  // namespace chaos
