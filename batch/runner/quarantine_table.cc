// SPDX-License-Identifier: BSD-3-Clause
#include "batch/runner/quarantine_table.h"

#include <nlohmann/json.hpp>

#include "base/json.h"

namespace isopool::batch {

namespace {

/// A word of a shell's command line.
std::string quoted(const std::string& word) {
  if (word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                             "_-./:@%+=,") == std::string::npos &&
      !word.empty()) {
    return word;
  }
  std::string text = "'";
  for (const char character : word) text += character == '\'' ? "'\\''" : std::string(1, character);
  return text + "'";
}

}  // namespace

base::Json quarantineJson(const QuarantinedItem& item, const std::string& output) {
  const BatchFailure& failure = item.failure;
  base::Json json{{"id", base::Json::parse(item.id)},
                  {"reason", toString(failure.reason)},
                  {"phase", failure.phase},
                  {"signal", failure.signal},
                  {"exit_code", failure.exitCode},
                  {"type", failure.type},
                  {"message", failure.message},
                  {"traceback", failure.traceback},
                  {"crash_log", failure.crashLog},
                  {"attempts", failure.attempts},
                  {"chunk", item.chunk},
                  {"item", item.item}};
  json["command"] =
      "isopool batch -o " + quoted(output) + " --only " + quoted(failure.id) + " --inline";
  return json;
}

void writeQuarantine(const OutputFolder& folder, const std::vector<QuarantinedItem>& items) {
  const auto file = folder.named("quarantine", ".jsonl");
  if (items.empty()) return folder.remove(file);
  std::string text;
  for (const QuarantinedItem& item : items) {
    text += base::jsonText(quarantineJson(item, folder.path())) + "\n";
  }
  folder.write(file, text);
}

}  // namespace isopool::batch
