// SPDX-License-Identifier: BSD-3-Clause
#include "batch/runner/quarantine_table.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace isopool::batch {

namespace {

constexpr auto kConversion = std::chrono::minutes(10);

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
  base::Json json{{"id", failure.id},
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

void QuarantineTable::write(const std::vector<QuarantinedItem>& items,
                            InterpreterManager& manager) const {
  const auto lines = folder_.named("quarantine", ".jsonl");
  const auto table = folder_.named("quarantine", ".parquet");
  if (items.empty()) {
    folder_.remove(lines);
    folder_.remove(table);
    return;
  }
  std::string text;
  for (const QuarantinedItem& item : items) {
    text += base::jsonText(quarantineJson(item, folder_.path())) + "\n";
  }
  folder_.write(lines, text);
  if (!parquet_) return;
  try {
    CallOptions options;
    options.deadline = kConversion;
    const Obj written =
        manager.acquireOne(options)
            .global("isopool_batch.calls", "write_table")
            .call({at::IValue(lines.string()), at::IValue(table.string())}, {}, options);
    folder_.remove(lines);
  } catch (const Error&) {
    // The lines stay: they say the same.
    folder_.remove(table);
  }
}

}  // namespace isopool::batch
