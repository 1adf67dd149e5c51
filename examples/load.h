// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "examples/picture_set.h"
#include "isopool/isopool.h"

namespace examples {

/// The results of the callers of a Load.
struct LoadReport {
  double seconds = 0;
  std::vector<double> latencies;  // milliseconds, ascending; one for each answer
  size_t wrongAnswers = 0;
  size_t payloadBytes = 0;                // of the pictures handed over
  std::vector<isopool::WorkerLost> lost;  // calls that failed because their worker died
  std::vector<std::string> otherErrors;

  size_t calls() const { return latencies.size() + lost.size() + otherErrors.size(); }
  double callsPerSecond() const { return latencies.size() / seconds; }
  /// The latency that a share of the answers (0.5: half of them) stayed below; 0 without answers.
  double latency(double share) const;
  double slowest() const { return latencies.empty() ? 0 : latencies.back(); }
};

/// Threads that call one model with picture after picture. Each thread makes its next call as soon
/// as it has the answer to the previous one. A thread continues after WorkerLost and ends after any
/// other error.
class Load {
 public:
  /// `model` and `set` must outlive the Load.
  Load(const isopool::ReplicatedObj& model, const PictureSet& set, size_t threads);
  ~Load();
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  /// Waits for the calls in flight and returns the results of all threads.
  LoadReport stop();

 private:
  void callRepeatedly(size_t firstPicture, LoadReport& report);
  void callOnce(const Picture& picture, LoadReport& report);
  void join();

  const isopool::ReplicatedObj& model_;
  const PictureSet& set_;
  const std::chrono::steady_clock::time_point start_;
  std::atomic<bool> stopping_ = false;
  std::vector<LoadReport> reports_;  // one per thread; only that thread writes it
  std::vector<std::thread> threads_;
};

}  // namespace examples
