// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "client/package_file.h"
#include "client/pool.h"

namespace isopool {

/// The body of a Package: its bytes, known to all workers of the manager until the last owner is gone.
class PackageImpl {
 public:
  PackageImpl(std::shared_ptr<client::Pool> pool, std::shared_ptr<client::PackageFile> file);
  ~PackageImpl();
  PackageImpl(const PackageImpl&) = delete;
  PackageImpl& operator=(const PackageImpl&) = delete;

  const std::shared_ptr<client::Pool> pool;
  const std::shared_ptr<client::PackageFile> file;
};

/// The body of a ReplicatedObj: where each worker finds it.
class ReplicatedObjImpl {
 public:
  ReplicatedObjImpl(std::shared_ptr<PackageImpl> package, client::ObjectDefinition definition);
  ~ReplicatedObjImpl();
  ReplicatedObjImpl(const ReplicatedObjImpl&) = delete;
  ReplicatedObjImpl& operator=(const ReplicatedObjImpl&) = delete;

  const std::shared_ptr<PackageImpl> package;
  const client::ObjectDefinition definition;
};

}  // namespace isopool
