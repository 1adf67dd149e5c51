// SPDX-License-Identifier: BSD-3-Clause
#include "batch/runner/planned_jobs.h"

#include <utility>

#include "batch/journal/journal.h"
#include "batch/runner/output_folder.h"
#include "isopool/batch.h"

namespace isopool::batch {

std::vector<PlannedJob> plannedJobs(const std::string& output) {
  std::vector<PlannedJob> jobs;
  for (const auto& file : OutputFolder::existingJournals(output)) {
    std::string job = Journal::existing(file).fact("job");
    if (!job.empty()) jobs.push_back({file, std::move(job)});
  }
  if (!jobs.empty()) return jobs;
  throw BatchRefused(
      "the journal has no plan, because the run ended before its first item: run the job again");
}

}  // namespace isopool::batch
