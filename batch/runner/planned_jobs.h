// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace isopool::batch {

/// A journal of an output folder, and its job, for jobOf().
struct PlannedJob {
  std::filesystem::path journal;
  std::string job;
};

/// The journals that have a plan: one for each shard that has begun. A run that was refused leaves
/// one without. Throws BatchRefused if no journal has a plan, and DatabaseError.
std::vector<PlannedJob> plannedJobs(const std::string& output);

}  // namespace isopool::batch
