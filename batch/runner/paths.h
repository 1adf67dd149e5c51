// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace isopool::batch {

/// Without "." and "..".
std::string absolutePath(const std::string& path);

/// The absolute path. Throws BatchRefused, which names the member of the job, if there is no such
/// file.
std::string existingFile(const std::string& path, const std::string& member);

/// "app.py:name" as a path and a name, if it has that form.
std::optional<std::pair<std::string, std::string>> pythonName(const std::string& text);

}  // namespace isopool::batch
