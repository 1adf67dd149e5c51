// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "base/json.h"
#include "isopool/options.h"

namespace isopool::batch {

/// What decides what a job's workers are and may do, for the journal: all of the options but the
/// values of `variables`, which may be secrets, and what belongs to one run (logger, environment,
/// levels of logs, programs for tests).
base::Json storedPool(const PoolOptions& pool);
/// These options, for another run of the job: each that `now` leaves at its default is the stored
/// one. `stored` of an older version may lack members.
PoolOptions poolOf(const base::Json& stored, const PoolOptions& now);
/// Throws BatchRefused if the job had variables that `now` lacks.
void requireVariables(const base::Json& stored, const PoolOptions& now);

}  // namespace isopool::batch
