// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "batch/journal/journal.h"
#include "batch/runner/output_folder.h"

namespace isopool::batch {

/// One item that was set aside: its ID, the reason, what is known, and the command that runs it
/// alone.
base::Json quarantineJson(const QuarantinedItem& item, const std::string& output);

/// Replaces the file quarantine.jsonl of a folder: what the journal says, for people and programs
/// that read the results. Removes it if there is no item.
void writeQuarantine(const OutputFolder& folder, const std::vector<QuarantinedItem>& items);

}  // namespace isopool::batch
