// SPDX-License-Identifier: BSD-3-Clause
#include "client/event_log.h"

#include <memory>
#include <mutex>
#include <utility>

namespace isopool {

namespace {

using Logger = std::function<void(LogLevel, std::string_view)>;

// Never destroyed: threads log until the process is gone.
struct LoggerHolder {
  std::mutex mutex;
  std::shared_ptr<const Logger> logger;
};

LoggerHolder& holder() {
  static auto* const one = new LoggerHolder;
  return *one;
}

}  // namespace

namespace client {

std::atomic<bool> loggerIsSet{false};

void logToProgram(LogLevel level, const std::string& text) noexcept {
  std::shared_ptr<const Logger> logger;
  {
    std::lock_guard lock(holder().mutex);
    logger = holder().logger;
  }
  if (!logger) return;
  try {
    (*logger)(level, text);
  } catch (...) {
    // A log that fails is no reason to fail.
  }
}

}  // namespace client

void setLogger(std::function<void(LogLevel, std::string_view)> logger) {
  auto fresh = logger ? std::make_shared<const Logger>(std::move(logger)) : nullptr;
  {
    std::lock_guard lock(holder().mutex);
    holder().logger.swap(fresh);
    client::loggerIsSet.store(holder().logger != nullptr, std::memory_order_relaxed);
  }
}

}  // namespace isopool
