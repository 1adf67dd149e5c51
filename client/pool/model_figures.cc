// SPDX-License-Identifier: BSD-3-Clause
#include "client/pool/model_figures.h"

namespace isopool::client {

void ModelFigures::describe(ModelStatistics& model) const {
  for (size_t bucket = 0; bucket < counts_.size(); ++bucket) {
    const uint64_t count = counts_[bucket].load(std::memory_order_relaxed);
    if (count != 0) model.latency.addTo(bucket, count);
  }
  model.answered = model.latency.count();
  model.failed = failed_.load(std::memory_order_relaxed);
}

std::shared_ptr<ModelFigures> PoolModels::of(const std::string& name) {
  base::MutexLock lock(mutex_);
  std::shared_ptr<ModelFigures>& figures = byName_[name];
  if (!figures) figures = std::make_shared<ModelFigures>();
  return figures;
}

std::vector<ModelStatistics> PoolModels::statistics() const {
  std::vector<ModelStatistics> all;
  base::MutexLock lock(mutex_);
  for (const auto& [name, figures] : byName_) {
    ModelStatistics& model = all.emplace_back();
    model.name = name;
    figures->describe(model);
  }
  return all;
}

}  // namespace isopool::client
