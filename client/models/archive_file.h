// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/ids.h"
#include "client/models/stored_bytes.h"
#include "ipc/memory/memory_object.h"

namespace caffe2::serialize {
class ReadAdapterInterface;
}  // namespace caffe2::serialize

namespace isopool::client {

/// The bytes of a package or a stored model, copied once from its file into a sealed memory object
/// that all workers map: later changes of the file have no effect. Files with the same bytes are
/// one ArchiveFile in this process. The class does not interpret the bytes.
///
/// The bytes never change, only adopt() changes the memory that holds them. Any thread.
class ArchiveFile : public std::enable_shared_from_this<ArchiveFile> {
 public:
  /// Reads the whole file; takes as long as the disk needs. Throws c10::Error if it is not a
  /// regular file, is empty, can't be read or is changed meanwhile, or if there is no memory for
  /// it; DeadlineExceeded if the deadline passes between two reads.
  static std::shared_ptr<ArchiveFile> open(const std::string& path,
                                           const std::optional<base::TimePoint>& deadline = {});
  /// The same from a reader of its bytes, which is not kept. A read that hangs is waited for.
  static std::shared_ptr<ArchiveFile> read(caffe2::serialize::ReadAdapterInterface& reader,
                                           const std::optional<base::TimePoint>& deadline = {});
  /// The same from bytes in memory, which are copied.
  static std::shared_ptr<ArchiveFile> copyOf(const std::string& name, const void* data,
                                             size_t bytes);

  /// A number that no other file or moved object of this process has.
  static base::PackageId newId();
  /// The file with this number; null if it has no owner any more.
  static std::shared_ptr<ArchiveFile> find(base::PackageId id);

  base::PackageId id() const { return id_; }
  const std::string& name() const { return name_; }  ///< the path as it was given first
  uint64_t bytes() const { return mapping_.bytes(); }
  /// Sealed Seal::kReadOnly: no process can write to it.
  const base::Fd& object() const { return object_; }
  /// XXH3-128 of the bytes: low and high half.
  const std::pair<uint64_t, uint64_t>& digest() const { return digest_; }
  /// True if `object`, which another program made, is sealed and holds the same bytes. The file
  /// then uses it from now on and frees its own memory; if the file has another user than the
  /// caller, it keeps its own. False also if there is no address space to compare the two. Call it
  /// before the file is given to any worker of this connection.
  bool adopt(base::Fd object);

  /// All bytes, mapped; must not be written to. Valid until adopt(), or the file's end.
  std::span<const std::byte> contents() const { return {mapping_.data(), bytes()}; }

  /// The bytes from `begin` to `end` for the tensors of one answer; may outlive the file. Null if
  /// they are not in it. Throws c10::Error if there is no memory.
  std::shared_ptr<StoredBytes> range(uint64_t begin, uint64_t end);

 private:
  struct Registry;
  class Copy;
  static std::shared_ptr<ArchiveFile> keep(const std::string& name, Copy& copy);

  ArchiveFile(std::string name, base::Fd object, uint64_t bytes);

  base::PackageId id_;
  std::string name_;
  base::Fd object_;
  ipc::Mapping mapping_;
  const std::shared_ptr<UnusedRanges> unusedRanges_;
  std::pair<uint64_t, uint64_t> digest_;
};

}  // namespace isopool::client
