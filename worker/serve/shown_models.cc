// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/shown_models.h"

#include <algorithm>
#include <cstring>

namespace isopool::worker {

ShownModels::Name ShownModels::add(std::string_view name) {
  name = name.substr(0, ipc::kShownNameBytes);
  if (name.empty()) return {};
  const auto has = [&](size_t index) {
    const char* shown = page_.models[index];
    return std::string_view(shown, ::strnlen(shown, ipc::kShownNameBytes)) == name;
  };
  size_t place = objects_.size();
  for (size_t index = 0; index < objects_.size(); ++index) {
    if (objects_[index] != 0 && has(index)) {
      place = index;
      break;
    }
    if (objects_[index] == 0) place = std::min(place, index);
  }
  if (place == objects_.size()) return {};
  if (objects_[place]++ == 0) std::memcpy(page_.models[place], name.data(), name.size());
  return {this, static_cast<uint32_t>(place) + 1};
}

std::string_view ShownModels::text(const Name& name) const noexcept {
  if (name.models_ == nullptr) return {};
  const char* shown = page_.models[name.number_ - 1];
  return {shown, ::strnlen(shown, ipc::kShownNameBytes)};
}

void ShownModels::remove(uint32_t number) noexcept {
  const size_t place = number - 1;
  if (--objects_[place] != 0) return;
  if (page_.model.load(std::memory_order_relaxed) == number) runNone();
  std::memset(page_.models[place], 0, ipc::kShownNameBytes);
}

}  // namespace isopool::worker
