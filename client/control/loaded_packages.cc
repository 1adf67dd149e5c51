// SPDX-License-Identifier: BSD-3-Clause
#include "client/control/loaded_packages.h"

#include <utility>

#include "base/running_time.h"
#include "base/without_cancellation.h"
#include "ipc/crash_point.h"
#include "isopool/errors.h"

namespace isopool::client {

// `send` tells the supervisor of a first use.
template <typename Send>
LoadedPackages::Use LoadedPackages::addUse(base::PackageId package, Answer answer, Send&& send) {
  base::MutexLock order(orderMutex_);
  Use use{};
  {
    base::MutexLock lock(mutex_);
    auto& load = loads_[package.value];
    use.isFirst = load == nullptr;
    if (use.isFirst) {
      load = std::make_shared<Load>();
      load->answered = answer == Answer::kNone;
    }
    ++load->uses;
    use.load = load;
  }
  if (!use.isFirst) return use;
  try {
    send();
  } catch (...) {
    base::MutexLock lock(mutex_);
    loads_.erase(package.value);
    throw;
  }
  ipc::reachCrashPoint(ipc::CrashPoint::kPackageDeclared);
  return use;
}

void LoadedPackages::load(const std::shared_ptr<ArchiveFile>& package) {
  addUse(package->id(), Answer::kNone, [&] {
    writer_->sendPackage(package->id(),
                         ipc::LoadPackage{package->id().value, package->bytes(), package->name()},
                         package->object().get());
  });
}

void LoadedPackages::loadShared(const std::shared_ptr<ArchiveFile>& package) {
  const uint32_t id = package->id().value;
  const Use use = addUse(package->id(), Answer::kExpected, [&] {
    writer_->sendPackage(package->id(),
                         ipc::LoadPackage{id, package->bytes(), package->name(), /*shared=*/false,
                                          package->digest().first, package->digest().second},
                         package->object().get());
  });
  awaitAnswer(package->id(), use.load);
  if (!use.load->refusal.empty()) {
    throw LimitExceeded(package->name() + ": " + use.load->refusal);
  }
  base::Fd same;
  {
    // Exactly one use confirms. It need not be the first one, which may have timed out.
    base::MutexLock lock(mutex_);
    same = std::move(use.load->same);
  }
  if (!same.valid()) return;
  writer_->send(ipc::ConfirmPackage{id, package->adopt(std::move(same))});
  ipc::reachCrashPoint(ipc::CrashPoint::kPackageConfirmed);
}

void LoadedPackages::awaitAnswer(base::PackageId package, const std::shared_ptr<Load>& load) {
  const base::WithoutCancellation complete;
  std::string lost;
  {
    base::MutexLock lock(mutex_);
    base::RunningTime waited;
    while (!load->answered && lostReason_.empty() &&
           waited.look(std::chrono::steady_clock::now()) < patience_) {
      changed_.wait_for(lock, base::RunningTime::kBetweenLooks);
    }
    if (load->answered) return;
    lost = lostReason_.empty() ? "the supervisor does not answer" : lostReason_;
  }
  dropUse(package, load);
  throw SupervisorLost(lost);
}

void LoadedPackages::unload(base::PackageId package) {
  std::shared_ptr<Load> load;
  {
    base::MutexLock lock(mutex_);
    const auto found = loads_.find(package.value);
    if (found == loads_.end()) return;
    load = found->second;
  }
  dropUse(package, load);
}

void LoadedPackages::dropUse(base::PackageId package, const std::shared_ptr<Load>& load) {
  base::MutexLock order(orderMutex_);
  {
    base::MutexLock lock(mutex_);
    const auto found = loads_.find(package.value);
    // It may have been refused in this moment, and asked for anew.
    if (found == loads_.end() || found->second != load || --load->uses > 0) return;
    loads_.erase(found);
    if (writer_->revoke(package)) return;
    if (!load->answered) ++abandoned_[package.value];
  }
  writer_->send(ipc::UnloadPackage{package.value});
  ipc::reachCrashPoint(ipc::CrashPoint::kPackageUnloaded);
}

void LoadedPackages::answered(const ipc::PackageHeld& message, ipc::Frame& frame) {
  {
    base::MutexLock lock(mutex_);
    const auto abandoned = abandoned_.find(message.package);
    if (abandoned != abandoned_.end()) {
      if (--abandoned->second == 0) abandoned_.erase(abandoned);
      return;
    }
    const auto found = loads_.find(message.package);
    if (found == loads_.end() || found->second->answered) return;
    Load& load = *found->second;
    load.answered = true;
    load.refusal = message.refusal;
    if (!frame.descriptors.empty()) load.same = std::move(frame.descriptors.front());
    // The supervisor does not have it: whoever waits gets the refusal, and the next one asks anew.
    if (!load.refusal.empty()) loads_.erase(found);
  }
  changed_.notify_all();
}

void LoadedPackages::supervisorLost(const std::string& reason) {
  {
    base::MutexLock lock(mutex_);
    if (lostReason_.empty()) lostReason_ = reason;
  }
  changed_.notify_all();
}

}  // namespace isopool::client
