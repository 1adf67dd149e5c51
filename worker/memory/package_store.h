// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Storage.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "ipc/memory/memory_object.h"
#include "worker/python/py_ref.h"

namespace isopool::worker {

/// A place in a package's private mapping as a storage's data; it keeps the mapping.
at::DataPtr packageData(std::shared_ptr<const ipc::Mapping> mapping, uint64_t offset);

/// A slice of a package's private mapping as a storage; it keeps the mapping. The caller has
/// checked the bounds.
c10::Storage packageStorage(std::shared_ptr<const ipc::Mapping> mapping, uint64_t offset,
                            uint64_t bytes);

/// A package that a client loaded.
class Package {
 public:
  enum class Sharing {
    kCopyOnWrite,  ///< an archive: all workers share its clean pages
    kShared,       ///< the memory of a moved object: what one worker writes all see
  };
  /// Throws SystemCallError.
  Package(base::PackageId id, std::string name, base::Fd object, size_t bytes, Sharing sharing);

  /// With the GIL.
  ~Package() { forgetImporter(); }
  Package(const Package&) = delete;
  Package& operator=(const Package&) = delete;

  base::PackageId id() const { return id_; }
  const std::string& name() const { return name_; }
  const std::shared_ptr<const ipc::Mapping>& mapping() const { return mapping_; }
  bool shared() const { return sharing_ == Sharing::kShared; }

  /// Where this process can open the file.
  std::string path() const { return "/proc/self/fd/" + std::to_string(object_.get()); }
  /// The mapping for Python's hands; null with an error set. With the GIL.
  PyRef capsule() const;

  /// An archive's torch.package.PackageImporter, made at the first use; null with a Python error
  /// set if that fails. Borrowed. With the GIL.
  PyObject* importer();
  /// The same if it was made, else null.
  PyObject* usedImporter() const { return importer_.get(); }
  /// The next use makes another one. Keeps the Python error that is set. With the GIL.
  void forgetImporter();

 private:
  base::PackageId id_;
  std::string name_;
  base::Fd object_;
  std::shared_ptr<const ipc::Mapping> mapping_;
  Sharing sharing_;
  PyRef importer_;
};

struct PackagePlace {
  const Package* package = nullptr;
  uint64_t offset = 0;
};

/// The packages of one client. The call loop's thread, with the GIL.
class PackageStore {
 public:
  void add(std::unique_ptr<Package> package) { packages_.push_back(std::move(package)); }
  /// False if it is not there.
  bool remove(base::PackageId id);
  void clear();
  /// Whether it was removed since the last forgetRemoved(). A client sends a notification about a
  /// package before it unloads that, so such a notification is in the ring by then.
  bool wasRemoved(base::PackageId id) const noexcept;
  /// Nothing is in the ring.
  void forgetRemoved() noexcept { removed_.clear(); }
  Package* find(base::PackageId id) const noexcept;
  const std::vector<std::unique_ptr<Package>>& all() const noexcept { return packages_; }
  /// Where in which package [data, data + bytes) lies, if in one.
  std::optional<PackagePlace> locate(const void* data, size_t bytes) const noexcept;

 private:
  std::vector<std::unique_ptr<Package>> packages_;
  std::vector<base::PackageId> removed_;
};

}  // namespace isopool::worker
