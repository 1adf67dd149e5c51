// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <msgpack.hpp>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "ipc/tensor/input_report.h"
#include "ipc/tensor/value_types.h"

/// The encoding of IValues on a channel. A payload is a msgpack array of two elements: the body,
/// which is an array, and an array of storage records. An answer may have a third one, an
/// InputReport. Tensors in the body are extension values that refer to a storage by its index, so
/// that tensors that share a storage share one at the receiver, too. The same holds for version
/// counters, which autograd compares: views and detached aliases of a tensor share one. In an
/// answer, the numbers below the count of the request's counters mean those of the request.
///
///   body     nil, booleans, integers, floats, strings: as in msgpack
///            extension kTensorExtension: TensorHead, then sizes, then strides (all int64)
///            extension kComplexExtension: two doubles
///            array [tag, ...]: tag of ValueTag. Lists and dicts contain their elements' types,
///            which may be Any. The deepest nesting is 64
///   storage  array [kind, ...] of StorageKind
///   report   [[[call, version, times]...], [version...], [[call, version]...]]: the lists of
///            InputReport
namespace isopool::ipc {

inline constexpr int8_t kTensorExtension = 1;
inline constexpr int8_t kComplexExtension = 2;
inline constexpr int8_t kHandleExtension = 3;  ///< uint64: an object of the receiving worker

/// Storages outside shared memory that are at most this long are copied into the payload.
inline constexpr size_t kInlineStorageBytes = 512;
inline constexpr size_t kMaxStorages = 65536;
/// The alignment of storages in a package or a moved object.
inline constexpr size_t kStorageAlignment = 64;
/// The longest payload. Storages that lie outside of it do not count. The reason is that msgpack
/// has 32 bits for lengths.
inline constexpr size_t kMaxPayloadBytes = size_t{1} << 32;
inline constexpr size_t kMaxTensorRank = 64;

enum class StorageKind : uint8_t {
  kInline = 0,  ///< [0, bytes]: a copy
  kLent = 1,    ///< [1, segment, offset, bytes, lease, generation]: the sender's arena
  kHome = 2,  ///< [2, segment, offset, bytes]: the receiver's own arena, lent to the sender before
  kEcho = 3,  ///< [3, index]: in an answer, storage `index` of the call that it answers
  kPackage = 4,  ///< [4, package, offset, bytes]: stored bytes of a package
};

/// One record of the storage table. The kind decides which fields are valid.
struct StorageRecord {
  StorageKind kind = StorageKind::kInline;
  uint32_t segment = 0;  ///< kPackage: number of the package
  uint64_t offset = 0;   ///< kEcho: index of the storage
  uint64_t bytes = 0;
  uint32_t lease = 0;
  uint32_t generation = 0;
  std::span<const std::byte> inlineBytes;
  /// Sender only: the copied bytes begin at this offset of the tensor's storage.
  uint64_t rebase = 0;
};

/// The range of a storage's bytes that the tensors of one payload use.
struct StorageExtent {
  uint64_t begin = 0;  ///< a multiple of 64
  uint64_t end = 0;
};

/// Version counters of tensors, by their number in a payload. A disabled one stands for none.
using VersionCounters = c10::SmallVector<c10::VariableVersion, 4>;

/// A value is of a kind that can't cross between processes, or a payload is invalid. The text names
/// the cause and, for a value, the remedy.
class ValueError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The time given to PayloadWriter::stopAt() or PayloadReader::stopAt() has come.
class OutOfTime : public std::exception {
 public:
  const char* what() const noexcept override { return "the deadline passed"; }
};

/// Writes one payload at a time: add the elements, give each storage a record, finish(). clear()
/// begins the next one. Keeps the storages of its tensors alive until clear() or releaseStorages().
/// Not thread-safe. Every member may also throw std::bad_alloc.
class PayloadWriter {
 public:
  using Packer = msgpack::packer<msgpack::sbuffer>;

  PayloadWriter() { clear(); }
  /// Begins an empty payload; keeps the buffer's memory.
  void clear();
  /// The body is one array: begin it by pack_array(), then pack its elements; values by addValue().
  Packer& packer() { return packer_; }
  /// Until the next clear(), addValue() throws OutOfTime soon after this time.
  void stopAt(std::optional<base::TimePoint> time) { end_ = time; }
  /// Throws ValueError if the value can't cross, also if its parts occur in it so often that it
  /// would take too long (base::Repetition). The payload is then incomplete: clear() it. Reads no
  /// tensor's bytes.
  void addValue(const at::IValue& value);
  /// The length of the payload so far.
  size_t bytes() const { return buffer_.size(); }
  /// Adds an argument that stands for an object of the receiving worker.
  void addHandle(uint64_t handle);
  /// The distinct storages of the tensors so far. finish() needs a record of each, in this order.
  const std::vector<c10::Storage>& storages() const { return storages_; }
  /// How many tensors added refer to storage `index`.
  size_t tensorsOfStorage(size_t index) const { return storageUses_[index].tensors; }
  /// The part of storage `index` that the receiver needs. A caller that copies the storage copies
  /// only this part, and sets the record's `rebase` to its begin.
  StorageExtent extentOfStorage(size_t index) const { return storageUses_[index].extent; }
  /// Call after clear(), for an answer: numbers the counters behind those of its request, which
  /// must stay as they are until the answer is finished.
  void answerTo(const VersionCounters& request) { requestVersions_ = &request; }
  /// The distinct version counters of the tensors so far, without those of answerTo().
  const VersionCounters& versions() const { return versions_; }
  /// The storage of the first tensor that has version counter `index`.
  size_t storageOfVersion(size_t index) const { return versionStorages_[index]; }
  /// Replaces that counter in the list by none.
  void forgetVersion(size_t index) { versions_[index] = c10::VariableVersion(); }
  /// Exchanges the list of the counters for `other`.
  void swapVersions(VersionCounters& other) { versions_.swap(other); }
  /// Releases the writer's references to storages and version counters. The written payload stays
  /// as it is.
  void releaseStorages();
  /// Writes the storage table and returns the payload, valid until the next clear(). Copies the
  /// bytes of inline storages: from here on only those that are lent are read later. Call it once.
  /// Throws ValueError if the payload is too long.
  std::span<const std::byte> finish(std::span<const StorageRecord> records);
  /// The same, with a report; without one if it is empty.
  std::span<const std::byte> finish(std::span<const StorageRecord> records,
                                    const InputReport& report);

 private:
  void addTensor(const at::Tensor& tensor);
  uint32_t versionOf(const at::Tensor& tensor, uint32_t storage);
  void addReport(const InputReport& report);
  void addDouble(double value);
  void addText(std::string_view text);
  void addValueAt(const at::IValue& value, int depth);
  void addList(const at::IValue& value, int depth);
  void addDict(const at::IValue& value, int depth);
  // Call for each value written; texts and types count for more.
  void count(size_t units) {
    units_ += units;
    if (units_ >= nextLook_) look();
  }
  void look();

  msgpack::sbuffer buffer_;
  Packer packer_{buffer_};
  std::vector<c10::Storage> storages_;
  struct StorageUse {
    size_t tensors = 0;
    StorageExtent extent;
  };
  struct HeadPlace {
    size_t offset;  ///< of a TensorHead in the buffer
    uint32_t storage;
    uint32_t itemBytes;
  };
  static StorageExtent extentOf(const at::Tensor& tensor);
  static void noteUse(StorageUse& use, StorageExtent extent);

  std::vector<StorageUse> storageUses_;
  std::optional<base::TimePoint> end_;
  size_t units_ = 0;
  size_t nextLook_ = 0;
  const at::IValue* root_ = nullptr;  // that addValue() writes; null once its parts are counted
  size_t unitsBefore_ = 0;            // before root_

  std::vector<HeadPlace> heads_;
  std::unordered_map<const c10::StorageImpl*, uint32_t> indexOfStorage_;
  VersionCounters versions_;
  c10::SmallVector<uint32_t, 4> versionStorages_;
  const VersionCounters* requestVersions_ = nullptr;
  std::unordered_map<const void*, uint32_t> indexOfVersion_;
};

/// Reads one payload from private memory. Checks sizes, strides, types and nesting before it makes
/// a tensor. A ValueError means that the sender is broken or hostile. Not thread-safe. The values
/// that it makes do not refer to it; their tensors share ownership of the storages.
class PayloadReader {
 public:
  /// Parses the payload. `bytes` must stay valid and unchanged while the reader is used: memory
  /// that the sender can write to must be copied first. An invalid payload throws ValueError.
  explicit PayloadReader(std::span<const std::byte> bytes);

  /// The number of elements of the body.
  size_t elements() const { return body_.via.array.size; }
  // These throw ValueError if there is no such element, or not of that kind.
  const msgpack::object& element(size_t index) const;
  uint64_t integer(size_t index) const;
  std::string_view text(size_t index) const;  ///< valid as long as the reader

  /// The storage table as the sender wrote it: places and numbers in it are not checked.
  const std::vector<StorageRecord>& storages() const { return records_; }
  /// Sets the storages of the tensors, one per record, in order. A tensor that reaches beyond its
  /// storage is refused.
  void setStorages(std::vector<c10::Storage> storages) { storages_ = std::move(storages); }
  /// For a request: adds the version counters of its tensors to `versions`, which must outlive the
  /// reader, by their numbers. Each counts from 0.
  void noteVersions(VersionCounters& versions) { versions_ = &versions; }
  /// For an answer: the counters of its request, which must outlive the reader. A result that is an
  /// input gets the input's counter, as it has the input's storage.
  void answerTo(const VersionCounters& request) { requestVersions_ = &request; }
  /// The report of the payload; nothing if it has none. Throws ValueError.
  InputReport inputReport() const;

  /// From here on value() throws OutOfTime soon after this time.
  void stopAt(std::optional<base::TimePoint> time) { end_ = time; }
  /// Builds the value of an element, or of an object inside one. Needs setStorages() if there are
  /// tensors. Throws ValueError.
  at::IValue value(const msgpack::object& object) const;
  /// The handle that an object encodes; nullopt if it is not a handle.
  static std::optional<uint64_t> handle(const msgpack::object& object);

 private:
  at::IValue valueAt(const msgpack::object& object, int depth) const;
  at::IValue tagged(const msgpack::object& object, int depth) const;
  at::Tensor tensor(const msgpack::object_ext& extension) const;
  void setVersion(c10::TensorImpl& tensor, uint32_t storage, uint32_t version) const;

  msgpack::zone zone_;  // the memory of the objects
  size_t mostVersions_;
  msgpack::object body_;
  msgpack::object report_;
  std::vector<StorageRecord> records_;
  std::vector<c10::Storage> storages_;
  const VersionCounters* requestVersions_ = nullptr;
  VersionCounters* versions_ = nullptr;  // null: ownVersions_
  mutable VersionCounters ownVersions_;
  std::optional<base::TimePoint> end_;
  mutable size_t values_ = 0;
};

}  // namespace isopool::ipc
