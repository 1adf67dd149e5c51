// SPDX-License-Identifier: BSD-3-Clause
#include "cli/top_page.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "cli/report_pages.h"

namespace isopool::cli {

namespace {

constexpr size_t kMostSummaryLines = 7;  // on a terminal: four lines and three findings

const char* nameOf(SortOrder order) {
  switch (order) {
    case SortOrder::kActivity:
      return "calls/s";
    case SortOrder::kTime:
      return "time";
    case SortOrder::kQueue:
      return "queue";
    case SortOrder::kMemory:
      return "memory";
    case SortOrder::kPlace:
      return "place";
  }
  return "";
}

Page helpPage() {
  Page page{{{"isopool top", Emphasis::kStrong}}, {}};
  for (const auto& [key, what] : {std::pair{"q", "end"},
                                  {"?", "this help, and back"},
                                  {"c", "sort by calls per second (the default)"},
                                  {"t", "sort by the time for which calls run"},
                                  {"w", "sort by queue: calls and clients that wait"},
                                  {"m", "sort by memory"},
                                  {"p", "sort by place: slots and numbers of clients"},
                                  {"Tab", "move in the other table"},
                                  {"up, down, k, j", "move by one row"},
                                  {"page up, page down", "move by a page"},
                                  {"home, end", "the first, the last row"}}) {
    std::string label = key;
    label.resize(20, ' ');
    page.push_back({{std::move(label), Emphasis::kStrong}, {what}});
  }
  page.push_back({});
  page.push_back({{"Columns that do not fit are left out; isopool workers and isopool clients"}});
  page.push_back({{"show all. CALLS/S counts calls completed since the previous report."}});
  return page;
}

void append(Page& page, Page more) {
  page.insert(page.end(), std::make_move_iterator(more.begin()),
              std::make_move_iterator(more.end()));
}

// The heading of a table and those rows from `first` on that fit. If some are left out, the last
// row is their number.
void appendPart(Page& page, Page table, size_t rows, size_t& first) {
  if (rows == 0 || table.empty()) return;
  const size_t bodies = table.size() - 1;
  if (table.size() <= rows) {
    first = 0;
    return append(page, std::move(table));
  }
  const size_t shown = rows > 2 ? rows - 2 : 0;
  first = std::min(first, bodies - shown);
  page.push_back(std::move(table.front()));
  if (rows == 1) return;
  for (size_t row = first; row < first + shown; ++row) page.push_back(std::move(table[1 + row]));
  const size_t below = bodies - shown - first;
  page.push_back({{"... " + std::to_string(first + below) + " more" +
                       (first > 0 ? ", " + std::to_string(first) + " above" : ""),
                   Emphasis::kFaint}});
}

}  // namespace

TopView::Outcome TopView::press(const Keys::Press& press) {
  switch (press.key) {
    case Keys::Key::kCharacter:
      return pressCharacter(press.character);
    case Keys::Key::kUp:
      move(-1);
      break;
    case Keys::Key::kDown:
      move(1);
      break;
    case Keys::Key::kPageUp:
      move(-static_cast<std::ptrdiff_t>(rowsOfPage_));
      break;
    case Keys::Key::kPageDown:
      move(static_cast<std::ptrdiff_t>(rowsOfPage_));
      break;
    case Keys::Key::kHome:
      (movesClients_ ? firstClient_ : firstWorker_) = 0;
      break;
    case Keys::Key::kEnd:
      (movesClients_ ? firstClient_ : firstWorker_) = SIZE_MAX;
      break;
  }
  return Outcome::kChanged;
}

TopView::Outcome TopView::pressCharacter(char character) {
  switch (character) {
    case 'q':
    case 'Q':
      return Outcome::kEnd;
    case '?':
    case 'h':
      help_ = !help_;
      break;
    case '\t':
      movesClients_ = !movesClients_;
      break;
    case 'j':
      move(1);
      break;
    case 'k':
      move(-1);
      break;
    case 'c':
      order_ = SortOrder::kActivity;
      break;
    case 't':
      order_ = SortOrder::kTime;
      break;
    case 'w':
      order_ = SortOrder::kQueue;
      break;
    case 'm':
      order_ = SortOrder::kMemory;
      break;
    case 'p':
      order_ = SortOrder::kPlace;
      break;
    default:
      return Outcome::kIgnored;
  }
  return Outcome::kChanged;
}

void TopView::move(std::ptrdiff_t rows) {
  size_t& first = movesClients_ ? firstClient_ : firstWorker_;
  const size_t distance = static_cast<size_t>(rows < 0 ? -rows : rows);
  first =
      rows < 0 ? first - std::min(first, distance) : first + std::min(distance, SIZE_MAX - first);
}

Page TopView::page(ipc::Report& report, const std::optional<Rates>& rates,
                   const std::string& heading, size_t rows, size_t columns) {
  if (help_) return helpPage();
  sortBy(report, rates, order_);
  Page page = summaryPage(report, rates);
  page.front().push_back({heading, Emphasis::kFaint});
  const bool isTerminal = rows != SIZE_MAX;
  if (isTerminal) {
    page.front().push_back({std::string("  by ") + nameOf(order_) + "  ? help", Emphasis::kFaint});
    if (page.size() > kMostSummaryLines) {
      const size_t hidden = page.size() - (kMostSummaryLines - 1);
      page.resize(kMostSummaryLines - 1);
      page.push_back(
          {{"! ", Emphasis::kAlarm},
           {std::to_string(hidden) + " more findings, see isopool status", Emphasis::kWarning}});
    }
  }
  Page workers = workersPage(report, rates, columns);
  Page clients = clientsPage(report, rates, columns);
  // A blank line precedes each table. Clients get up to half of the room, more if workers need
  // less.
  const size_t used = page.size() + 2;
  const size_t room = rows > used ? rows - used : 0;
  const size_t forWorkers = std::min(workers.size(), room - std::min(clients.size(), room / 2));
  page.push_back({});
  const size_t forClients = room - forWorkers;
  rowsOfPage_ = std::max<size_t>((movesClients_ ? forClients : forWorkers), 3) - 2;
  appendPart(page, std::move(workers), forWorkers, firstWorker_);
  page.push_back({});
  appendPart(page, std::move(clients), forClients, firstClient_);
  return page;
}

}  // namespace isopool::cli
