// SPDX-License-Identifier: BSD-3-Clause
#include "bench/latency.h"

#include <chrono>

#include "bench/row.h"
#include "bench/statistics.h"

namespace bench {

namespace {

using Clock = std::chrono::steady_clock;

std::vector<double> differences(const std::vector<double>& left, const std::vector<double>& right) {
  std::vector<double> all;
  for (size_t i = 0; i < left.size(); ++i) all.push_back(left[i] - right.at(i));
  return all;
}

void reportOne(const Subject& subject, const std::string& route, const char* metric,
               const std::vector<double>& values, const std::vector<double>* yardstick) {
  const Summary summary = summarize(values);
  Row row{subject.bench, route, subject.name, metric, "us", summary.median, summary.spread, "", {}};
  if (yardstick != nullptr) {
    row.ratioTo = "in-process";
    row.ratio = summary.median / summarize(*yardstick).median;
  }
  print(row);
}

}  // namespace

double microsecondsOf(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

std::vector<double> timeCalls(size_t count, const std::function<void()>& call) {
  std::vector<double> times;
  times.reserve(count);
  for (size_t i = 0; i < count; ++i) times.push_back(microsecondsOf(call));
  return times;
}

void Latency::add(const std::vector<double>& times) {
  p50_.push_back(quantile(times, 0.5));
  p99_.push_back(quantile(times, 0.99));
}

void report(const Subject& subject, const std::string& route, const Latency& latency) {
  reportOne(subject, route, "p50", latency.p50(), nullptr);
  reportOne(subject, route, "p99", latency.p99(), nullptr);
}

void reportOver(const Subject& subject, const std::string& route, const Latency& latency,
                const Latency& inProcess) {
  reportOne(subject, route, "p50", latency.p50(), &inProcess.p50());
  reportOne(subject, route, "p99", latency.p99(), &inProcess.p99());
  reportOne(subject, route, "over_in_process", differences(latency.p50(), inProcess.p50()),
            nullptr);
  reportOne(subject, route, "p99_over_in_process", differences(latency.p99(), inProcess.p99()),
            nullptr);
}

}  // namespace bench
