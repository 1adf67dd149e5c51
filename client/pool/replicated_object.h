// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string>

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

namespace client {

/// The file that a replicated object was loaded from.
struct ModelOrigin {
  std::string format;  ///< ModelFormat::name; empty for a moved object
  std::string file;    ///< its path
  uint64_t bytes = 0;
  std::shared_ptr<ArchiveFile> package{};  ///< null unless it is a torch.package
  std::string module{};                    ///< the package's package that has the object
};

}  // namespace client

/// The implementation of a ReplicatedObj: the definition by which each worker of the pool makes the
/// object, spares ahead of time (see SpareWorker). If a worker dies, its replacement makes the
/// object again at its next use. The destructor asks all workers to release it, see
/// SupervisorConnection::removeDefinition(), and does not wait. Any thread.
class ReplicatedObjImpl {
 public:
  /// `source` owns what the definition refers to; it lives as long as this object.
  ReplicatedObjImpl(std::shared_ptr<client::Pool> pool, client::ObjectDefinition definition,
                    std::shared_ptr<const void> source, client::ModelOrigin origin = {});
  ~ReplicatedObjImpl();
  ReplicatedObjImpl(const ReplicatedObjImpl&) = delete;
  ReplicatedObjImpl& operator=(const ReplicatedObjImpl&) = delete;

  const std::shared_ptr<client::Pool> pool;
  const client::ObjectDefinition definition;
  mutable client::ReplicaTracker replicas;              ///< which workers have the object
  const std::shared_ptr<client::ModelFigures> figures;  ///< of its calls
  const client::ModelOrigin origin;

 private:
  const std::shared_ptr<const void> source_;
};

namespace client {

/// ReplicatedObj::name() of an object that was loaded from the file. `part`: what of the file it
/// is; empty if it is all of it.
std::string reportName(const ArchiveFile& file, const std::string& part);

}  // namespace client

/// Makes the object in a free worker, so that errors show here, and returns the implementation of a
/// new ReplicatedObj. Throws RemoteError, WorkerLost if the worker died over it (another worker is
/// not tried), and what Pool::reserveWorker(), WorkerSetup::define() throw. A worker that has not
/// made the object by the deadline is killed.
std::shared_ptr<ReplicatedObjImpl> replicate(const std::shared_ptr<client::Pool>& pool,
                                             client::ObjectDefinition definition,
                                             std::shared_ptr<const void> source,
                                             const client::Deadline& deadline,
                                             client::ModelOrigin origin);

}  // namespace isopool
