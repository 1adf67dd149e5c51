// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace bench {

/// Microseconds that `work` takes.
double microsecondsOf(const std::function<void()>& work);
/// Microseconds that each of `count` calls takes.
std::vector<double> timeCalls(size_t count, const std::function<void()>& call);

/// What one route's calls took, round by round. Routes that are compared take turns: each adds one
/// round, then each the next, so that all see the same machine.
class Latency {
 public:
  /// The times of one round's calls, in microseconds; not empty.
  void add(const std::vector<double>& times);
  /// Of each round. With fewer than 100 calls in a round its p99 is that of the slowest.
  const std::vector<double>& p50() const { return p50_; }
  const std::vector<double>& p99() const { return p99_; }

 private:
  std::vector<double> p50_, p99_;
};

/// Where rows belong that are about one thing.
struct Subject {
  std::string bench;
  std::string name;  ///< the rows' case
};

/// Rows p50 and p99 of one route.
void report(const Subject& subject, const std::string& route, const Latency& latency);
/// The same for a route that is compared with the same work in-process: with ratios, and rows
/// over_in_process and p99_over_in_process of the rounds' differences.
void reportOver(const Subject& subject, const std::string& route, const Latency& latency,
                const Latency& inProcess);

}  // namespace bench
