// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace isopool::client {

/// Throws c10::Error, with `name` in it, unless `file` has the directory of a ZIP archive in which
/// no entry claims to hold more than can have been compressed into its bytes. Call it before
/// torch's reader gets the file: that allocates as much memory as an entry claims, and reads some
/// entries when it is constructed. Accepts any bytes; does not check the contents of the entries.
void checkArchiveDirectory(std::span<const std::byte> file, const std::string& name);

}  // namespace isopool::client
