// SPDX-License-Identifier: BSD-3-Clause
#include "worker/sandbox_settings.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <stdexcept>
#include <string_view>

namespace isopool::worker {

namespace {

// With less a worker can't even start Python's part of itself and open a package.
constexpr uint64_t kLeastMemory = uint64_t{16} << 20;
// Its own, one client's, and a few for Python.
constexpr uint64_t kLeastFiles = 64;

struct Unit {
  std::string_view name;
  uint64_t bytes;
};
constexpr Unit kUnits[] = {
    {"GiB", uint64_t{1} << 30}, {"MiB", uint64_t{1} << 20}, {"KiB", uint64_t{1} << 10}};

[[noreturn]] void refuse(const char* name, std::string_view value, const std::string& wanted) {
  throw std::runtime_error(std::string(name) + "=" + std::string(value) +
                           " makes no sense: " + wanted);
}

std::string_view textOf(const Variables& variables, const char* name) {
  const char* text = variables(name);
  return text == nullptr ? std::string_view() : std::string_view(text);
}

std::optional<uint64_t> numberIn(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<uint64_t> sizeIn(std::string_view text) {
  uint64_t unit = 1;
  for (const Unit& each : kUnits) {
    if (!text.ends_with(each.name)) continue;
    unit = each.bytes;
    text.remove_suffix(each.name.size());
    while (text.ends_with(' ')) text.remove_suffix(1);
    break;
  }
  const auto number = numberIn(text);
  if (!number || *number > std::numeric_limits<uint64_t>::max() / unit) return std::nullopt;
  return *number * unit;
}

SandboxLevel levelIn(const Variables& variables) {
  const std::string_view text = textOf(variables, "ISOPOOL_SANDBOX");
  if (text.empty()) return SandboxLevel::kDefault;
  for (const auto level : {SandboxLevel::kNone, SandboxLevel::kDefault, SandboxLevel::kStrict}) {
    if (text == nameOf(level)) return level;
  }
  refuse("ISOPOOL_SANDBOX", text, "it is none, default or strict");
}

bool switchIn(const Variables& variables, const char* name) {
  const std::string_view text = textOf(variables, name);
  if (text.empty() || text == "0") return false;
  if (text == "1") return true;
  refuse(name, text, "it is 0 or 1");
}

std::optional<uint64_t> limitIn(const Variables& variables, const char* name, uint64_t least) {
  const std::string_view text = textOf(variables, name);
  if (text.empty()) return std::nullopt;
  const auto number = numberIn(text);
  if (!number) refuse(name, text, "it is a number, 0 for no limit");
  if (*number == 0) return std::nullopt;
  if (*number < least) refuse(name, text, "a worker needs " + std::to_string(least));
  return number;
}

std::optional<uint64_t> memoryIn(const Variables& variables) {
  constexpr const char* kName = "ISOPOOL_WORKER_MEMORY";
  const std::string_view text = textOf(variables, kName);
  if (text.empty()) return std::nullopt;
  const auto size = sizeIn(text);
  if (!size) {
    refuse(kName, text, "it is bytes, or a number with KiB, MiB or GiB, and 0 for no limit");
  }
  if (*size == 0) return std::nullopt;
  if (*size < kLeastMemory) refuse(kName, text, "a worker needs " + inWords(kLeastMemory));
  return size;
}

std::vector<std::string> pathsIn(const Variables& variables, const char* name) {
  std::vector<std::string> paths;
  std::string_view rest = textOf(variables, name);
  while (!rest.empty()) {
    const size_t colon = std::min(rest.find(':'), rest.size());
    const std::string_view path = rest.substr(0, colon);
    rest.remove_prefix(std::min(colon + 1, rest.size()));
    if (path.empty()) continue;
    if (path.front() != '/') refuse(name, path, "its paths begin with / and are separated by :");
    paths.emplace_back(path);
  }
  return paths;
}

}  // namespace

const char* nameOf(SandboxLevel level) {
  switch (level) {
    case SandboxLevel::kNone:
      return "none";
    case SandboxLevel::kDefault:
      return "default";
    case SandboxLevel::kStrict:
      return "strict";
  }
  return "default";
}

SandboxSettings readSandboxSettings(const Variables& variables) {
  SandboxSettings settings;
  settings.level = levelIn(variables);
  settings.memory = memoryIn(variables);
  settings.files = limitIn(variables, "ISOPOOL_WORKER_FILES", kLeastFiles);
  settings.processes = limitIn(variables, "ISOPOOL_WORKER_PROCESSES", 1);
  settings.network = switchIn(variables, "ISOPOOL_SANDBOX_NETWORK");
  settings.readable = pathsIn(variables, "ISOPOOL_SANDBOX_READ");
  settings.writable = pathsIn(variables, "ISOPOOL_SANDBOX_WRITE");
  settings.folders = textOf(variables, "ISOPOOL_WORKER_FOLDERS");
  if (settings.level == SandboxLevel::kNone &&
      (settings.memory || settings.files || settings.processes)) {
    throw std::runtime_error(
        "ISOPOOL_SANDBOX=none sets no limits, but one of ISOPOOL_WORKER_MEMORY, "
        "ISOPOOL_WORKER_FILES and ISOPOOL_WORKER_PROCESSES is set: unset it, or choose default");
  }
  return settings;
}

std::string inWords(uint64_t bytes) {
  for (const Unit& unit : kUnits) {
    if (bytes != 0 && bytes % unit.bytes == 0) {
      return std::to_string(bytes / unit.bytes) + " " + std::string(unit.name);
    }
  }
  return std::to_string(bytes) + " bytes";
}

}  // namespace isopool::worker
