// SPDX-License-Identifier: BSD-3-Clause
#include "batch/runner/paths.h"

#include <filesystem>

#include "isopool/batch.h"

namespace isopool::batch {

namespace fs = std::filesystem;

std::string absolutePath(const std::string& path) { return fs::absolute(path).lexically_normal(); }

std::string existingFile(const std::string& path, const std::string& member) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    throw BatchRefused(member + ": there is no file " + path);
  }
  return absolutePath(path);
}

std::optional<std::pair<std::string, std::string>> pythonName(const std::string& text) {
  const size_t colon = text.rfind(":");
  if (colon == std::string::npos || !text.substr(0, colon).ends_with(".py")) return std::nullopt;
  return {{text.substr(0, colon), text.substr(colon + 1)}};
}

}  // namespace isopool::batch
