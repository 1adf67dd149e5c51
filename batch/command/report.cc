// SPDX-License-Identifier: BSD-3-Clause
#include "batch/command/report.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/json.h"
#include "base/terminal_text.h"
#include "batch/command/progress_view.h"
#include "batch/journal/journal.h"
#include "batch/runner/job_text.h"
#include "batch/runner/planned_jobs.h"
#include "batch/runner/quarantine_table.h"

namespace isopool::batch {

namespace {

using base::Json;

constexpr size_t kShownItems = 3;
constexpr size_t kShownLines = 6;
constexpr size_t kLongestLine = 300;

/// Failures with the same cause, as far as their words show it.
struct Group {
  std::string title;
  std::vector<QuarantinedItem> items;
};

/// Without what differs between items: numbers, and what is between quotation marks or looks like a
/// path.
std::string causeOf(const std::string& text) {
  std::string result;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char character = text[i];
    if (quote != 0) {
      if (character == quote) quote = 0;
    } else if ((character == '\'' || character == '"') &&
               (i == 0 || !std::isalnum(static_cast<unsigned char>(text[i - 1])))) {
      quote = character;
      result += "'#'";
    } else if (character == '/') {
      while (i + 1 < text.size() && text[i + 1] != ' ' && text[i + 1] != ':') ++i;
      result += "/#";
    } else if (character >= '0' && character <= '9') {
      if (result.empty() || result.back() != '#') result += '#';
    } else {
      result += character;
    }
  }
  return result;
}

std::string titleOf(const BatchFailure& failure) {
  return std::string(toString(failure.reason)) +
         (failure.phase.empty() ? "" : " in " + failure.phase) + ": " + failure.type +
         (failure.type.empty() || failure.message.empty() ? "" : ": ") + failure.message;
}

std::vector<Group> groupsOf(const std::vector<QuarantinedItem>& items) {
  std::map<std::string, Group> groups;
  for (const QuarantinedItem& item : items) {
    const std::string title = titleOf(item.failure);
    Group& group = groups[causeOf(title)];
    if (group.items.empty()) group.title = title;
    group.items.push_back(item);
  }
  std::vector<Group> sorted;
  for (auto& [key, group] : groups) sorted.push_back(std::move(group));
  std::stable_sort(sorted.begin(), sorted.end(), [](const Group& one, const Group& other) {
    return one.items.size() > other.items.size();
  });
  return sorted;
}

std::vector<std::string> linesOf(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

/// The part that tells where it happened: the end of a traceback, the beginning of a crash log,
/// whose stack has the innermost call first.
std::string whereText(const BatchFailure& failure) {
  const bool raised = !failure.traceback.empty();
  const std::vector<std::string> lines = linesOf(raised ? failure.traceback : failure.crashLog);
  const size_t begin = raised && lines.size() > kShownLines ? lines.size() - kShownLines : 0;
  std::string text;
  for (size_t i = begin; i < std::min(lines.size(), begin + kShownLines); ++i) {
    text += "      " + base::terminalText(lines[i], kLongestLine) + "\n";
  }
  return text;
}

std::string groupText(const Group& group, const std::string& output) {
  std::string text = "  " + grouped(group.items.size()) + " x " +
                     base::terminalText(group.title, kLongestLine) + "\n";
  text += whereText(group.items.front().failure);
  for (size_t i = 0; i < std::min(group.items.size(), kShownItems); ++i) {
    const Json line = quarantineJson(group.items[i], output);
    text += "    " + base::terminalText(group.items[i].failure.id, kLongestLine) + "\n";
    if (i == 0)
      text += "      alone: " + base::terminalText(line.at("command").get<std::string>()) + "\n";
  }
  if (group.items.size() > kShownItems) {
    text += "    and " + grouped(group.items.size() - kShownItems) + " more\n";
  }
  return text;
}

Json groupJson(const Group& group, const std::string& output) {
  Json items = Json::array();
  for (const QuarantinedItem& item : group.items) {
    items.push_back(quarantineJson(item, output));
  }
  return {{"cause", group.title}, {"count", group.items.size()}, {"items", items}};
}

}  // namespace

std::string report(const std::string& output, bool json) {
  JournalCounts all;
  std::vector<QuarantinedItem> items;
  std::set<uint32_t> missing;  // shards
  uint64_t itemsOfAll = 0;
  const std::vector<PlannedJob> jobs = plannedJobs(output);
  const uint32_t shards = jobOf(jobs.front().job).shards;
  for (uint32_t shard = 0; shard < shards; ++shard) missing.insert(shard);
  for (const auto& [file, job] : jobs) {
    auto journal = Journal::existing(file);
    missing.erase(jobOf(job).shard);
    const std::string planned = journal.fact("items_of_all_shards");
    if (!planned.empty()) itemsOfAll = std::stoull(planned);
    const JournalCounts counts = journal.counts();
    all.items += counts.items;
    all.chunks += counts.chunks;
    all.chunksDone += counts.chunksDone;
    all.rows += counts.rows;
    for (QuarantinedItem& item : journal.quarantined()) items.push_back(std::move(item));
  }
  const std::vector<Group> groups = groupsOf(items);
  if (json) {
    Json list = Json::array();
    for (const Group& group : groups) list.push_back(groupJson(group, output));
    return base::jsonText({{"items", itemsOfAll},
                           {"shards_not_begun", missing},
                           {"done", all.rows},
                           {"quarantined", items.size()},
                           {"chunks", all.chunks},
                           {"chunks_done", all.chunksDone},
                           {"groups", list}}) +
           "\n";
  }
  std::string text = grouped(all.rows) + " of " + grouped(itemsOfAll) +
                     " items have a result, in " + grouped(all.chunksDone) + " of " +
                     grouped(all.chunks) + " parts; " + grouped(items.size()) + " were set aside\n";
  for (const uint32_t shard : missing) {
    text += "  shard " + std::to_string(shard) + " has not begun\n";
  }
  if (!missing.empty()) {
    text += "  " + grouped(itemsOfAll - all.items) + " items are in shards that have not begun\n";
  }
  for (const Group& group : groups) text += groupText(group, output);
  if (!groups.empty()) text += "After a correction: isopool batch retry " + output + "\n";
  return text;
}

}  // namespace isopool::batch
