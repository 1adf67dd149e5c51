// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/models/archive_file.h"

namespace isopool::client {

/// What a torch.package states about itself.
struct PackageContents {
  std::vector<std::string> externModules;  ///< that it expects its importer to have
  std::string pythonVersion;  ///< "3.11.2" of the Python that made it; empty if it is not stated
};

/// Reads two records of the file; does not check the rest. Throws c10::Error with the file's name,
/// its actual format and the remedy if it is not a torch.package.
PackageContents readPackage(const ArchiveFile& file);

/// The text resource `name` of the package's package `module`; nothing if there is none. Throws as
/// readPackage().
std::optional<std::string> readResource(const ArchiveFile& file, const std::string& module,
                                        const std::string& name);

}  // namespace isopool::client
