// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/mutex.h"
#include "client/control/supervisor_connection.h"
#include "client/models/archive_file.h"
#include "client/program/process_fork.h"
#include "client/transport/moved_object.h"
#include "client/transport/object_definition.h"

namespace isopool::client {

class Pool;

/// What the program has given to the workers of one pool: packages and stored models, moved
/// objects, definitions of objects. If the pool gets another connection, all of it is given to that
/// one before the pool's workers are asked for. Keeps none of it alive. Any thread. In a forked
/// child nothing is removed.
class PoolContents {
 public:
  /// `pool` owns this.
  PoolContents(Pool& pool, const std::shared_ptr<SupervisorConnection>& connection)
      : pool_(pool), connection_(connection) {}

  /// The workers have the package until removePackage(), which belongs to each addPackage(). With a
  /// shared supervisor waits for its answer. Throws what LoadedPackages::loadShared() throws; if
  /// the supervisor is lost meanwhile, first waits as Pool::awaitConnectionAfter(). No effect if
  /// the pool is closed.
  void addPackage(const std::shared_ptr<ArchiveFile>& file);
  void removePackage(base::PackageId package);
  /// Announces the object to the pool's connection if another one has announced it: the pool may
  /// have got its connection after the object was made.
  void addMoved(const std::shared_ptr<MovedObject>& object);
  /// See SupervisorConnection::addDefinition() and removeDefinition().
  void addDefinition(const ObjectDefinition& definition);
  void removeDefinition(uint64_t object);

  /// The names of the objects that the worker has loaded, each once, in order.
  std::vector<std::string> loadedIn(const WorkerLink& channel);

  /// Gives everything to `next`. What is added or removed meanwhile is considered, too. A package
  /// that the supervisor refuses is logged: its objects then fail when they are used. Throws
  /// SupervisorLost, std::bad_alloc.
  void giveTo(const std::shared_ptr<SupervisorConnection>& next);

 private:
  struct Package {
    std::weak_ptr<ArchiveFile> file;
    std::weak_ptr<SupervisorConnection> holder;  ///< the connection that has it
    uint64_t tried = 0;  ///< the number of the connection that has it or has refused it
  };

  bool givePackage(const std::shared_ptr<SupervisorConnection>& next);

  Pool& pool_;
  const uint32_t generation_ = forkGeneration();
  base::Mutex mutex_;
  /// The last one that has got everything.
  std::weak_ptr<SupervisorConnection> connection_ ISOPOOL_GUARDED_BY(mutex_);
  std::multimap<uint32_t, Package> packages_ ISOPOOL_GUARDED_BY(mutex_);  // one per use, by id
  std::vector<std::weak_ptr<MovedObject>> moved_ ISOPOOL_GUARDED_BY(mutex_);
  std::map<uint64_t, ObjectDefinition> definitions_ ISOPOOL_GUARDED_BY(mutex_);
};

}  // namespace isopool::client
