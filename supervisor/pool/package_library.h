// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/fd.h"

namespace isopool::supervisor {

/// Size and hash of a package, as its client states them. A hint: if two digests are equal, the
/// packages may be, too.
struct PackageDigest {
  uint64_t low = 0;
  uint64_t high = 0;
  uint64_t bytes = 0;
  auto operator<=>(const PackageDigest&) const = default;
};

/// The memory of a package. Lives while a client has it loaded, or a message about it is pending.
/// Constant once it is in the library.
struct PackageMemory {
  base::Fd object;  ///< sealed kReadOnly; that of a moved object only kFixedSize
  PackageDigest digest;
  std::string name;  ///< from the client that loaded it first
};

/// An index of the packages of all clients of a shared supervisor, so that the same bytes are held
/// once. Does not own them. Clients compare the bytes themselves: a wrong digest costs only its
/// sender a comparison. Not thread-safe.
class PackageLibrary {
 public:
  /// Returns the memory that may hold the same bytes; null if there is none. The caller shares
  /// ownership of it.
  std::shared_ptr<PackageMemory> find(const PackageDigest& digest) const;
  /// Adds a package. If the index has one with the same digest, that one stays in the index. A
  /// package leaves the index when its last owner releases it.
  void add(const std::shared_ptr<PackageMemory>& memory);

 private:
  std::map<PackageDigest, std::weak_ptr<PackageMemory>> packages_;
};

}  // namespace isopool::supervisor
