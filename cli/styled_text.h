// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace isopool::cli {

enum class Emphasis { kNone, kStrong, kFaint, kGood, kWarning, kAlarm };

/// A piece of a line with one emphasis.
struct Span {
  std::string text;  ///< safe for a terminal: see base::terminalText()
  Emphasis emphasis = Emphasis::kNone;
};

/// A line of a page, independent of where it is shown.
using Line = std::vector<Span>;
using Page = std::vector<Line>;

enum class Colours { kNo, kYes };

/// The line with escape sequences for its emphasis, cut to `columns`, without a line end.
std::string painted(const Line& line, Colours colours, size_t columns = SIZE_MAX);
/// All lines of the page, each with a line end.
std::string painted(const Page& page, Colours colours);

/// Cells under headings. Each column is as wide as its widest cell or heading; a column whose cells
/// are all empty is left out.
class Table {
 public:
  enum class Alignment { kLeft, kRight };

  /// `rank`: a table that is too wide leaves out the columns with the highest rank first; of equal
  /// rank, the last one. Columns of rank 0 always stay.
  void addColumn(std::string heading, Alignment alignment = Alignment::kLeft, int rank = 0);
  /// `cells` has one cell for each column, each safe for a terminal.
  void addRow(std::vector<Span> cells);
  bool empty() const { return rows_.empty(); }

  /// Lines of at most `columns` characters, if the columns of rank 0 fit.
  Page page(size_t columns = SIZE_MAX) const;

 private:
  struct Column {
    std::string heading;
    Alignment alignment;
    int rank;
    size_t width = 0;  ///< of the widest cell; 0: the column is left out
  };

  static Line lineOf(const std::vector<Column>& columns, const std::vector<Span>& cells);

  std::vector<Column> columns_;
  std::vector<std::vector<Span>> rows_;
};

}  // namespace isopool::cli
