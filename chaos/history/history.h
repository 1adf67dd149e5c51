// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/fd.h"
#include "chaos/history/record.h"

namespace chaos {

/// Writes the history file of one life of one client program. Thread-safe.
class HistoryWriter {
 public:
  /// Throws std::runtime_error if the file can't be made.
  explicit HistoryWriter(const std::string& path);
  /// Aborts the program if the record can't be written: a history with holes proves nothing.
  void write(const Record& record) const;

 private:
  isopool::base::Fd file_;
};

/// Reads the records that were appended to a file since the last read. The next read returns a
/// record that is incomplete now.
template <typename Entry>
class AppendedEntries {
 public:
  explicit AppendedEntries(std::string path) : path_(std::move(path)) {}
  std::vector<Entry> readNew();

 private:
  const std::string path_;
  size_t read_ = 0;
};

}  // namespace chaos
