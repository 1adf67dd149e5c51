// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace bench {

/// The microseconds that `work` takes.
double microsecondsOf(const std::function<void()>& work);
/// The microseconds that each of `count` calls takes.
std::vector<double> timeCalls(size_t count, const std::function<void()>& call);

/// The times of one route's calls, round by round. Compared routes take turns: each adds one round,
/// then each adds the next one, so that all see the same load of the machine.
class Latency {
 public:
  /// The times of one round's calls, in microseconds; not empty.
  void add(const std::vector<double>& times);
  /// The median of each round. The p99 of a round with fewer than 100 calls is its slowest call.
  const std::vector<double>& p50() const { return p50_; }
  const std::vector<double>& p99() const { return p99_; }

 private:
  std::vector<double> p50_, p99_;
};

/// The benchmark and the case to which rows belong.
struct Subject {
  std::string bench;
  std::string name;  ///< the rows' case
};

/// Prints the rows p50 and p99 of one route.
void report(const Subject& subject, const std::string& route, const Latency& latency);
/// The same for a route that is compared with the same work in-process: with ratios, and with rows
/// over_in_process and p99_over_in_process for the differences of the rounds.
void reportOver(const Subject& subject, const std::string& route, const Latency& latency,
                const Latency& inProcess);

}  // namespace bench
