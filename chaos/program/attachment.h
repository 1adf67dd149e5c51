// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "chaos/history/history.h"
#include "isopool/isopool.h"

namespace chaos {

/// Makes the numbers that distinguish this program's calls from all others.
class Nonces {
 public:
  explicit Nonces(uint64_t program) : next_(program << 48) {}
  uint64_t next() { return next_.fetch_add(1, std::memory_order_relaxed) + 1; }

 private:
  std::atomic<uint64_t> next_;
};

struct PoolSettings {
  size_t workers = 1;
  std::string package;
  std::string environmentFolder;  ///< the path of a PathEnvironment; empty: no environment
  std::string address;            ///< of a shared supervisor; empty: ISOPOOL_SOCKET decides
  std::string faultAtClose;       ///< see planted_fault.h; mostly empty
};

/// A manager and the object that its workers have. The history contains a record before and after
/// its constructor, its load and its close.
class Pool {
 public:
  /// Makes one attempt. Null if the manager can't be made or can't load.
  static std::shared_ptr<Pool> open(PoolSettings settings, const HistoryWriter& history,
                                    Nonces& nonces);
  Pool(PoolSettings settings, const HistoryWriter& history, Nonces& nonces);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  isopool::InterpreterManager& manager() { return *manager_; }
  isopool::ReplicatedObj& step() { return *step_; }

 private:
  template <typename Act>
  bool recorded(RecordFlag flag, const Act& act);
  void makeManager();

  const PoolSettings settings_;
  const HistoryWriter& history_;
  Nonces& nonces_;
  std::optional<isopool::InterpreterManager> manager_;
  std::optional<isopool::ReplicatedObj> step_;
};

/// The program's managers: one for all calls, and others that live for one call. If `reconnects`,
/// the first one attaches again by itself, else each loss of its supervisor replaces it.
/// Thread-safe.
class Attachment {
 public:
  Attachment(size_t workers, std::string package, bool reconnects, const HistoryWriter& history,
             Nonces& nonces)
      : workers_(workers),
        package_(std::move(package)),
        reconnects_(reconnects),
        history_(history),
        nonces_(nonces) {}

  /// The manager for all calls. Makes one attempt to make it if there is none; null if that fails.
  std::shared_ptr<Pool> pool();
  /// Drops this pool, unless it attaches again: its supervisor is gone.
  void lost(const std::shared_ptr<Pool>& pool);
  void end();

  /// One more manager with a single worker, or null. If `otherEnvironment`, a program
  /// with a private supervisor starts another supervisor for it. `fault`: one of a
  /// manager, see planted_fault.h.
  std::shared_ptr<Pool> another(bool otherEnvironment, const std::string& fault) const;

 private:
  const size_t workers_;
  const std::string package_;
  const bool reconnects_;
  const HistoryWriter& history_;
  Nonces& nonces_;
  std::mutex mutex_;
  std::shared_ptr<Pool> pool_;
};

int64_t now();

}  // namespace chaos
