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

/// What the callers of a Load lived through.
struct LoadReport {
  double seconds = 0;
  std::vector<double> latencies;  // milliseconds, ascending; one for each answer
  size_t wrongAnswers = 0;
  size_t payloadBytes = 0;                // of the pictures handed over
  std::vector<isopool::WorkerLost> lost;  // calls whose worker died under them
  std::vector<std::string> otherErrors;

  size_t calls() const { return latencies.size() + lost.size() + otherErrors.size(); }
  double callsPerSecond() const { return latencies.size() / seconds; }
  /// The latency that a share of the answers (0.5: half of them) stayed below; 0 without answers.
  double latency(double share) const;
  double slowest() const { return latencies.empty() ? 0 : latencies.back(); }
};

/// Threads that call one model on picture after picture, each with its next call as soon as it has
/// the answer to the last. A thread goes on after WorkerLost and gives up after any other error.
class Load {
 public:
  /// Model and pictures must outlive it.
  Load(const isopool::ReplicatedObj& model, const PictureSet& set, size_t threads);
  ~Load();
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  /// Waits for the calls that are under way.
  LoadReport stop();

 private:
  void callRepeatedly(size_t firstPicture, LoadReport& report);
  void callOnce(const Picture& picture, LoadReport& report);
  void join();

  const isopool::ReplicatedObj& model_;
  const PictureSet& set_;
  const std::chrono::steady_clock::time_point start_;
  std::atomic<bool> stopping_ = false;
  std::vector<LoadReport> reports_;  // one per thread, which alone writes it
  std::vector<std::thread> threads_;
};

}  // namespace examples
