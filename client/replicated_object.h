// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "client/archive_file.h"
#include "client/pool.h"

namespace isopool {

/// The body of a Package: its bytes, known to all workers of the manager until the last owner is
/// gone.
class PackageImpl {
 public:
  PackageImpl(std::shared_ptr<client::Pool> pool, std::shared_ptr<client::ArchiveFile> file);
  ~PackageImpl();
  PackageImpl(const PackageImpl&) = delete;
  PackageImpl& operator=(const PackageImpl&) = delete;

  const std::shared_ptr<client::Pool> pool;
  const std::shared_ptr<client::ArchiveFile> file;
};

/// The body of a ReplicatedObj: how each worker of the pool comes by it.
class ReplicatedObjImpl {
 public:
  /// `source` is what the definition refers to; it lives as long as this.
  ReplicatedObjImpl(std::shared_ptr<client::Pool> pool, client::ObjectDefinition definition,
                    std::shared_ptr<const void> source);
  ~ReplicatedObjImpl();
  ReplicatedObjImpl(const ReplicatedObjImpl&) = delete;
  ReplicatedObjImpl& operator=(const ReplicatedObjImpl&) = delete;

  const std::shared_ptr<client::Pool> pool;
  const client::ObjectDefinition definition;
  mutable client::ReplicaTracker replicas;  ///< follows what happens in the workers

 private:
  const std::shared_ptr<const void> source_;
};

/// The body of a new ReplicatedObj. The object is made in a free worker now, so that errors show
/// here. Throws RemoteError, WorkerLost.
std::shared_ptr<ReplicatedObjImpl> replicate(const std::shared_ptr<client::Pool>& pool,
                                             client::ObjectDefinition definition,
                                             std::shared_ptr<const void> source);

}  // namespace isopool
