// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/core/Dict.h>
#include <ATen/core/ivalue_inl.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <limits>
#include <sstream>
#include <utility>

#include "base/repetition.h"
#include "ipc/tensor/dict_builder.h"
#include "ipc/tensor/payload_format.h"
#include "ipc/tensor/payload_types.h"
#include "ipc/tensor/value_codec.h"

namespace isopool::ipc {

namespace {

std::string nameOf(c10::Layout layout) {
  std::ostringstream text;
  text << layout;
  return text.str();
}

void checkTensorCanCross(const at::Tensor& tensor) {
  if (!tensor.device().is_cpu()) {
    if (tensor.is_meta()) {
      refuse(
          "a meta tensor has no data and can't cross between processes: pass its sizes, or make "
          "one with data by torch.empty_like(x, device='cpu') first");
    }
    refuse("a " + tensor.device().str() +
           " tensor can't cross between processes: call .cpu() on it first");
  }
  if (tensor.is_nested()) {
    refuse(
        "a nested tensor can't cross between processes: call .unbind() on it first, or "
        ".to_padded_tensor()");
  }
  if (tensor.layout() != c10::kStrided) {
    refuse("a tensor with layout " + nameOf(tensor.layout()) +
           " can't cross between processes: call .to_dense() on it first");
  }
  if (tensor.is_quantized()) {
    refuse("a quantised tensor can't cross between processes: call .dequantize() on it first");
  }
  if (tensor._is_zerotensor()) {
    refuse(
        "a tensor of zeros without data (autograd's) can't cross between processes: call .clone() "
        "on it first");
  }
  if (!tensor.has_storage() || (tensor.numel() > 0 && tensor.storage().data() == nullptr)) {
    refuse(
        "a tensor without data of its own (a fake or functional one, or a class that wraps other "
        "tensors) can't cross between processes: make a plain tensor of it first");
  }
  if (static_cast<size_t>(tensor.dim()) > kMaxTensorRank) {
    refuse("a tensor with more than " + std::to_string(kMaxTensorRank) +
           " dimensions can't cross between processes: call .reshape() on it first");
  }
}

// The remedy for a value of a kind that can't cross, for the text of the error.
std::string wayOutOf(const at::IValue& value) {
  if (value.isFuture() || value.isRRef() || value.isAwait())
    return "wait for it and pass its value";
  if (value.isStorage()) return "pass a tensor that lies in it";
  if (value.isGenerator()) return "pass a seed, and make the generator at the receiver";
  if (value.isStream()) return "make the stream where it is used";
  if (value.isEnum()) return "pass its value";
  if (value.isSymInt() || value.isSymFloat() || value.isSymBool()) {
    return "pass a number: a symbolic one has its value only while a model is traced";
  }
  if (value.isUnsigned()) return "pass a number below 2^63, or a tensor of dtype uint64";
  if (value.isObject())
    return "pass its attributes, or load its TorchScript module at the receiver";
  return "pass tensors, numbers, strings, None, and lists, tuples and dicts of them";
}

// msgpack has 32 bits for the number of a container's elements.
uint32_t checkedCount(size_t count) {
  if (count > std::numeric_limits<uint32_t>::max()) {
    refuse("a container of " + std::to_string(count) +
           " elements can't cross between processes: pass a tensor");
  }
  return static_cast<uint32_t>(count);
}

// The identity of a version counter, which torch's interface does not show: two tensors have the
// same counter if these are equal.
const void* identityOf(const c10::VariableVersion& version) {
  const void* counter = nullptr;
  static_assert(sizeof version == sizeof counter, "a VariableVersion is a pointer to its counter");
  std::memcpy(&counter, static_cast<const void*>(&version), sizeof counter);
  return counter;
}

// So many of anything are searched one after another: then that is faster than a hash.
constexpr size_t kWalked = 8;

// The first byte of a payload with a report: msgpack's array of three elements. clear() begins an
// array of two.
constexpr char kThreeElements = static_cast<char>(0x93);
// The parts of a value, for base::RepetitionCount.
struct ValueParts {
  static const void* identity(const at::IValue& value) {
    const bool hasParts = value.isTuple() || value.isList() || value.isGenericDict() ||
                          (value.isString() && units(value) > 1);
    return hasParts && value.use_count() > 1 ? value.internalToPointer() : nullptr;
  }
  static size_t units(const at::IValue& value) {
    if (value.isString()) return 1 + value.toStringRef().size() / base::Repetition::kTextUnit;
    return isFlat(value) ? 1 + value.toListRef().size() : 1;
  }
  template <typename Visit>
  static void each(const at::IValue& value, Visit&& visit) {
    if (value.isTuple()) {
      for (const at::IValue& element : value.toTupleRef().elements()) visit(element);
    } else if (value.isList() && !isFlat(value)) {
      for (const at::IValue& element : value.toListRef()) visit(element);
    } else if (value.isGenericDict()) {
      for (const auto& entry : value.toGenericDict()) {
        visit(entry.key());
        visit(entry.value());
      }
    }
  }

 private:
  // Its elements have no parts.
  static bool isFlat(const at::IValue& value) {
    return value.isIntList() || value.isDoubleList() || value.isBoolList() ||
           value.isComplexDoubleList() || value.isTensorList();
  }
};

}  // namespace

void PayloadWriter::clear() {
  releaseStorages();
  end_.reset();
  units_ = 0;
  nextLook_ = kBetweenLooks;
  buffer_.clear();
  packer_.pack_array(2);
  storageUses_.clear();
  heads_.clear();
  indexOfStorage_.clear();
  versionStorages_.clear();
  requestVersions_ = nullptr;
  indexOfVersion_.clear();
}

uint32_t PayloadWriter::versionOf(const at::Tensor& tensor, uint32_t storage) {
  const c10::VariableVersion& version = tensor.unsafeGetTensorImpl()->version_counter();
  if (!version.enabled()) return kNoVersion;
  const void* const identity = identityOf(version);
  const size_t earlier = requestVersions_ == nullptr ? 0 : requestVersions_->size();
  const size_t known = earlier + versions_.size();
  const auto at = [&](size_t index) -> const c10::VariableVersion& {
    return index < earlier ? (*requestVersions_)[index] : versions_[index - earlier];
  };
  if (known <= kWalked) {
    for (size_t i = 0; i < known; ++i) {
      if (identityOf(at(i)) == identity) return static_cast<uint32_t>(i);
    }
  } else {
    for (size_t i = indexOfVersion_.size(); i < known; ++i) {
      // A disabled one takes a place, too, under a key that no counter has.
      const void* const key =
          at(i).enabled() ? identityOf(at(i)) : static_cast<const void*>(&at(i));
      indexOfVersion_.emplace(key, static_cast<uint32_t>(i));
    }
    const auto found = indexOfVersion_.find(identity);
    if (found != indexOfVersion_.end()) return found->second;
  }
  versions_.push_back(version);
  versionStorages_.push_back(storage);
  return static_cast<uint32_t>(known);
}

void PayloadWriter::releaseStorages() {
  // One by one: the end of a storage may run code of the user, which may use this writer.
  while (!storages_.empty()) {
    const c10::Storage last = std::move(storages_.back());
    storages_.pop_back();
  }
  versions_.clear();
}

void PayloadWriter::addHandle(uint64_t handle) {
  packer_.pack_ext(sizeof handle, kHandleExtension);
  packer_.pack_ext_body(reinterpret_cast<const char*>(&handle), sizeof handle);
}

StorageExtent PayloadWriter::extentOf(const at::Tensor& tensor) {
  constexpr uint64_t kAlignment = 64;
  const auto itemBytes = static_cast<uint64_t>(tensor.element_size());
  const auto first = static_cast<uint64_t>(tensor.storage_offset());
  const uint64_t storageBytes = tensor.storage().nbytes();
  if (tensor.numel() == 0) {
    // The tensor uses no byte of its storage, and torch has not checked its offset.
    const uint64_t begin =
        std::min(first, storageBytes / itemBytes) * itemBytes / kAlignment * kAlignment;
    return {begin, begin};
  }
  uint64_t last = first;
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    last += static_cast<uint64_t>((tensor.size(i) - 1) * tensor.stride(i));
  }
  const uint64_t end = (last + 1) * itemBytes;
  if (end > storageBytes) {
    refuse("a tensor whose storage was made smaller than it is can't cross between processes");
  }
  return {first * itemBytes / kAlignment * kAlignment, end};
}

void PayloadWriter::noteUse(StorageUse& use, StorageExtent extent) {
  if (use.tensors == 0) {
    use.extent = extent;
  } else {
    use.extent.begin = std::min(use.extent.begin, extent.begin);
    use.extent.end = std::max(use.extent.end, extent.end);
  }
  ++use.tensors;
}

void PayloadWriter::addTensor(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    packer_.pack_nil();
    return;
  }
  checkTensorCanCross(tensor);
  const StorageExtent extent = extentOf(tensor);
  const c10::Storage& storage = tensor.storage();
  uint32_t index = 0;
  bool found = false;
  if (storages_.size() <= kWalked) {
    for (; index < storages_.size() && !found; ++index) {
      if (storages_[index].unsafeGetStorageImpl() == storage.unsafeGetStorageImpl()) {
        found = true;
        break;
      }
    }
  } else {
    if (indexOfStorage_.empty()) {
      for (uint32_t i = 0; i < storages_.size(); ++i) {
        indexOfStorage_.emplace(storages_[i].unsafeGetStorageImpl(), i);
      }
    }
    const auto known = indexOfStorage_.find(storage.unsafeGetStorageImpl());
    found = known != indexOfStorage_.end();
    index = found ? known->second : static_cast<uint32_t>(storages_.size());
  }
  if (!found) {
    index = static_cast<uint32_t>(storages_.size());
    if (index >= kMaxStorages) refuse("a call has more than 65536 tensors with own storages");
    storages_.push_back(storage);
    storageUses_.emplace_back();
    if (!indexOfStorage_.empty()) indexOfStorage_.emplace(storage.unsafeGetStorageImpl(), index);
  }
  noteUse(storageUses_[index], extent);

  const auto rank = static_cast<uint8_t>(tensor.dim());
  TensorHead head{};
  head.storage = index;
  head.scalarType = static_cast<uint8_t>(tensor.scalar_type());
  head.flags =
      static_cast<uint8_t>((tensor.requires_grad() ? kRequiresGrad : 0) |
                           (tensor.is_conj() ? kConjugate : 0) | (tensor.is_neg() ? kNegative : 0));
  head.rank = rank;
  head.storageOffset = tensor.storage_offset();
  head.version = versionOf(tensor, index);
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  packer_.pack_ext(sizeof head + 2 * rank * sizeof(int64_t), kTensorExtension);
  heads_.push_back({buffer_.size(), index, static_cast<uint32_t>(tensor.element_size())});
  packer_.pack_ext_body(reinterpret_cast<const char*>(&head), sizeof head);
  packer_.pack_ext_body(reinterpret_cast<const char*>(sizes.data()), rank * sizeof(int64_t));
  packer_.pack_ext_body(reinterpret_cast<const char*>(strides.data()), rank * sizeof(int64_t));
}

// msgpack's own packer writes a double with an integral value as an integer, which the reader would
// not make a double again.
void PayloadWriter::addDouble(double value) {
  constexpr char kFloat64 = static_cast<char>(0xcb);
  uint64_t bits = 0;
  static_assert(sizeof bits == sizeof value);
  std::memcpy(&bits, &value, sizeof bits);
  std::array<char, 1 + sizeof bits> bytes{kFloat64};
  for (size_t i = 0; i < sizeof bits; ++i) {
    bytes[1 + i] = static_cast<char>(bits >> (56 - 8 * i));
  }
  buffer_.write(bytes.data(), bytes.size());
}

void PayloadWriter::addText(std::string_view text) {
  count(text.size() / base::Repetition::kTextUnit);
  if (text.size() >= kMaxPayloadBytes - std::min(buffer_.size(), kMaxPayloadBytes)) {
    refuse("a string of " + std::to_string(text.size()) +
           " bytes can't cross between processes: all values of a call except its tensors must be "
           "smaller than 4 GiB together. Pass a tensor of dtype uint8 with these bytes");
  }
  packer_.pack_str(static_cast<uint32_t>(text.size()));
  packer_.pack_str_body(text.data(), static_cast<uint32_t>(text.size()));
}

void PayloadWriter::addList(const at::IValue& value, int depth) {
  const c10::List<c10::IValue> list = value.toList();
  packer_.pack_array(checkedCount(list.size() + 2)).pack(static_cast<uint32_t>(ValueTag::kList));
  count(packType(packer_, list.elementType()));
  for (size_t i = 0; i < list.size(); ++i) addValueAt(list.get(i), depth + 1);
}

void PayloadWriter::addDict(const at::IValue& value, int depth) {
  const auto dict = value.toGenericDict();
  packer_.pack_array(checkedCount(2 * dict.size() + 3))
      .pack(static_cast<uint32_t>(ValueTag::kDict));
  count(packType(packer_, dict.keyType()));
  count(packType(packer_, dict.valueType()));
  for (const auto& entry : dict) {
    refuseNanKey(entry.key());
    addValueAt(entry.key(), depth + 1);
    addValueAt(entry.value(), depth + 1);
  }
}

void PayloadWriter::addValue(const at::IValue& value) {
  root_ = &value;
  unitsBefore_ = units_;
  addValueAt(value, 0);
}

void PayloadWriter::look() {
  nextLook_ = units_ + kBetweenLooks;
  if (root_ != nullptr && units_ - unitsBefore_ >= base::Repetition::kUncounted) {
    const at::IValue& root = *std::exchange(root_, nullptr);
    if (const auto why = base::RepetitionCount<ValueParts>::of(root).refusal(); !why.empty()) {
      refuse(why);
    }
  }
  if (end_ && std::chrono::steady_clock::now() >= *end_) throw OutOfTime();
}

void PayloadWriter::addValueAt(const at::IValue& value, int depth) {
  count(1);
  // A list of Any may contain itself.
  if (depth > kMaxNesting) {
    refuse(
        "a value that is nested more than 64 deep or contains itself can't cross between "
        "processes: pass its parts one by one");
  }
  if (value.isTensor()) {
    addTensor(value.toTensor());
  } else if (value.isNone()) {
    packer_.pack_nil();
  } else if (value.isBool()) {
    packer_.pack(value.toBool());
  } else if (value.isInt()) {
    packer_.pack(value.toInt());
  } else if (value.isDouble()) {
    addDouble(value.toDouble());
  } else if (value.isString()) {
    addText(value.toStringRef());
  } else if (value.isComplexDouble()) {
    const c10::complex<double> number = value.toComplexDouble();
    const std::array<double, 2> parts{number.real(), number.imag()};
    packer_.pack_ext(sizeof parts, kComplexExtension);
    packer_.pack_ext_body(reinterpret_cast<const char*>(parts.data()), sizeof parts);
  } else if (value.isTuple()) {
    const auto& elements = value.toTupleRef().elements();
    packer_.pack_array(checkedCount(elements.size() + 1))
        .pack(static_cast<uint32_t>(ValueTag::kTuple));
    for (const auto& element : elements) addValueAt(element, depth + 1);
  } else if (value.isList()) {
    addList(value, depth);
  } else if (value.isGenericDict()) {
    addDict(value, depth);
  } else if (value.isDevice()) {
    packer_.pack_array(2).pack(static_cast<uint32_t>(ValueTag::kDevice));
    packer_.pack(value.toDevice().str());
  } else {
    refuse("a value of kind " + value.tagKind() +
           " can't cross between processes: " + wayOutOf(value));
  }
}

void PayloadWriter::addReport(const InputReport& report) {
  buffer_.data()[0] = kThreeElements;
  packer_.pack_array(3).pack_array(static_cast<uint32_t>(report.written.size()));
  for (const auto& [input, times] : report.written) {
    packer_.pack_array(3).pack(input.call).pack(input.version).pack(times);
  }
  packer_.pack_array(static_cast<uint32_t>(report.kept.size()));
  for (const uint32_t version : report.kept) packer_.pack(version);
  packer_.pack_array(static_cast<uint32_t>(report.released.size()));
  for (const InputVersion& input : report.released) {
    packer_.pack_array(2).pack(input.call).pack(input.version);
  }
}

std::span<const std::byte> PayloadWriter::finish(std::span<const StorageRecord> records) {
  return finish(records, InputReport());
}

std::span<const std::byte> PayloadWriter::finish(std::span<const StorageRecord> records,
                                                 const InputReport& report) {
  for (const HeadPlace& place : heads_) {
    const uint64_t rebase = records[place.storage].rebase;
    if (rebase == 0) continue;
    TensorHead head;
    std::memcpy(&head, buffer_.data() + place.offset, sizeof head);
    head.storageOffset -= static_cast<int64_t>(rebase / place.itemBytes);
    std::memcpy(buffer_.data() + place.offset, &head, sizeof head);
  }
  packer_.pack_array(static_cast<uint32_t>(records.size()));
  for (const StorageRecord& record : records) {
    const auto kind = static_cast<uint32_t>(record.kind);
    switch (record.kind) {
      case StorageKind::kInline:
        if (record.inlineBytes.size() >= kMaxPayloadBytes) {
          refuse(
              "a tensor of " + std::to_string(record.inlineBytes.size()) +
              " bytes can't be copied into a call, and its memory can't be lent because too many "
              "tensors are lent: release earlier results");
        }
        packer_.pack_array(2).pack(kind);
        packer_.pack_bin(static_cast<uint32_t>(record.inlineBytes.size()));
        packer_.pack_bin_body(reinterpret_cast<const char*>(record.inlineBytes.data()),
                              static_cast<uint32_t>(record.inlineBytes.size()));
        break;
      case StorageKind::kLent:
        packer_.pack_array(6).pack(kind).pack(record.segment).pack(record.offset);
        packer_.pack(record.bytes).pack(record.lease).pack(record.generation);
        break;
      case StorageKind::kHome:
      case StorageKind::kPackage:
        packer_.pack_array(4).pack(kind).pack(record.segment).pack(record.offset);
        packer_.pack(record.bytes);
        break;
      case StorageKind::kEcho:
        packer_.pack_array(2).pack(kind).pack(record.offset);
        break;
    }
  }
  if (!report.empty()) addReport(report);
  if (buffer_.size() > kMaxPayloadBytes) {
    refuse(
        "the " + std::to_string(buffer_.size()) +
        " bytes of a call's values, tensors not counted, can't cross between processes: they must "
        "be less than 4 GiB. Pass large values as tensors");
  }
  return {reinterpret_cast<const std::byte*>(buffer_.data()), buffer_.size()};
}

}  // namespace isopool::ipc
