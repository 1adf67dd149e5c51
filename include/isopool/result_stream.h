// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>

#include "isopool/obj.h"

namespace isopool {

class StreamImpl;

/// The items of a Python iterable that lives in one worker, fetched one by one: its code runs only
/// while next() asks for an item, so a slow reader slows it down and nothing piles up. Between
/// items the worker serves other calls.
///
/// A tensor in an item comes as in a result: one that the generator still refers to when it yields
/// (`y = f(x); yield y`) is copied once, one that it does not (`yield f(x)`) is not.
///
/// Movable; one thread at a time. A default-constructed or moved-from stream has no items.
class ResultStream {
 public:
  ResultStream() noexcept;
  /// The items of an object that an Obj refers to. Throws RemoteError if it can't be iterated over,
  /// and as every use of an Obj.
  explicit ResultStream(const Obj& iterable);
  explicit ResultStream(std::unique_ptr<StreamImpl> impl) noexcept;
  ResultStream(ResultStream&&) noexcept;
  ResultStream& operator=(ResultStream&&) noexcept;
  /// As close().
  ~ResultStream();

  /// The next item; nothing at the end. Throws RemoteError with what the generator raised, which
  /// ends the stream; WorkerLost when its worker is dead, for an iterable does not survive it;
  /// DeadlineExceeded, after which the stream is of no use.
  std::optional<at::IValue> next();

  /// Ends it: the worker closes the generator, so that its `finally` runs, after the calls that are
  /// before it in line. Does not wait, and reports no error of that code.
  void close() noexcept;

  /// For range-for; may be begun once. Incrementing throws as next().
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
  Iterator begin() { return Iterator(*this); }
  Iterator end() { return {}; }

 private:
  std::unique_ptr<StreamImpl> impl_;
};

}  // namespace isopool
