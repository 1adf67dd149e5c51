// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "base/json.h"
#include "isopool/batch.h"

namespace isopool::batch {

/// What the inputs of the job are, and their absolute paths, as the workers read it
/// (batch/worker/isopool_batch/job.py). Throws BatchRefused, which says what is right.
base::Json inputJson(const BatchJob& job);

/// Throws BatchRefused if the folder of the results lies in that of the inputs: it would be one.
void refuseOutputWithin(const BatchJob& job);

}  // namespace isopool::batch
