// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

namespace bench {

/// The value below which this share of `values` lies: 0.5 is the median. `values` is not empty.
double quantile(std::vector<double> values, double share);

/// The median and half the distance between the quartiles.
struct Summary {
  double median = 0;
  double spread = 0;
};
Summary summarize(const std::vector<double>& values);

}  // namespace bench
