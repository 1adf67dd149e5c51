// SPDX-License-Identifier: BSD-3-Clause
#include "client/pool/pool_contents.h"

#include <set>
#include <utility>

#include "client/pool/pool.h"
#include "isopool/errors.h"

namespace isopool::client {

void PoolContents::addPackage(const std::shared_ptr<ArchiveFile>& file) {
  for (;;) {
    const auto connection = pool_.connection();
    if (!connection) return;
    try {
      connection->loadPackage(file);
    } catch (const SupervisorLost&) {
      if (!pool_.awaitConnectionAfter(*connection)) throw;
      continue;
    }
    {
      base::MutexLock lock(mutex_);
      if (connection_.lock() == connection) {
        packages_.emplace(file->id().value, Package{file, connection, connection->number()});
        return;
      }
    }
    // Another connection has got everything meanwhile, but not this package.
    connection->unloadPackage(file->id());
    if (!pool_.awaitConnectionAfter(*connection)) return;
  }
}

void PoolContents::removePackage(base::PackageId package) {
  if (generation_ != forkGeneration()) return;
  std::shared_ptr<SupervisorConnection> holder;
  {
    base::MutexLock lock(mutex_);
    const auto use = packages_.find(package.value);
    if (use == packages_.end()) return;
    holder = use->second.holder.lock();
    packages_.erase(use);
  }
  if (holder) holder->unloadPackage(package);
}

void PoolContents::addMoved(const std::shared_ptr<MovedObject>& object) {
  base::MutexLock lock(mutex_);
  std::erase_if(moved_, [](const auto& each) { return each.expired(); });
  moved_.push_back(object);
  const auto connection = connection_.lock();
  if (connection && !object->knownTo(connection->number())) {
    object->announceTo(connection->writer(), connection->number());
  }
}

void PoolContents::addDefinition(const ObjectDefinition& definition) {
  base::MutexLock lock(mutex_);
  definitions_[definition.object] = definition;
  if (const auto connection = connection_.lock()) connection->addDefinition(definition);
}

void PoolContents::removeDefinition(uint64_t object) {
  if (generation_ != forkGeneration()) return;
  std::shared_ptr<SupervisorConnection> connection;
  {
    base::MutexLock lock(mutex_);
    definitions_.erase(object);
    connection = connection_.lock();
  }
  if (connection) connection->removeDefinition(object);
}

std::vector<std::string> PoolContents::loadedIn(const WorkerLink& channel) {
  std::set<std::string> names;
  base::MutexLock lock(mutex_);
  for (const auto& [object, definition] : definitions_) {
    if (channel.definedObjects.has(object)) names.insert(definition.name);
  }
  return {names.begin(), names.end()};
}

void PoolContents::giveTo(const std::shared_ptr<SupervisorConnection>& next) {
  while (givePackage(next)) {
  }
}

// Gives `next` one package that it has not got. If there is none, gives it the rest and returns
// false: from here on it gets what is added.
bool PoolContents::givePackage(const std::shared_ptr<SupervisorConnection>& next) {
  const uint64_t number = next->number();
  std::shared_ptr<ArchiveFile> file;
  {
    base::MutexLock lock(mutex_);
    for (auto& [id, package] : packages_) {
      if (package.tried == number) continue;
      package.tried = number;
      file = package.file.lock();
      // Its owner is about to remove it.
      if (!file) continue;
      break;
    }
    if (!file) {
      for (const auto& weak : moved_) {
        if (const auto moved = weak.lock()) moved->announceTo(next->writer(), number);
      }
      for (const auto& [object, definition] : definitions_) next->addDefinition(definition);
      connection_ = next;
      return false;
    }
  }
  try {
    next->loadPackage(file);
  } catch (const LimitExceeded& error) {
    pool_.eventLog().write(LogLevel::kError, [&] {
      return file->name() + " can't be loaded again, its objects will fail: " + error.what();
    });
    return true;
  }
  {
    base::MutexLock lock(mutex_);
    const auto uses = packages_.equal_range(file->id().value);
    for (auto use = uses.first; use != uses.second; ++use) {
      if (use->second.tried != number || use->second.holder.lock() == next) continue;
      use->second.holder = next;
      return true;
    }
  }
  // It was removed meanwhile.
  next->unloadPackage(file->id());
  return true;
}

}  // namespace isopool::client
