// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace isopool::batch {

/// Which chunks' results decide the types of a job's columns: the first, the middle and the last
/// one of the plan, and as many of the others, in their order, as are needed for a hundred rows. So
/// the types do not depend on which worker is the fastest.
class SchemaSample {
 public:
  /// The chunks of the plan, by their numbers.
  explicit SchemaSample(const std::vector<int64_t>& chunks);

  /// All chunks, in the order in which they are needed.
  const std::vector<int64_t>& order() const { return order_; }
  /// A chunk is computed. `types`: how its worker describes its rows; empty: it has none. Again
  /// with the same chunk: in place of what was added before.
  void add(int64_t chunk, std::string types, uint64_t rows) {
    found_[chunk] = {std::move(types), rows};
  }
  /// What the chunks have that decide; nothing: one of them is not computed, or none has rows.
  std::optional<std::vector<std::string>> complete() const;

 private:
  std::vector<int64_t> order_;
  struct Computed {
    std::string types;
    uint64_t rows = 0;
  };
  std::map<int64_t, Computed> found_;
};

}  // namespace isopool::batch
