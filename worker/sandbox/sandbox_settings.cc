// SPDX-License-Identifier: BSD-3-Clause
#include "worker/sandbox/sandbox_settings.h"

#include <cstdlib>

namespace isopool::worker {

namespace {

SandboxLevel levelOf(std::string_view name) {
  for (const auto level : {SandboxLevel::kNone, SandboxLevel::kStrict}) {
    if (name == nameOf(level)) return level;
  }
  return SandboxLevel::kDefault;
}

std::optional<uint64_t> limitOf(const base::SettingValue& value) {
  return value.number == 0 ? std::nullopt : std::optional(value.number);
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

SandboxSettings readSandboxSettings(const base::Environment& environment) {
  const auto read = [&](std::string_view variable) {
    return base::settingInEnvironment(variable, environment);
  };
  SandboxSettings settings;
  settings.level = levelOf(read("ISOPOOL_SANDBOX").text);
  settings.memory = limitOf(read("ISOPOOL_WORKER_MEMORY"));
  settings.files = limitOf(read("ISOPOOL_WORKER_FILES"));
  settings.processes = limitOf(read("ISOPOOL_WORKER_PROCESSES"));
  settings.network = read("ISOPOOL_SANDBOX_NETWORK").number != 0;
  settings.gpus = !read("ISOPOOL_WORKER_GPUS").items.empty();
  settings.readable = read("ISOPOOL_SANDBOX_READ").items;
  settings.writable = read("ISOPOOL_SANDBOX_WRITE").items;
  if (const char* folders = environment("ISOPOOL_WORKER_FOLDERS")) settings.folders = folders;
  return settings;
}

}  // namespace isopool::worker
