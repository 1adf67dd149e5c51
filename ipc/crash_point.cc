// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/crash_point.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

namespace isopool::ipc {

namespace {

/// The enumerator's name, its first letter in lower case.
struct Name {
  constexpr explicit Name(std::string_view enumerator) : length(enumerator.size()) {
    for (size_t i = 0; i < length; ++i) letters[i] = enumerator[i];
    letters[0] = static_cast<char>(letters[0] - 'A' + 'a');
  }
  constexpr std::string_view text() const { return {letters.data(), length}; }

  std::array<char, 32> letters{};
  size_t length;
};

struct Entry {
  Name name;
  CrashPointOwner owner;
};

constexpr std::array<Entry, static_cast<size_t>(CrashPoint::kCount)> kEntries = {
    {{Name("None"), CrashPointOwner::kClient},
#define ISOPOOL_ENTRY(Name_) {Name(#Name_), CrashPointOwner::ISOPOOL_OWNER},
#define ISOPOOL_OWNER kClient
     ISOPOOL_CRASH_POINTS_OF_CLIENTS(ISOPOOL_ENTRY)
#undef ISOPOOL_OWNER
#define ISOPOOL_OWNER kWorker
         ISOPOOL_CRASH_POINTS_OF_WORKERS(ISOPOOL_ENTRY)
#undef ISOPOOL_OWNER
#define ISOPOOL_OWNER kEitherEnd
             ISOPOOL_CRASH_POINTS_OF_EITHER_END(ISOPOOL_ENTRY)
#undef ISOPOOL_OWNER
#define ISOPOOL_OWNER kSupervisor
                 ISOPOOL_CRASH_POINTS_OF_SUPERVISORS(ISOPOOL_ENTRY)
#undef ISOPOOL_OWNER
#define ISOPOOL_OWNER kZygote
                     ISOPOOL_CRASH_POINTS_OF_ZYGOTES(ISOPOOL_ENTRY)
#undef ISOPOOL_OWNER
#define ISOPOOL_OWNER kGuardian
                         ISOPOOL_CRASH_POINTS_OF_GUARDIANS(ISOPOOL_ENTRY)
#undef ISOPOOL_OWNER
#undef ISOPOOL_ENTRY
    }};

// The file that this process has renamed, and the name that it gets when the process kills itself.
char takenFile[512];
char reachedFile[512];

// Takes the request file of this path and returns its content; empty if no file has this name.
std::string takeRequest(const std::string& path) {
  const std::string own = path + "." + std::to_string(::getpid());
  // rename() is atomic: if two processes try at the same time, only one of them gets the file.
  if (::rename(path.c_str(), own.c_str()) != 0) return {};
  std::snprintf(takenFile, sizeof takenFile, "%s", own.c_str());
  std::snprintf(reachedFile, sizeof reachedFile, "%s.reached", own.c_str());
  std::string request;
  std::ifstream(own) >> request;
  return request;
}

std::atomic<uint32_t> armedCountdown{0};

}  // namespace

std::atomic<uint32_t> armedCrashPoint{0};

CrashPointOwner crashPointOwner(CrashPoint point) {
  return kEntries.at(static_cast<size_t>(point)).owner;
}

std::string_view crashPointName(CrashPoint point) {
  const auto index = static_cast<size_t>(point);
  return index < kEntries.size() ? kEntries[index].name.text() : std::string_view("unknown");
}

std::optional<CrashPoint> crashPointFromName(std::string_view name) {
  for (size_t i = 1; i < kEntries.size(); ++i) {
    if (kEntries[i].name.text() == name) return static_cast<CrashPoint>(i);
  }
  return std::nullopt;
}

void armCrashPoint(CrashPoint point, uint32_t nth) {
  armedCountdown.store(nth == 0 ? 1 : nth);
  armedCrashPoint.store(static_cast<uint32_t>(point));
}

void reachArmedCrashPoint() noexcept {
  if (armedCountdown.fetch_sub(1) != 1) return;
  if (takenFile[0] != '\0') ::rename(takenFile, reachedFile);
  ::kill(::getpid(), SIGKILL);
}

bool armCrashPointFromEnvironment(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return true;
  std::string taken;
  std::string_view request(text);
  if (request.substr(0, 1) == "/") {
    taken = takeRequest(text);
    if (taken.empty()) return true;
    request = taken;
  }
  const size_t colon = request.find(':');
  const auto point = crashPointFromName(request.substr(0, colon));
  uint32_t nth = 1;
  if (colon != std::string_view::npos) {
    const std::string_view digits = request.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), nth);
    if (error != std::errc() || end != digits.end()) return false;
  }
  if (point.has_value()) armCrashPoint(*point, nth);
  return point.has_value();
}

}  // namespace isopool::ipc
