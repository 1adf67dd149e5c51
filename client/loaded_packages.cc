// SPDX-License-Identifier: BSD-3-Clause
#include "client/loaded_packages.h"

#include <chrono>
#include <utility>

#include "ipc/crash_point.h"
#include "isopool/errors.h"

namespace isopool::client {

namespace {

// A shared supervisor answers for a package at once.
constexpr std::chrono::seconds kPatience(30);

}  // namespace

bool LoadedPackages::isFirstUse(ipc::PackageId package) {
  std::lock_guard lock(mutex_);
  return uses_[package.value]++ == 0;
}

void LoadedPackages::load(const std::shared_ptr<ArchiveFile>& package) {
  if (!isFirstUse(package->id())) return;
  writer_->send(ipc::LoadPackage{package->id().value, package->bytes(), package->name()},
                {package->object().get()});
  ipc::reachCrashPoint(ipc::CrashPoint::kPackageDeclared);
}

void LoadedPackages::loadShared(const std::shared_ptr<ArchiveFile>& package) {
  if (!isFirstUse(package->id())) return;
  const uint32_t id = package->id().value;
  Held answer;
  {
    std::unique_lock lock(mutex_);
    asked_.try_emplace(id);
    lock.unlock();
    writer_->send(ipc::LoadPackage{id, package->bytes(), package->name(), /*shared=*/false,
                                   package->digest().first, package->digest().second},
                  {package->object().get()});
    ipc::reachCrashPoint(ipc::CrashPoint::kPackageDeclared);
    lock.lock();
    const bool answered = changed_.wait_for(
        lock, kPatience, [&] { return asked_.at(id).answered || !lostReason_.empty(); });
    answer = std::move(asked_.at(id));
    asked_.erase(id);
    if (!answer.answered || !answer.refusal.empty()) uses_.erase(id);
    if (!lostReason_.empty()) throw SupervisorLost(lostReason_);
    if (!answered) throw SupervisorLost("the supervisor does not answer");
  }
  if (!answer.refusal.empty()) throw LimitExceeded(package->name() + ": " + answer.refusal);
  if (!answer.same.valid()) return;
  writer_->send(ipc::ConfirmPackage{id, package->adopt(std::move(answer.same))});
  ipc::reachCrashPoint(ipc::CrashPoint::kPackageConfirmed);
}

void LoadedPackages::unload(ipc::PackageId package) {
  {
    std::lock_guard lock(mutex_);
    const auto uses = uses_.find(package.value);
    if (uses == uses_.end() || --uses->second > 0) return;
    uses_.erase(uses);
  }
  writer_->send(ipc::UnloadPackage{package.value});
  ipc::reachCrashPoint(ipc::CrashPoint::kPackageUnloaded);
}

void LoadedPackages::answered(const ipc::PackageHeld& message, ipc::Frame& frame) {
  {
    std::lock_guard lock(mutex_);
    const auto asked = asked_.find(message.package);
    if (asked == asked_.end()) return;
    asked->second.answered = true;
    asked->second.refusal = message.refusal;
    if (!frame.descriptors.empty()) asked->second.same = std::move(frame.descriptors.front());
  }
  changed_.notify_all();
}

void LoadedPackages::supervisorLost(const std::string& reason) {
  {
    std::lock_guard lock(mutex_);
    if (lostReason_.empty()) lostReason_ = reason;
  }
  changed_.notify_all();
}

}  // namespace isopool::client
