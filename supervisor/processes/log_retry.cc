// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/log_retry.h"

#include "base/log/log.h"

namespace isopool::supervisor {

namespace {

constexpr base::Milliseconds kPeriod(1000);

}  // namespace

LogRetry::LogRetry(base::EventLoop& loop) : timer_(loop) {
  base::onLogBehind([this] { tryLater(); });
  if (!base::continueLog()) tryLater();
}

LogRetry::~LogRetry() { base::onLogBehind(nullptr); }

void LogRetry::tryLater() {
  timer_.setAfter(kPeriod, [this] {
    if (!base::continueLog()) tryLater();
  });
}

}  // namespace isopool::supervisor
