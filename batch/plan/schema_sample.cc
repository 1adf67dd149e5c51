// SPDX-License-Identifier: BSD-3-Clause
#include "batch/plan/schema_sample.h"

#include <algorithm>

namespace isopool::batch {

namespace {

constexpr size_t kLeastChunks = 3;
constexpr uint64_t kLeastRows = 100;

}  // namespace

SchemaSample::SchemaSample(const std::vector<int64_t>& chunks) {
  if (chunks.empty()) return;
  const auto append = [this](int64_t chunk) {
    if (std::find(order_.begin(), order_.end(), chunk) == order_.end()) order_.push_back(chunk);
  };
  append(chunks.front());
  append(chunks[chunks.size() / 2]);
  append(chunks.back());
  const std::vector<int64_t> first = order_;
  for (const int64_t chunk : chunks) {
    if (std::find(first.begin(), first.end(), chunk) == first.end()) order_.push_back(chunk);
  }
}

std::optional<std::vector<std::string>> SchemaSample::complete() const {
  std::vector<std::string> types;
  uint64_t rows = 0;
  for (size_t i = 0; i < order_.size() && (i < kLeastChunks || rows < kLeastRows); ++i) {
    const auto found = found_.find(order_[i]);
    if (found == found_.end()) return std::nullopt;
    if (found->second.rows == 0) continue;
    types.push_back(found->second.types);
    rows += found->second.rows;
  }
  if (types.empty()) return std::nullopt;
  return types;
}

}  // namespace isopool::batch
