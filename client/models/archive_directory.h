// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace isopool::client {

/// Throws c10::Error, with `name` in it, unless `file` has the directory of a ZIP archive in which
/// no entry claims to hold more than can have been compressed into its bytes. torch's reader takes
/// as much memory as an entry claims, and reads some of them when it is made. Says nothing of the
/// rest.
void checkArchiveDirectory(std::span<const std::byte> file, const std::string& name);

}  // namespace isopool::client
