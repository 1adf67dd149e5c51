// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace isopool::batch {

/// What is known of the job in `output`, by its journals (of all shards): how much is done, and the
/// items that were set aside, grouped by their causes, the most frequent first. Text for people, or
/// JSON. Throws BatchRefused if the folder has no journal.
std::string report(const std::string& output, bool json);

}  // namespace isopool::batch
