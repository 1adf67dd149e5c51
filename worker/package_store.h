// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Storage.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ipc/ids.h"
#include "ipc/memory/memory_object.h"
#include "worker/py_ref.h"

namespace isopool::worker {

/// A slice of a package's private mapping as a storage; it keeps the mapping. The caller has checked
/// the bounds.
c10::Storage packageStorage(std::shared_ptr<const ipc::Mapping> mapping, uint64_t offset,
                            uint64_t bytes);

/// A package that a client loaded, mapped copy-on-write: all workers share its clean pages.
class Package {
 public:
  /// Throws SystemCallError.
  Package(ipc::PackageId id, std::string name, ipc::Fd object, size_t bytes);

  ipc::PackageId id() const { return id_; }
  const std::string& name() const { return name_; }
  const std::shared_ptr<const ipc::Mapping>& mapping() const { return mapping_; }

  /// Its torch.package.PackageImporter, made at the first use; null with a Python error set if that
  /// fails. Borrowed. With the GIL.
  PyObject* importer();

 private:
  ipc::PackageId id_;
  std::string name_;
  ipc::Fd object_;
  std::shared_ptr<const ipc::Mapping> mapping_;
  PyRef importer_;
};

struct PackagePlace {
  ipc::PackageId package;
  uint64_t offset = 0;
};

/// The packages of one client. The call loop's thread, with the GIL.
class PackageStore {
 public:
  void add(std::unique_ptr<Package> package) { packages_.push_back(std::move(package)); }
  void remove(ipc::PackageId id);
  void clear() { packages_.clear(); }
  Package* find(ipc::PackageId id) const noexcept;
  /// Where in which package [data, data + bytes) lies, if in one.
  std::optional<PackagePlace> locate(const void* data, size_t bytes) const noexcept;

 private:
  std::vector<std::unique_ptr<Package>> packages_;
};

}  // namespace isopool::worker
