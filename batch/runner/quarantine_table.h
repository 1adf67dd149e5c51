// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "batch/journal/journal.h"
#include "batch/runner/output_folder.h"
#include "isopool/isopool.h"

namespace isopool::batch {

/// One item that was set aside: its ID, the reason, what is known, and the command that runs it
/// alone.
base::Json quarantineJson(const QuarantinedItem& item, const std::string& output);

/// The file quarantine.jsonl, or quarantine.parquet, of a folder: what the journal says, for people
/// and programs that read the results.
class QuarantineTable {
 public:
  QuarantineTable(const OutputFolder& folder, bool parquet) : folder_(folder), parquet_(parquet) {}

  /// Replaces the file; removes it if there is no item. A worker converts it to Parquet; if none
  /// can, the file is JSON lines.
  void write(const std::vector<QuarantinedItem>& items, InterpreterManager& manager) const;

 private:
  const OutputFolder& folder_;
  const bool parquet_;
};

}  // namespace isopool::batch
