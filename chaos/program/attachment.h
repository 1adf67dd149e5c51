// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "chaos/history/history.h"
#include "isopool/isopool.h"

namespace chaos {

/// The numbers that tell this program's calls from all others.
class Nonces {
 public:
  explicit Nonces(uint64_t program) : next_(program << 48) {}
  uint64_t next() { return next_.fetch_add(1, std::memory_order_relaxed) + 1; }

 private:
  std::atomic<uint64_t> next_;
};

/// A manager and the object that its workers have.
struct Pool {
  Pool(size_t workers, const std::string& package)
      : manager(workers), step(manager.loadPackage(package).loadPickle("model", "step.pkl")) {}
  isopool::InterpreterManager manager;
  isopool::ReplicatedObj step;
};

/// The program's manager: a new one each time that its supervisor was lost. Each making is in the
/// history, too. Any thread.
class Attachment {
 public:
  Attachment(size_t workers, std::string package, const HistoryWriter& history, Nonces& nonces)
      : workers_(workers), package_(std::move(package)), history_(history), nonces_(nonces) {}

  /// The manager, or one attempt to make one: null if that failed.
  std::shared_ptr<Pool> pool();
  /// The supervisor of that one is gone.
  void lost(const std::shared_ptr<Pool>& pool);
  void end();

 private:
  const size_t workers_;
  const std::string package_;
  const HistoryWriter& history_;
  Nonces& nonces_;
  std::mutex mutex_;
  std::shared_ptr<Pool> pool_;
};

int64_t now();

}  // namespace chaos
