// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>

namespace isopool::simulation {

/// Counts the lives of workers independently of the supervisor, to check its restart policy.
class Lives {
 public:
  /// The supervisor was notified that the worker lives, or that it can't be made.
  void begun(uint64_t epoch) { lives_.try_emplace(epoch, 0); }
  void served(uint64_t epoch) { ++lives_[epoch]; }
  uint64_t count() const { return lives_.size(); }
  /// A worker died; its status page named this client as the one whose code ran or runs.
  void endedBy(uint64_t client) { ++ended_[client]; }
  uint64_t deathsOf(uint64_t client) const {
    const auto found = ended_.find(client);
    return found != ended_.end() ? found->second : 0;
  }

  /// How often a slot that had all these workers one after the other must have been quarantined: at
  /// `deaths` early exits in a row, and then at each further one until a worker has completed a
  /// call. The last worker is alive. Valid for a policy that forgets no exits over time.
  uint64_t quarantinesDue(uint32_t deaths) const {
    uint64_t due = 0;
    uint32_t inARow = 0;
    bool onProbation = false;
    for (auto life = lives_.begin(); life != lives_.end(); ++life) {
      if (std::next(life) == lives_.end()) break;
      if (life->second > 0) {
        inARow = 0;
        onProbation = false;
      } else if (++inARow >= deaths || onProbation) {
        ++due;
        inARow = 0;
        onProbation = true;
      }
    }
    return due;
  }

 private:
  std::map<uint64_t, uint64_t> lives_;  // completed calls by epoch
  std::map<uint64_t, uint64_t> ended_;  // deaths by client
};

}  // namespace isopool::simulation
