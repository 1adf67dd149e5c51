// SPDX-License-Identifier: BSD-3-Clause
#include "cli/styled_text.h"

#include <algorithm>
#include <utility>

#include "base/terminal_text.h"

namespace isopool::cli {

namespace {

constexpr size_t kGap = 2;

const char* escapeSequence(Emphasis emphasis) {
  switch (emphasis) {
    case Emphasis::kNone:
      return "";
    case Emphasis::kStrong:
      return "\x1b[1m";
    case Emphasis::kFaint:
      return "\x1b[2m";
    case Emphasis::kGood:
      return "\x1b[32m";
    case Emphasis::kWarning:
      return "\x1b[33m";
    case Emphasis::kAlarm:
      return "\x1b[1;31m";
  }
  return "";
}

}  // namespace

std::string painted(const Line& line, Colours colours, size_t columns) {
  std::string text;
  for (const Span& span : line) {
    const std::string_view shown = base::beginningOf(span.text, columns);
    columns -= base::columnsOf(shown);
    const bool emphasised = colours == Colours::kYes && span.emphasis != Emphasis::kNone;
    if (emphasised) text += escapeSequence(span.emphasis);
    text += shown;
    if (emphasised) text += "\x1b[0m";
    if (shown.size() < span.text.size()) break;
  }
  return text;
}

std::string painted(const Page& page, Colours colours) {
  std::string text;
  for (const Line& line : page) text += painted(line, colours) + "\n";
  return text;
}

void Table::addColumn(std::string heading, Alignment alignment, int rank) {
  columns_.push_back({std::move(heading), alignment, rank});
}

void Table::addRow(std::vector<Span> cells) {
  for (size_t index = 0; index < columns_.size(); ++index) {
    columns_[index].width = std::max(columns_[index].width, base::columnsOf(cells[index].text));
  }
  rows_.push_back(std::move(cells));
}

Page Table::page(size_t columns) const {
  std::vector<Column> shown = columns_;
  const auto widthOf = [](const Column& column) {
    return column.width == 0 ? 0 : std::max(column.width, base::columnsOf(column.heading)) + kGap;
  };
  size_t width = 0;
  for (const Column& column : shown) width += widthOf(column);
  while (width > kGap && width - kGap > columns) {
    Column* least = nullptr;
    for (Column& column : shown) {
      if (column.width != 0 && column.rank > 0 && (least == nullptr || column.rank >= least->rank))
        least = &column;
    }
    if (least == nullptr) break;
    width -= widthOf(*least);
    least->width = 0;
  }
  std::vector<Span> headings;
  for (const Column& column : shown) headings.push_back({column.heading, Emphasis::kFaint});
  Page page{lineOf(shown, headings)};
  for (const auto& row : rows_) page.push_back(lineOf(shown, row));
  return page;
}

Line Table::lineOf(const std::vector<Column>& columns, const std::vector<Span>& cells) {
  Line line;
  size_t owed = 0;  // blanks that are written only if a cell follows
  for (size_t index = 0; index < columns.size(); ++index) {
    const Column& column = columns[index];
    if (column.width == 0) continue;
    const size_t width = std::max(column.width, base::columnsOf(column.heading));
    const size_t padding = width - base::columnsOf(cells[index].text);
    if (column.alignment == Alignment::kRight) owed += padding;
    if (!cells[index].text.empty()) {
      if (owed > 0) line.push_back({std::string(std::exchange(owed, 0), ' ')});
      line.push_back(cells[index]);
    }
    owed += kGap + (column.alignment == Alignment::kLeft ? padding : 0);
  }
  return line;
}

}  // namespace isopool::cli
