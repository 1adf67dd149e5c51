// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Storage.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "ipc/memory/memory_object.h"
#include "worker/python/py_ref.h"

namespace isopool::worker {

/// A data pointer to `offset` of a package's mapping; it keeps the mapping alive. The caller has
/// checked the offset.
at::DataPtr packageData(std::shared_ptr<const ipc::Mapping> mapping, uint64_t offset);

/// A storage over a slice of a package's mapping; it keeps the mapping alive. The caller has
/// checked the bounds.
c10::Storage packageStorage(std::shared_ptr<const ipc::Mapping> mapping, uint64_t offset,
                            uint64_t bytes);

/// A package that a client loaded, mapped into this process. The file's mapping outlives this
/// object while storages lie in it. The call loop's thread, with the GIL.
class Package {
 public:
  enum class Sharing {
    kCopyOnWrite,  ///< an archive: all workers share its clean pages
    kShared,       ///< the memory of a moved object: all workers see what one writes
  };
  /// Maps the package. The caller has checked the object's size and seals. Throws SystemCallError.
  Package(base::PackageId id, std::string name, base::Fd object, size_t bytes, Sharing sharing);

  /// Releases the importer. Preserves the current Python error.
  ~Package() { forgetImporter(); }
  Package(const Package&) = delete;
  Package& operator=(const Package&) = delete;

  base::PackageId id() const { return id_; }
  const std::string& name() const { return name_; }
  const std::shared_ptr<const ipc::Mapping>& mapping() const { return mapping_; }
  bool shared() const { return sharing_ == Sharing::kShared; }

  /// A path by which this process can open the file, as long as this object lives.
  std::string path() const { return "/proc/self/fd/" + std::to_string(object_.get()); }
  /// A new capsule with the mapping (package_capsule.h); null with a Python error set if
  /// memory is short.
  PyRef capsule() const;
  /// The same with a further private mapping of the archive, in which nothing was written yet. Not
  /// for shared memory. Throws SystemCallError.
  PyRef ownCapsule() const;

  /// True at the first call. What is loaded first lies in mapping(), and its writes stay there:
  /// whatever is loaded later needs a mapping of its own, to begin with the stored bytes.
  bool isFirstLoad() { return !std::exchange(loaded_, true); }

  /// The archive's torch.package.PackageImporter, made at the first use: a borrowed reference; null
  /// with a Python error set if that fails.
  PyObject* importer();
  /// The importer if it was made, else null. A borrowed reference.
  PyObject* usedImporter() const { return importer_.get(); }
  /// Makes importer() return this one from now on. With the GIL.
  void keepImporter(PyRef importer) { importer_ = std::move(importer); }

 private:
  /// Drops the importer; the next use makes another one.
  void forgetImporter();

  base::PackageId id_;
  std::string name_;
  base::Fd object_;
  std::shared_ptr<const ipc::Mapping> mapping_;
  Sharing sharing_;
  bool loaded_ = false;
  PyRef importer_;
};

struct PackagePlace {
  const Package* package = nullptr;
  uint64_t offset = 0;
};

/// The packages of one client. The call loop's thread, with the GIL. Packages come and go by
/// messages of the supervisor, which arrive independently of the requests in the ring.
class PackageStore {
 public:
  void add(std::unique_ptr<Package> package) { packages_.push_back(std::move(package)); }
  /// Destroys the package. False if the store does not have it; wasRemoved() notes that, too.
  bool remove(base::PackageId id);
  /// Destroys all packages. Call when the client is gone.
  void clear();
  /// True if the package was removed since the last forgetRemoved(). A client publishes
  /// notifications about a package before it unloads it, so a notification about a removed package
  /// can still be in the ring.
  bool wasRemoved(base::PackageId id) const noexcept;
  /// To be called when the client's ring is empty.
  void forgetRemoved() noexcept { removed_.clear(); }
  /// Null if the store does not have it, perhaps not yet. Valid until the package is removed, which
  /// ControlPlane::waitForMessage() may do.
  Package* find(base::PackageId id) const noexcept;
  const std::vector<std::unique_ptr<Package>>& all() const noexcept { return packages_; }
  /// The package and the offset in which [data, data + bytes) lies; nullopt if in none.
  std::optional<PackagePlace> locate(const void* data, size_t bytes) const noexcept;

 private:
  std::vector<std::unique_ptr<Package>> packages_;
  std::vector<base::PackageId> removed_;
};

}  // namespace isopool::worker
