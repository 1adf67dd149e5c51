// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>

#include "isopool/call_options.h"
#include "isopool/export.h"
#include "isopool/obj.h"

namespace isopool {

class StreamImpl;

/// The items of a Python iterable in one worker, fetched one by one. The iterable's code runs only
/// inside next(): a slow reader slows it down, and items do not accumulate. Between two items the
/// worker serves other calls.
///
/// Tensors in an item follow the rules for results. If the generator still refers to a tensor when
/// it yields it (`y = f(x); yield y`), the tensor is copied once; otherwise (`yield f(x)`) it is
/// not copied.
///
/// Movable. Not thread-safe: one thread at a time may use a stream. A default-constructed or
/// moved-from stream has no items. A stream may outlive its session and its manager; after the
/// manager's end next() throws Error.
class ISOPOOL_EXPORT ResultStream {
 public:
  /// Has no items.
  ResultStream() noexcept;
  /// The items of the object that `iterable` refers to, through a new iterator. The options hold
  /// for the making of the iterator and then for each item separately. Throws RemoteError if the
  /// object is not iterable, and as every member of Obj.
  explicit ResultStream(const Obj& iterable, const CallOptions& options = {});
  /// For the library.
  explicit ResultStream(std::unique_ptr<StreamImpl> impl) noexcept;
  ResultStream(ResultStream&&) noexcept;
  /// Closes the present stream first.
  ResultStream& operator=(ResultStream&&) noexcept;
  /// Closes the stream, as close() does.
  ~ResultStream();

  /// Runs the iterable's code until its next item and returns the item. Returns no value at the
  /// end. Throws RemoteError if the code raises an exception, which ends the stream; WorkerLost if
  /// the worker is dead, because an iterable does not survive its worker; DeadlineExceeded if the
  /// item takes longer than CallOptions::deadline (do not use the stream after that);
  /// SupervisorLost; Error if the item can't cross.
  std::optional<at::IValue> next();

  /// Ends the stream. The worker closes the generator, which runs its `finally` blocks, after the
  /// requests that are queued there. Does not wait. Errors of that code are ignored; if it runs
  /// longer than ISOPOOL_CLEANUP_TIMEOUT, the worker is killed.
  void close() noexcept;
  /// The same, and waits until the `finally` blocks have run. Errors of that code are ignored. If
  /// it runs past the deadline of the options, throws DeadlineExceeded, and the worker is killed.
  /// Also throws WorkerLost and SupervisorLost. The stream has ended in every case.
  void closeAndWait(const CallOptions& options = {});

  /// An input iterator, for range-based for loops. It refers to the stream, which must outlive it.
  /// The increment throws as next().
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = at::IValue;
    using difference_type = std::ptrdiff_t;
    using pointer = const at::IValue*;
    using reference = const at::IValue&;

    reference operator*() const { return *item_; }
    pointer operator->() const { return &*item_; }
    Iterator& operator++() {
      item_ = stream_->next();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(const Iterator& other) const {
      return item_.has_value() == other.item_.has_value();
    }
    bool operator!=(const Iterator& other) const { return !(*this == other); }

   private:
    friend class ResultStream;
    Iterator() = default;
    explicit Iterator(ResultStream& stream) : stream_(&stream), item_(stream.next()) {}
    ResultStream* stream_ = nullptr;
    std::optional<at::IValue> item_;
  };
  /// Fetches the first item. Call once for each stream: items can't be read twice.
  Iterator begin() { return Iterator(*this); }
  /// The end of the items.
  Iterator end() { return {}; }

 private:
  std::unique_ptr<StreamImpl> impl_;
};

}  // namespace isopool
