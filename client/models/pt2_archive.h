// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

#include "client/models/model_file.h"

namespace isopool::client {

/// True if the file is a .pt2 archive with a record below `folder`, which ends with a slash. Throws
/// c10::Error if the file is not an archive of PyTorch's.
bool isPt2ArchiveWith(ModelFile& file, std::string_view folder);

}  // namespace isopool::client
