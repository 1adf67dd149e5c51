// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>

namespace bench {

/// One measured number. run.py makes tables and JSON files of rows.
struct Row {
  std::string bench;    ///< "roundtrip"
  std::string route;    ///< "isopool", "in-process", ...
  std::string subject;  ///< "identity 64 B shared"; called "case" in JSON
  std::string metric;   ///< "p50", "bytes_copied", ...
  std::string unit;     ///< "us", "B", "MB", ...
  double value = 0;
  /// Half the distance between the quartiles of the repetitions' values, in `unit`.
  std::optional<double> spread;
  /// The route with which `ratio` compares; `ratio` is value divided by that route's value.
  std::string ratioTo;
  std::optional<double> ratio;
};

/// Writes the row as one line of JSON to stdout, at once.
void print(const Row& row);
/// Sends to run.py what is being measured, for its progress line.
void announce(const std::string& subject);

}  // namespace bench
