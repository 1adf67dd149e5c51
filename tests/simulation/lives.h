// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>

namespace isopool::simulation {

/// The lives of workers as an outsider counts them, to hold the restart policy against.
class Lives {
 public:
  /// The supervisor was told of it: that it lives, or that it can't be made.
  void begun(uint64_t epoch) { lives_.try_emplace(epoch, 0); }
  void served(uint64_t epoch) { ++lives_[epoch]; }
  uint64_t count() const { return lives_.size(); }

  /// How often a place was to be quarantined that had all these workers one after the other: at
  /// `deaths` barren ones in a row, and then at each, until one has completed a call. The last one
  /// is alive. For a policy that forgets nothing over time.
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
};

}  // namespace isopool::simulation
