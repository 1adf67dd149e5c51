// SPDX-License-Identifier: BSD-3-Clause
#include "bench/statistics.h"

#include <algorithm>
#include <cmath>

namespace bench {

double quantile(std::vector<double> values, double share) {
  const auto index = static_cast<size_t>(std::lround(share * (values.size() - 1)));
  std::nth_element(values.begin(), values.begin() + index, values.end());
  return values[index];
}

Summary summarize(const std::vector<double>& values) {
  return {quantile(values, 0.5), (quantile(values, 0.75) - quantile(values, 0.25)) / 2};
}

}  // namespace bench
