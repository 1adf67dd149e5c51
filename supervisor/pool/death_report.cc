// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/death_report.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "supervisor/pool/printable.h"

namespace isopool::supervisor {

std::string DeathReport::text(const std::string& death, const std::string& cause,
                              std::optional<pid_t> replacement) const {
  std::string line = name + " died: " + death + " (" + cause + ")";
  if (!whose.empty()) line += ", " + whose;
  if (early) line += ", before it completed a call";
  if (!replacement) return line;
  const std::string time = std::to_string(vacancy.count()) + " ms";
  if (replaced) {
    line += "; another worker had already replaced it";
  } else if (!slot) {
    line += "; another spare is started";
    if (vacancy.count() != 0) line += " in " + time;
  } else if (*replacement != 0) {
    line += "; replaced by pid " + std::to_string(*replacement);
  } else if (vacancy.count() != 0) {
    line += "; its slot stays empty for " + time;
  } else {
    line += "; a replacement is starting";
  }
  return line;
}

namespace {

std::string endOf(const base::Fd& crashLog, off_t most) {
  struct stat status {};
  const off_t end = ::fstat(crashLog.get(), &status) == 0 ? status.st_size : 0;
  const off_t begin = std::max<off_t>(end - most, 0);
  std::string text(static_cast<size_t>(end - begin), '\0');
  const ssize_t got = ::pread(crashLog.get(), text.data(), text.size(), begin);
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return text;
}

}  // namespace

std::string lastLineOf(const base::Fd& crashLog) {
  constexpr off_t kMost = 512;
  std::string text = endOf(crashLog, kMost);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  text.erase(0, text.rfind('\n') + 1);
  return printable(std::move(text), kMost);
}

// Python lists its threads from the newest to the oldest, which is the main thread. After 100
// threads it stops with a line of dots.
bool crashedInCall(const base::Fd& crashLog) {
  constexpr off_t kMost = 64 * 1024;
  const std::string text = "\n" + endOf(crashLog, kMost);
  const size_t current = text.rfind("\nCurrent thread 0x");
  if (current == std::string::npos) return false;
  for (const char* sign : {"\nThread 0x", "\n...", "\n  Garbage-collecting"}) {
    if (text.find(sign, current) != std::string::npos) return false;
  }
  return true;
}

void noteInCrashLog(const base::Fd& crashLog, const std::string& line) {
  struct stat status {};
  if (::fstat(crashLog.get(), &status) != 0) return;
  const std::string text = line + "\n";
  // The descriptor appends in a worker that is set up: then the kernel ignores the position.
  [[maybe_unused]] const ssize_t written =
      ::pwrite(crashLog.get(), text.data(), text.size(), status.st_size);
}

}  // namespace isopool::supervisor
