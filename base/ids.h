// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace isopool::base {

/// A number of one kind of object. `Tag` makes ids of different kinds different types, so that they
/// can't be confused.
template <typename Tag, typename Integer>
struct Id {
  Integer value = 0;

  constexpr Id() = default;
  constexpr explicit Id(Integer v) : value(v) {}
  constexpr bool operator==(const Id& other) const { return value == other.value; }
  constexpr bool operator!=(const Id& other) const { return value != other.value; }
  constexpr bool operator<(const Id& other) const { return value < other.value; }
};

/// One life of one worker process. A supervisor's counter, from 1, never reused: a message or a
/// segment with an old epoch belongs to a dead worker.
using Epoch = Id<struct EpochTag, uint64_t>;
/// One InterpreterManager of a client. The client's counter, from 1.
using PoolId = Id<struct PoolIdTag, uint32_t>;
/// A package that a client loaded, or the memory of an object that it moved. The client's counter,
/// from 1.
using PackageId = Id<struct PackageIdTag, uint32_t>;
/// A segment of an arena. Input segments are numbered by the client, output segments by the
/// supervisor per worker; both from 1.
using SegmentId = Id<struct SegmentIdTag, uint32_t>;
/// A replicated object (`ReplicatedObj`): the same number on every worker. The client's counter.
using ObjectId = Id<struct ObjectIdTag, uint64_t>;
/// An object that lives in one worker (`Obj`). Numbered by the client, per channel, from 1.
using HandleId = Id<struct HandleIdTag, uint64_t>;

}  // namespace isopool::base

template <typename Tag, typename Integer>
struct std::hash<isopool::base::Id<Tag, Integer>> {
  size_t operator()(const isopool::base::Id<Tag, Integer>& id) const noexcept {
    return std::hash<Integer>()(id.value);
  }
};
