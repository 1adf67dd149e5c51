// SPDX-License-Identifier: BSD-3-Clause
#include "bench/row.h"

#include <cstdio>

namespace bench {

namespace {

// Names here are ours: no quotes, no control characters.
void field(const char* name, const std::string& text) {
  std::printf("\"%s\": \"%s\", ", name, text.c_str());
}

void field(const char* name, std::optional<double> number) {
  if (number) {
    std::printf("\"%s\": %.6g", name, *number);
  } else {
    std::printf("\"%s\": null", name);
  }
}

}  // namespace

void print(const Row& row) {
  std::printf("{");
  field("bench", row.bench);
  field("route", row.route);
  field("case", row.subject);
  field("metric", row.metric);
  field("unit", row.unit);
  field("value", row.value);
  std::printf(", ");
  field("spread", row.spread);
  std::printf(", ");
  field("ratio_to", row.ratioTo);
  field("ratio", row.ratio);
  std::printf("}\n");
  std::fflush(stdout);
}

void announce(const std::string& subject) {
  std::printf("# %s\n", subject.c_str());
  std::fflush(stdout);
}

}  // namespace bench
