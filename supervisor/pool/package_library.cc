// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/package_library.h"

namespace isopool::supervisor {

std::shared_ptr<PackageMemory> PackageLibrary::find(const PackageDigest& digest) const {
  const auto found = packages_.find(digest);
  return found != packages_.end() ? found->second.lock() : nullptr;
}

void PackageLibrary::add(const std::shared_ptr<PackageMemory>& memory) {
  std::erase_if(packages_, [](const auto& entry) { return entry.second.expired(); });
  packages_.try_emplace(memory->digest, memory);
}

}  // namespace isopool::supervisor
