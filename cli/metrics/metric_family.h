// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace isopool::cli {

/// Names and values. The names are ours; a value may come from another process.
using Labels = std::vector<std::pair<std::string_view, std::string>>;

/// All series of one name, as text in Prometheus' exposition format, version 0.0.4. Two series with
/// the same labels become one with the sum of both: the format forbids duplicates, and values that
/// differ for their processes may be equal as labels.
class MetricFamily {
 public:
  enum class Type { kCounter, kGauge, kHistogram };

  /// The name's unit is the base unit: seconds, bytes. The name of a counter ends with _total.
  MetricFamily(std::string name, Type type, std::string help);

  void add(const Labels& labels, uint64_t value);
  /// A time, as seconds.
  void addMilliseconds(const Labels& labels, uint64_t value);
  /// A histogram: `counts` has one more than `bounds`, the last is for values above all bounds.
  /// Bounds and sum are times.
  void addDurations(const Labels& labels, const std::vector<uint64_t>& boundsMicroseconds,
                    const std::vector<uint64_t>& counts, uint64_t sumMicroseconds);

  /// HELP, TYPE and a line for each series, each with a line end; empty if there is no series.
  std::string text() const;

 private:
  struct Value {
    uint64_t whole = 0;
    uint64_t millionths = 0;
  };

  void add(const std::string& suffix, const Labels& labels, Value value);

  const std::string name_;
  const Type type_;
  const std::string help_;
  std::vector<std::string> order_;  ///< the series' names with labels, as they were added
  std::map<std::string, Value> series_;
};

/// A label's value as it stands between the quotes: escaped, valid UTF-8, without control
/// characters except line ends, which are escaped, and with at most 128 characters.
std::string labelText(std::string_view value);

}  // namespace isopool::cli
