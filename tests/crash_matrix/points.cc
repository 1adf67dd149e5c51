// SPDX-License-Identifier: BSD-3-Clause
#include "tests/crash_matrix/points.h"

namespace isopool::tests {

using ipc::CrashPoint;
using ipc::CrashPointOwner;

std::vector<CrashPoint> pointsOf(CrashPointOwner owner) {
  const bool isAnEnd = owner == CrashPointOwner::kClient || owner == CrashPointOwner::kWorker;
  std::vector<CrashPoint> points;
  for (uint32_t i = 1; i < static_cast<uint32_t>(CrashPoint::kCount); ++i) {
    const auto point = static_cast<CrashPoint>(i);
    const CrashPointOwner its = ipc::crashPointOwner(point);
    if (its == owner || (isAnEnd && its == CrashPointOwner::kEitherEnd)) points.push_back(point);
  }
  return points;
}

std::string requestFor(CrashPoint point, uint32_t nth) {
  return std::string(ipc::crashPointName(point)) + ":" + std::to_string(nth);
}

}  // namespace isopool::tests
