// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "ipc/channel/status_page.h"

namespace isopool::worker {

/// The names of the worker's loaded models in its status page. A model of which several objects are
/// loaded, also of several clients, has one name. When the page is full, further models have none.
/// The call loop's thread, with the GIL.
class ShownModels {
 public:
  /// Keeps a name in the page as long as it lives. A plain default value names no model.
  class Name {
   public:
    Name() = default;
    Name(Name&& other) noexcept
        : models_(std::exchange(other.models_, nullptr)), number_(other.number_) {}
    Name& operator=(Name&& other) noexcept {
      std::swap(models_, other.models_);
      std::swap(number_, other.number_);
      return *this;
    }
    ~Name() {
      if (models_ != nullptr) models_->remove(number_);
    }

   private:
    friend class ShownModels;
    Name(ShownModels* models, uint32_t number) : models_(models), number_(number) {}

    ShownModels* models_ = nullptr;
    uint32_t number_ = 0;  // 1 + index in the page; valid if models_ is set
  };

  /// `page` must be zero at first, and outlive this object, which must outlive its names.
  explicit ShownModels(ipc::WorkerStatusPage& page) : page_(page) {}
  ShownModels(const ShownModels&) = delete;
  ShownModels& operator=(const ShownModels&) = delete;

  Name add(std::string_view name);
  /// As the page has it; empty if it names no model.
  std::string_view text(const Name& name) const noexcept;
  /// A call of this model runs from now on.
  void run(const Name& name) noexcept {
    page_.model.store(name.models_ != nullptr ? name.number_ : 0, std::memory_order_relaxed);
  }
  /// The running call makes a model of this name, which is in the page until unnameMade().
  void runMade(std::string_view name) {
    made_ = Name();  // first: its place may be the only one
    made_ = add(name);
    run(made_);
  }
  void unnameMade() noexcept { made_ = Name(); }
  /// A call of no model runs from now on.
  void runNone() noexcept { page_.model.store(0, std::memory_order_relaxed); }

 private:
  void remove(uint32_t number) noexcept;

  ipc::WorkerStatusPage& page_;
  std::array<uint32_t, ipc::kShownModels> objects_{};  // that have the name; 0: it is free
  Name made_;                                          // last: its destructor needs the others
};

}  // namespace isopool::worker
