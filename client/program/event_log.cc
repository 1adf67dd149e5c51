// SPDX-License-Identifier: BSD-3-Clause
#include "client/program/event_log.h"

#include <memory>
#include <utility>

#include "base/without_cancellation.h"
#include "client/program/process_fork.h"

namespace isopool {

namespace {

using Logger = std::function<void(LogLevel, std::string_view)>;

// Never destroyed: threads may log until the process exits.
constinit client::InheritedSetting<Logger> currentLogger;

}  // namespace

namespace client {

std::atomic<bool> loggerIsSet{false};

namespace {

void callLogger(const Logger& logger, LogLevel level, const std::string& text) noexcept {
  const base::WithoutCancellation complete;
  try {
    logger(level, text);
  } catch (...) {
    // Exceptions of the logger are ignored.
  }
}

}  // namespace

void logToProgram(LogLevel level, const std::string& text) noexcept {
  if (const auto logger = currentLogger.get()) callLogger(*logger, level, text);
}

void EventLog::writeText(LogLevel level, const std::string& text) const noexcept {
  callLogger(*function_, level, text);
}

}  // namespace client

void setLogger(std::function<void(LogLevel, std::string_view)> logger) {
  currentLogger.change([&](const auto&) {
    client::loggerIsSet.store(logger != nullptr, std::memory_order_relaxed);
    return logger ? std::make_shared<const Logger>(std::move(logger)) : nullptr;
  });
}

}  // namespace isopool
