// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/crash_point.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>

namespace isopool::ipc {

namespace {

constexpr std::array<std::string_view, static_cast<size_t>(CrashPoint::kCount)> kNames = {
    "none",
    "submissionSlotWritten",
    "submissionTailStored",
    "submissionWoken",
    "recallStored",
    "completionHeadStored",
    "submissionCopied",
    "submissionHeadStored",
    "startedStored",
    "callReturned",
    "resultExported",
    "keptBlockPrivatised",
    "completionSlotWritten",
    "completionTailStored",
    "completionWoken",
    "leaseReturned",
    "leaseGroupCounted",
    "sleepAnnounced",
    "sleepWithdrawn",
    "workerForked",
    "workerReady",
    "channelMapped",
    "lifeWordHeld",
    "channelAttached",
    "channelDetached",
    "outputSegmentRequested",
    "workerIntroduced",
    "spareAssigned",
    "workerReaped",
};

}  // namespace

std::string_view crashPointName(CrashPoint point) {
  const auto index = static_cast<size_t>(point);
  return index < kNames.size() ? kNames[index] : std::string_view("unknown");
}

std::optional<CrashPoint> crashPointFromName(std::string_view name) {
  for (size_t i = 1; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<CrashPoint>(i);
  }
  return std::nullopt;
}

namespace {
std::atomic<uint32_t> armedCountdown{0};
}  // namespace

std::atomic<uint32_t> armedCrashPoint{0};

void armCrashPoint(CrashPoint point, uint32_t nth) {
  armedCountdown.store(nth == 0 ? 1 : nth);
  armedCrashPoint.store(static_cast<uint32_t>(point));
}

void reachArmedCrashPoint() noexcept {
  if (armedCountdown.fetch_sub(1) == 1) ::kill(::getpid(), SIGKILL);
}

bool armCrashPointFromEnvironment(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return true;
  const std::string_view request(text);
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
