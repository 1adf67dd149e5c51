// SPDX-License-Identifier: BSD-3-Clause
#include "bench/row.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace bench {

namespace {

using isopool::base::Json;

Json orNull(const std::optional<double>& number) { return number ? Json(*number) : Json(); }

}  // namespace

void print(const Row& row) {
  const Json json{
      {"bench", row.bench},           {"route", row.route},      {"case", row.subject},
      {"metric", row.metric},         {"unit", row.unit},        {"value", row.value},
      {"spread", orNull(row.spread)}, {"ratio_to", row.ratioTo}, {"ratio", orNull(row.ratio)}};
  std::printf("%s\n", isopool::base::jsonText(json).c_str());
  std::fflush(stdout);
}

void announce(const std::string& subject) {
  std::printf("# %s\n", subject.c_str());
  std::fflush(stdout);
}

}  // namespace bench
