// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

namespace isopool::base {

/// An object's handle to itself, for callbacks that may outlive the object: a callback keeps a
/// Pointer, whose get() returns null once the object is destroyed. Declare it as the last member of
/// its class: it is destroyed before the other members, so a callback that the destructor of one of
/// them calls finds null. The constructor allocates once and may throw std::bad_alloc; all other
/// functions allocate nothing and throw nothing.
///
/// get() does not keep the object alive: it must be called on the thread that destroys the object,
/// which is the event loop's. Any thread may copy and destroy a Pointer, because a callback may
/// pass through a background thread.
template <typename T>
class WeakSelf {
 public:
  /// What a callback keeps in place of `this`.
  class Pointer {
   public:
    /// The object, or null if it is destroyed. Call it again after anything that may destroy the
    /// object.
    T* get() const noexcept {
      const std::shared_ptr<T*> alive = self_.lock();
      return alive != nullptr ? *alive : nullptr;
    }

   private:
    friend class WeakSelf;
    explicit Pointer(const std::shared_ptr<T*>& self) noexcept : self_(self) {}

    std::weak_ptr<T*> self_;
  };

  explicit WeakSelf(T* self) : self_(std::make_shared<T*>(self)) {}
  WeakSelf(const WeakSelf&) = delete;
  WeakSelf& operator=(const WeakSelf&) = delete;

  Pointer weak() const noexcept { return Pointer(self_); }

 private:
  const std::shared_ptr<T*> self_;
};

}  // namespace isopool::base
