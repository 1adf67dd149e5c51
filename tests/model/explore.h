// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "tests/model/model_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <iostream>
#include <string>

namespace isopool::model {

/// What the checker searches: every execution, or those with at most `switches` switches away from
/// a thread that could continue.
struct Search {
  static constexpr unsigned kFull = 0;
  unsigned switches = kFull;
};

/// The result of a search. `history` lists the steps to a finding.
struct Explored {
  rl::test_result_e result;
  uint64_t executions;
  std::string history;
};

/// Explores a relacy suite and prints the number of executions.
template <typename Suite>
Explored explore(Search search = {}) {
  // Uses relacy's own allocator: text that is written during a run is freed after it.
  rl::ostringstream history;
  std::ostream nowhere(nullptr);
  rl::test_params params;
  params.search_type = search.switches == Search::kFull ? rl::fair_full_search_scheduler_type
                                                        : rl::fair_context_bound_scheduler_type;
  params.context_bound = search.switches;
  params.output_stream = &history;
  params.progress_stream = ::isatty(STDERR_FILENO) != 0 ? &std::cerr : &nowhere;
  rl::simulate<Suite>(params);
  std::cout << params.stop_iteration << " executions, ";
  if (search.switches == Search::kFull) {
    std::cout << "full search: ";
  } else {
    std::cout << "at most " << search.switches << " switches: ";
  }
  std::cout << rl::test_result_str(params.test_result) << std::endl;
  return {params.test_result, params.stop_iteration, history.str().c_str()};
}

/// Expects that a suite holds in every execution.
template <typename Suite>
void expectHolds(Search search = {}) {
  const Explored explored = explore<Suite>(search);
  EXPECT_EQ(explored.result, rl::test_result_success) << explored.history;
  testing::Test::RecordProperty("executions", std::to_string(explored.executions));
}

/// Expects that the checker finds `finding` in a suite.
template <typename Suite>
void expectFinds(rl::test_result_e finding, Search search = {}) {
  const Explored explored = explore<Suite>(search);
  EXPECT_EQ(explored.result, finding) << "found: " << rl::test_result_str(explored.result);
}

}  // namespace isopool::model
