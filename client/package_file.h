// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Storage.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ipc/ids.h"
#include "ipc/memory/memory_object.h"

namespace caffe2::serialize {
class ReadAdapterInterface;
}

namespace isopool::client {

/// The bytes of a torch.package, copied once from its file into a sealed memory object that all
/// workers map. Packages with the same bytes are one PackageFile in this process. Immutable; any
/// thread.
class PackageFile : public std::enable_shared_from_this<PackageFile> {
 public:
  /// Throws c10::Error if the file can't be read or is no torch.package.
  static std::shared_ptr<PackageFile> open(const std::string& path);
  /// The same from a reader of its bytes, which is not kept.
  static std::shared_ptr<PackageFile> read(caffe2::serialize::ReadAdapterInterface& reader);

  /// The package with this number, if it is still open somewhere.
  static std::shared_ptr<PackageFile> find(ipc::PackageId id);

  ipc::PackageId id() const { return id_; }
  const std::string& name() const { return name_; }  ///< the path as it was given first
  uint64_t bytes() const { return mapping_.bytes(); }
  const ipc::Fd& object() const { return object_; }

  /// Modules that the package expects its importer to have.
  const std::vector<std::string>& externModules() const { return externModules_; }
  /// "3.11.2" of the Python that made it; empty if the package does not say.
  const std::string& pythonVersion() const { return pythonVersion_; }

  /// Stored bytes as a storage; a write to it stays in this process. Null if they are not in it.
  c10::Storage slice(uint64_t offset, uint64_t bytes);

 private:
  struct Registry;
  class Copy;
  static std::shared_ptr<PackageFile> keep(const std::string& name, Copy& copy);

  PackageFile(std::string name, ipc::Fd object, uint64_t bytes);
  void readContents();

  ipc::PackageId id_;
  std::string name_;
  ipc::Fd object_;
  ipc::Mapping mapping_;
  std::vector<std::string> externModules_;
  std::string pythonVersion_;
};

/// What a storage made by PackageFile::slice points to.
struct PackageSlice {
  std::shared_ptr<PackageFile> file;
  uint64_t offset = 0;
};

/// The slice behind a storage that PackageFile::slice made, else nullptr.
const PackageSlice* packageSliceOf(const c10::Storage& storage) noexcept;

}  // namespace isopool::client
