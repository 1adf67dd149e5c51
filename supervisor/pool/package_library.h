// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/fd.h"

namespace isopool::supervisor {

/// What is known of a package's bytes without reading them. A hint: that two digests are equal says
/// that two packages may be.
struct PackageDigest {
  uint64_t low = 0;
  uint64_t high = 0;
  uint64_t bytes = 0;
  auto operator<=>(const PackageDigest&) const = default;
};

/// The memory of a package, as long as any client has it loaded.
struct PackageMemory {
  base::Fd object;
  PackageDigest digest;
  std::string name;  ///< as its first user named it
};

/// The packages of all clients of a shared supervisor, so that the same bytes are held once. Does
/// not keep them. The clients compare the bytes: a wrong digest costs its sender a comparison, and
/// others nothing.
class PackageLibrary {
 public:
  /// The memory that may hold the same bytes; null if there is none.
  std::shared_ptr<PackageMemory> find(const PackageDigest& digest) const;
  /// Makes it known to later clients. The first with a digest stays the one that is found.
  void add(const std::shared_ptr<PackageMemory>& memory);

 private:
  std::map<PackageDigest, std::weak_ptr<PackageMemory>> packages_;
};

}  // namespace isopool::supervisor
