// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "cli/keys.h"
#include "cli/rates.h"
#include "cli/sorting.h"
#include "cli/styled_text.h"
#include "ipc/control/operator_messages.h"

namespace isopool::cli {

/// What the user of `top` has chosen to see: the order, the position in each table, the help.
class TopView {
 public:
  enum class Outcome { kIgnored, kChanged, kEnd };

  /// Applies a key. kEnd: the user ends `top`.
  Outcome press(const Keys::Press& press);

  SortOrder order() const { return order_; }

  /// The page for a terminal of this size, or for a file if both are SIZE_MAX: a summary, the
  /// workers and the clients, or the help. Sorts the report. Columns that do not fit are left out,
  /// the least important first. `heading` stands in the first line. Moves the position to the end
  /// of a table that has become shorter.
  Page page(ipc::Report& report, const std::optional<Rates>& rates, const std::string& heading,
            size_t rows, size_t columns);

 private:
  Outcome pressCharacter(char character);
  void move(std::ptrdiff_t rows);

  SortOrder order_ = SortOrder::kActivity;
  bool help_ = false;
  bool movesClients_ = false;  ///< otherwise the workers
  size_t firstWorker_ = 0;
  size_t firstClient_ = 0;
  size_t rowsOfPage_ = 1;  ///< that the table which moves had
};

}  // namespace isopool::cli
