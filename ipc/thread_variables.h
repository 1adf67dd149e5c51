// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <string_view>

namespace isopool::ipc {

/// Variables from which math libraries read how many threads to use. They are 1 in the zygote,
/// because a library that starts threads when it is loaded makes every later fork unsafe. A worker
/// sets them to ISOPOOL_WORKER_THREADS before user code runs (worker/python/thread_counts.py).
inline constexpr std::array<std::string_view, 8> kThreadVariables{
    "OMP_NUM_THREADS",     "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS",   "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS",    "RAYON_NUM_THREADS", "POLARS_MAX_THREADS"};

}  // namespace isopool::ipc
