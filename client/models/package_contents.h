// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "client/models/archive_file.h"

namespace isopool::client {

/// What a torch.package says of itself.
struct PackageContents {
  std::vector<std::string> externModules;  ///< that it expects its importer to have
  std::string pythonVersion;  ///< "3.11.2" of the Python that made it; empty if it does not say
};

/// Throws c10::Error with the file's name if it is no torch.package.
PackageContents readPackage(const ArchiveFile& file);

}  // namespace isopool::client
