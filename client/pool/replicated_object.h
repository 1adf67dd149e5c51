// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "client/models/archive_file.h"
#include "client/pool/pool.h"

namespace isopool {

/// The implementation of a Package: the workers of the manager have its bytes as long as this
/// lives. Any thread.
class PackageImpl {
 public:
  /// With a shared supervisor waits for its answer, and throws what LoadedPackages::loadShared()
  /// throws. No effect on the workers if the pool is closed.
  PackageImpl(std::shared_ptr<client::Pool> pool, std::shared_ptr<client::ArchiveFile> file);
  /// Does not wait.
  ~PackageImpl();
  PackageImpl(const PackageImpl&) = delete;
  PackageImpl& operator=(const PackageImpl&) = delete;

  const std::shared_ptr<client::Pool> pool;
  const std::shared_ptr<client::ArchiveFile> file;
};

/// The implementation of a ReplicatedObj: the definition by which each worker of the pool makes the
/// object, spares ahead of time (see SpareWorker). If a worker dies, its replacement makes the
/// object again at its next use. The destructor asks all workers to release it, see
/// SupervisorConnection::removeDefinition(), and does not wait. Any thread.
class ReplicatedObjImpl {
 public:
  /// `source` owns what the definition refers to; it lives as long as this object.
  ReplicatedObjImpl(std::shared_ptr<client::Pool> pool, client::ObjectDefinition definition,
                    std::shared_ptr<const void> source);
  ~ReplicatedObjImpl();
  ReplicatedObjImpl(const ReplicatedObjImpl&) = delete;
  ReplicatedObjImpl& operator=(const ReplicatedObjImpl&) = delete;

  const std::shared_ptr<client::Pool> pool;
  const client::ObjectDefinition definition;
  mutable client::ReplicaTracker replicas;  ///< which workers have the object

 private:
  const std::shared_ptr<const void> source_;
};

/// Makes the object in a free worker, so that errors show here, and returns the implementation of a
/// new ReplicatedObj. Waits without limit. Throws RemoteError, WorkerLost if the worker died over
/// it (another worker is not tried), and what Pool::reserveWorker(), WorkerSetup::define() throw.
std::shared_ptr<ReplicatedObjImpl> replicate(const std::shared_ptr<client::Pool>& pool,
                                             client::ObjectDefinition definition,
                                             std::shared_ptr<const void> source);

}  // namespace isopool
