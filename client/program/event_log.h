// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "isopool/observation.h"

namespace isopool::client {

/// True if the program has set a logger, so that texts are not made in vain.
extern std::atomic<bool> loggerIsSet;

/// Passes an event to the program's logger on the calling thread; does nothing if there is none.
/// The logger may take any time. Call it without a lock that a logger could need. Exceptions of the
/// logger are ignored. Any thread, also in a forked child, which inherits the logger.
void logToProgram(LogLevel level, const std::string& text) noexcept;

/// The same; calls `makeText` only if there is a logger. Throws what `makeText` throws.
template <typename MakeText>
void logEvent(LogLevel level, MakeText&& makeText) {
  if (loggerIsSet.load(std::memory_order_relaxed)) logToProgram(level, makeText());
}

/// Where the events of one pool go: to the function of its PoolOptions, or, without one, to the
/// program's logger. Copies share the function. Any thread, as logToProgram().
class EventLog {
 public:
  using Function = std::function<void(LogLevel, std::string_view)>;
  EventLog() = default;
  explicit EventLog(Function function)
      : function_(function ? std::make_shared<const Function>(std::move(function)) : nullptr) {}

  /// Calls `makeText` only if the event goes anywhere. Throws what `makeText` throws.
  template <typename MakeText>
  void write(LogLevel level, MakeText&& makeText) const {
    if (!function_) return logEvent(level, makeText);
    writeText(level, makeText());
  }
  /// False if events go nowhere.
  bool isSet() const { return function_ || loggerIsSet.load(std::memory_order_relaxed); }
  /// True for the program's logger: several pools have it.
  bool isPrograms() const { return function_ == nullptr; }

 private:
  void writeText(LogLevel level, const std::string& text) const noexcept;

  std::shared_ptr<const Function> function_;
};

}  // namespace isopool::client
