// SPDX-License-Identifier: BSD-3-Clause
#include "chaos/program/attachment.h"

#include <chrono>
#include <filesystem>

#include "chaos/program/failure.h"
#include "chaos/program/interruption.h"
#include "chaos/program/planted_fault.h"

namespace chaos {

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// ---- a manager -------------------------------------------------------------------------------

std::shared_ptr<Pool> Pool::open(PoolSettings settings, const HistoryWriter& history,
                                 Nonces& nonces) {
  auto pool = std::make_shared<Pool>(std::move(settings), history, nonces);
  return pool->step_ ? pool : nullptr;
}

Pool::Pool(PoolSettings settings, const HistoryWriter& history, Nonces& nonces)
    : settings_(std::move(settings)), history_(history), nonces_(nonces) {
  if (!recorded(kConstructor, [this] { makeManager(); })) return;
  recorded(kLoad, [this] {
    step_.emplace(manager_->loadPackage(settings_.package).loadPickle("model", "step.pkl"));
  });
}

Pool::~Pool() {
  if (!manager_) return;
  recorded(kClose, [this] {
    commitFault(settings_.faultAtClose);
    step_.reset();
    manager_.reset();
  });
}

void Pool::makeManager() {
  std::shared_ptr<isopool::Environment> environment;
  if (!settings_.environmentFolder.empty()) {
    environment = std::make_shared<isopool::PathEnvironment>(settings_.environmentFolder);
  }
  if (settings_.address.empty()) {
    manager_.emplace(settings_.workers, std::move(environment));
  } else {
    manager_.emplace(isopool::SharedSupervisor{settings_.address}, settings_.workers,
                     std::move(environment));
  }
}

// Calls `act` and records its outcome. False if it failed.
template <typename Act>
bool Pool::recorded(RecordFlag flag, const Act& act) {
  Record record;
  record.nonce = nonces_.next();
  record.flags = flag;
  record.when = now();
  history_.write(record);
  const uint64_t interruptionsBefore = interruptions();
  try {
    act();
    record.outcome = Outcome::kValue;
  } catch (...) {
    describeFailure(record, std::current_exception());
  }
  if (interruptions() != interruptionsBefore) record.flags |= kInterrupted;
  record.event = Event::kEnded;
  record.when = now();
  history_.write(record);
  return record.outcome == Outcome::kValue;
}

// ---- all managers ----------------------------------------------------------------------------

std::shared_ptr<Pool> Attachment::pool() {
  std::lock_guard lock(mutex_);
  if (!pool_) {
    PoolSettings settings;
    settings.workers = workers_;
    settings.package = package_;
    pool_ = Pool::open(std::move(settings), history_, nonces_);
  }
  return pool_;
}

void Attachment::lost(const std::shared_ptr<Pool>& pool) {
  if (reconnects_) return;
  std::shared_ptr<Pool> dropped;  // destroyed after the lock: other threads do not wait for its end
  std::lock_guard lock(mutex_);
  if (pool_ == pool) dropped = std::move(pool_);
}

void Attachment::end() {
  std::lock_guard lock(mutex_);
  pool_.reset();
}

std::shared_ptr<Pool> Attachment::another(bool otherEnvironment, const std::string& fault) const {
  PoolSettings settings;
  settings.package = package_;
  if (otherEnvironment) {
    settings.environmentFolder = std::filesystem::path(package_).parent_path();
  }
  if (fault == "no-manager") {
    settings.address = "/nonexistent/isopool";
  } else {
    settings.faultAtClose = fault;
  }
  return Pool::open(std::move(settings), history_, nonces_);
}

}  // namespace chaos
