// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/core/Dict.h>
#include <ATen/core/ivalue_inl.h>
#include <ATen/core/jit_type.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <chrono>
#include <cstring>
#include <limits>

#include "ipc/channel/layout.h"
#include "ipc/tensor/dict_builder.h"
#include "ipc/tensor/payload_format.h"
#include "ipc/tensor/payload_types.h"
#include "ipc/tensor/value_codec.h"

namespace isopool::ipc {

namespace {

// The most arrays and maps that may be open inside each other: a payload's two arrays, then values,
// each of which is an array and may contain a type.
constexpr size_t kMostOpen = 2 * kMaxNesting + 1;
// Most payloads need one chunk of this size, which malloc serves from its cache; it does not for
// msgpack's own chunk size, 8 KB.
constexpr size_t kZoneBytes = 960;

// Makes the same objects from msgpack's parser as msgpack::unpack(), in three quarters of its time.
// Strings and extensions are not copied: they stay in the payload.
class Objects : public msgpack::null_visitor {
 public:
  Objects(msgpack::zone& zone, msgpack::object& root, size_t bytes)
      : zone_(zone), unclaimed_(bytes) {
    next_[0] = &root;
  }

  bool visit_nil() {
    return put(msgpack::type::NIL, [](auto&) {});
  }
  bool visit_boolean(bool value) {
    return put(msgpack::type::BOOLEAN, [&](auto& via) { via.boolean = value; });
  }
  bool visit_positive_integer(uint64_t value) {
    return put(msgpack::type::POSITIVE_INTEGER, [&](auto& via) { via.u64 = value; });
  }
  bool visit_negative_integer(int64_t value) {
    // The formats of signed integers can also contain positive numbers.
    if (value >= 0) return visit_positive_integer(static_cast<uint64_t>(value));
    return put(msgpack::type::NEGATIVE_INTEGER, [&](auto& via) { via.i64 = value; });
  }
  bool visit_float32(float value) {
    return put(msgpack::type::FLOAT32, [&](auto& via) { via.f64 = value; });
  }
  bool visit_float64(double value) {
    return put(msgpack::type::FLOAT64, [&](auto& via) { via.f64 = value; });
  }
  bool visit_str(const char* begin, uint32_t size) {
    return put(msgpack::type::STR, [&](auto& via) { via.str = {size, begin}; });
  }
  bool visit_bin(const char* begin, uint32_t size) {
    return put(msgpack::type::BIN, [&](auto& via) { via.bin = {size, begin}; });
  }
  bool visit_ext(const char* typeAndBytes, uint32_t size) {
    return put(msgpack::type::EXT, [&](auto& via) { via.ext = {size - 1, typeAndBytes}; });
  }
  bool start_array(uint32_t elements) {
    auto* first = open<msgpack::object>(elements);
    put(msgpack::type::ARRAY, [&](auto& via) { via.array = {elements, first}; });
    next_[++open_] = first;
    return true;
  }
  bool end_array() { return close(); }
  bool start_map(uint32_t pairs) {
    // The parser gives key, value, key, value, which is their order in memory.
    static_assert(sizeof(msgpack::object_kv) == 2 * sizeof(msgpack::object));
    auto* first = open<msgpack::object_kv>(pairs);
    put(msgpack::type::MAP, [&](auto& via) { via.map = {pairs, first}; });
    next_[++open_] = reinterpret_cast<msgpack::object*>(first);
    return true;
  }
  bool end_map() { return close(); }
  [[noreturn]] void parse_error(size_t, size_t) { refuse("a payload is not msgpack"); }
  [[noreturn]] void insufficient_bytes(size_t, size_t) { refuse("a payload is cut short"); }

 private:
  template <typename Fill>
  bool put(msgpack::type::object_type type, Fill&& fill) {
    msgpack::object& object = *next_[open_]++;
    object.type = type;
    fill(object.via);
    return true;
  }
  // Each element takes at least a byte, so all arrays together can't have more elements than the
  // payload has bytes. If each nested array could claim that many, a short payload would take a
  // multiple of its length in memory.
  template <typename Element>
  Element* open(uint32_t count) {
    const uint64_t elements = count * (sizeof(Element) / sizeof(msgpack::object));
    if (elements > unclaimed_) refuse("a payload claims more elements than it has bytes");
    unclaimed_ -= elements;
    if (open_ == kMostOpen) refuse("a payload is nested too deep");
    if (count == 0) return nullptr;
    return static_cast<Element*>(zone_.allocate_align(count * sizeof(Element), alignof(Element)));
  }
  bool close() {
    --open_;
    return true;
  }

  msgpack::zone& zone_;
  uint64_t unclaimed_;
  size_t open_ = 0;
  std::array<msgpack::object*, kMostOpen + 1> next_;  // the next element of each open array or map
};

// Unpacks a payload that takes all of `bytes`.
msgpack::object unpackAll(msgpack::zone& zone, std::span<const std::byte> bytes) {
  msgpack::object whole;
  Objects objects(zone, whole, bytes.size());
  size_t end = 0;
  if (!msgpack::parse(reinterpret_cast<const char*>(bytes.data()), bytes.size(), end, objects) ||
      end != bytes.size()) {
    refuse("a payload has bytes behind its end");
  }
  return whole;
}

}  // namespace

PayloadReader::PayloadReader(std::span<const std::byte> bytes)
    : zone_(bytes.size() > kInlineBytes ? MSGPACK_ZONE_CHUNK_SIZE : kZoneBytes),
      // Each tensor takes its head, and its version one number at most.
      mostVersions_(bytes.size() / sizeof(TensorHead)) {
  const msgpack::object whole = unpackAll(zone_, bytes);
  body_ = itemOf(whole, 0);
  const msgpack::object& table = itemOf(whole, 1);
  const uint32_t parts = whole.via.array.size;
  if (parts < 2 || parts > 3 || body_.type != msgpack::type::ARRAY ||
      table.type != msgpack::type::ARRAY || table.via.array.size > kMaxStorages) {
    refuse("a payload is not an array with a storage table");
  }
  if (parts == 3) {
    report_ = itemOf(whole, 2);
    if (report_.type != msgpack::type::ARRAY) refuse("a payload's report is not an array");
  }
  records_.reserve(table.via.array.size);
  for (uint32_t i = 0; i < table.via.array.size; ++i) {
    const msgpack::object& entry = table.via.array.ptr[i];
    StorageRecord record;
    const uint64_t kind = unsignedOf(itemOf(entry, 0));
    if (kind > static_cast<uint64_t>(StorageKind::kPackage)) {
      refuse("a payload has a storage of an unknown kind");
    }
    record.kind = static_cast<StorageKind>(kind);
    switch (record.kind) {
      case StorageKind::kInline: {
        const msgpack::object& bin = itemOf(entry, 1);
        if (bin.type != msgpack::type::BIN) refuse("an inline storage has no bytes");
        record.inlineBytes = {reinterpret_cast<const std::byte*>(bin.via.bin.ptr),
                              bin.via.bin.size};
        record.bytes = bin.via.bin.size;
        break;
      }
      case StorageKind::kLent:
        record.lease = unsigned32Of(itemOf(entry, 4));
        record.generation = unsigned32Of(itemOf(entry, 5));
        [[fallthrough]];
      case StorageKind::kHome:
      case StorageKind::kPackage:
        record.segment = unsigned32Of(itemOf(entry, 1));
        record.offset = unsignedOf(itemOf(entry, 2));
        record.bytes = unsignedOf(itemOf(entry, 3));
        break;
      case StorageKind::kEcho:
        record.offset = unsignedOf(itemOf(entry, 1));
        break;
    }
    records_.push_back(record);
  }
}

const msgpack::object& PayloadReader::element(size_t index) const { return itemOf(body_, index); }

uint64_t PayloadReader::integer(size_t index) const { return unsignedOf(element(index)); }

std::string_view PayloadReader::text(size_t index) const {
  const msgpack::object& object = element(index);
  if (object.type != msgpack::type::STR) refuse("a payload lacks a string");
  return {object.via.str.ptr, object.via.str.size};
}

std::optional<uint64_t> PayloadReader::handle(const msgpack::object& object) {
  if (object.type != msgpack::type::EXT || object.via.ext.type() != kHandleExtension ||
      object.via.ext.size != sizeof(uint64_t)) {
    return std::nullopt;
  }
  uint64_t value = 0;
  std::memcpy(&value, object.via.ext.data(), sizeof value);
  return value;
}

InputReport PayloadReader::inputReport() const {
  InputReport report;
  if (report_.type == msgpack::type::NIL) return report;
  const auto items = [&](size_t list) {
    const msgpack::object& array = itemOf(report_, list);
    if (array.type != msgpack::type::ARRAY) refuse("a report of inputs lacks a list");
    return std::span(array.via.array.ptr, array.via.array.size);
  };
  const auto input = [](const msgpack::object& item) {
    return InputVersion{unsignedOf(itemOf(item, 0)), unsigned32Of(itemOf(item, 1))};
  };
  for (const msgpack::object& item : items(0)) {
    report.written.push_back({input(item), unsigned32Of(itemOf(item, 2))});
  }
  for (const msgpack::object& item : items(1)) report.kept.push_back(unsigned32Of(item));
  for (const msgpack::object& item : items(2)) report.released.push_back(input(item));
  return report;
}

// Every tensor begins with a counter of its own.
void PayloadReader::setVersion(c10::TensorImpl& tensor, uint32_t storage, uint32_t version) const {
  if (version == kNoVersion || !tensor.version_counter().enabled()) return;
  const size_t earlier = requestVersions_ == nullptr ? 0 : requestVersions_->size();
  if (version < earlier && (*requestVersions_)[version].enabled()) {
    // Only in the caller's own memory: a copy of it has versions of its own.
    const StorageKind kind = records_[storage].kind;
    if (kind == StorageKind::kEcho || kind == StorageKind::kPackage) {
      return tensor.set_version_counter((*requestVersions_)[version]);
    }
  }
  if (version >= earlier + mostVersions_) refuse("a tensor has a version of too high a number");
  VersionCounters& versions = versions_ == nullptr ? ownVersions_ : *versions_;
  if (version >= versions.size()) versions.resize(version + size_t{1});
  if (versions[version].enabled()) {
    tensor.set_version_counter(versions[version]);
  } else {
    versions[version] = tensor.version_counter();
  }
}

at::Tensor PayloadReader::tensor(const msgpack::object_ext& extension) const {
  TensorHead head;
  if (extension.size < sizeof head) refuse("a tensor is cut short");
  std::memcpy(&head, extension.data(), sizeof head);
  const size_t rank = head.rank;
  if (rank > kMaxTensorRank || extension.size != sizeof head + 2 * rank * sizeof(int64_t)) {
    refuse("a tensor has wrong dimensions");
  }
  if (head.storage >= storages_.size()) refuse("a tensor names a missing storage");
  const auto scalarType = static_cast<c10::ScalarType>(head.scalarType);
  if (head.scalarType >= static_cast<uint8_t>(c10::ScalarType::NumOptions) ||
      scalarType == c10::ScalarType::Undefined || c10::isQIntType(scalarType)) {
    refuse("a tensor has an unknown element type");
  }
  std::array<int64_t, kMaxTensorRank> sizes;
  std::array<int64_t, kMaxTensorRank> strides;
  std::memcpy(sizes.data(), extension.data() + sizeof head, rank * sizeof(int64_t));
  std::memcpy(strides.data(), extension.data() + sizeof head + rank * sizeof(int64_t),
              rank * sizeof(int64_t));
  // The last element must lie in the storage; every product and sum is checked for overflow.
  bool empty = false;
  bool fits = head.storageOffset >= 0;
  int64_t last = head.storageOffset;
  int64_t elements = 1;
  for (size_t i = 0; i < rank && fits; ++i) {
    int64_t extent = 0;
    fits = sizes[i] >= 0 && strides[i] >= 0 &&
           !__builtin_mul_overflow(elements, std::max<int64_t>(sizes[i], 1), &elements);
    if (!fits) break;
    if (sizes[i] == 0) {
      empty = true;
    } else {
      fits = !__builtin_mul_overflow(sizes[i] - 1, strides[i], &extent) &&
             !__builtin_add_overflow(last, extent, &last);
    }
  }
  const auto itemBytes = static_cast<int64_t>(c10::elementSize(scalarType));
  int64_t end = 0;
  fits = fits && !__builtin_add_overflow(last, 1, &last) &&
         !__builtin_mul_overflow(last, itemBytes, &end);
  // Compares with the storage itself, because the record of an echo has no length.
  if (!fits || (!empty && static_cast<uint64_t>(end) > storages_[head.storage].nbytes())) {
    refuse("a tensor reaches beyond its storage");
  }
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(storages_[head.storage]),
                                                   c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                   c10::scalarTypeToTypeMeta(scalarType));
  impl->set_storage_offset(head.storageOffset);
  impl->set_sizes_and_strides(c10::IntArrayRef(sizes.data(), rank),
                              c10::IntArrayRef(strides.data(), rank));
  setVersion(*impl, head.storage, head.version);
  at::Tensor result(std::move(impl));
  if ((head.flags & kConjugate) != 0 && result.is_complex()) result._set_conj(true);
  if ((head.flags & kNegative) != 0 && scalarType != c10::ScalarType::Bool) result._set_neg(true);
  if ((head.flags & kRequiresGrad) != 0 &&
      (c10::isFloatingType(scalarType) || c10::isComplexType(scalarType)) &&
      !result.is_inference()) {
    result.set_requires_grad(true);
  }
  return result;
}

at::IValue PayloadReader::value(const msgpack::object& object) const { return valueAt(object, 0); }

at::IValue PayloadReader::valueAt(const msgpack::object& object, int depth) const {
  if (depth > kMaxNesting) refuse("a value is nested too deeply");
  if (++values_ % kBetweenLooks == 0 && end_ && std::chrono::steady_clock::now() >= *end_) {
    throw OutOfTime();
  }
  switch (object.type) {
    case msgpack::type::NIL:
      return {};
    case msgpack::type::BOOLEAN:
      return object.via.boolean;
    case msgpack::type::POSITIVE_INTEGER:
      if (object.via.u64 > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        refuse("an integer is too large");
      }
      return static_cast<int64_t>(object.via.u64);
    case msgpack::type::NEGATIVE_INTEGER:
      return object.via.i64;
    case msgpack::type::FLOAT32:
    case msgpack::type::FLOAT64:
      return object.via.f64;
    case msgpack::type::STR:
      return std::string(object.via.str.ptr, object.via.str.size);
    case msgpack::type::EXT:
      if (object.via.ext.type() == kTensorExtension) return tensor(object.via.ext);
      if (object.via.ext.type() == kComplexExtension && object.via.ext.size == 16) {
        std::array<double, 2> parts;
        std::memcpy(parts.data(), object.via.ext.data(), sizeof parts);
        return c10::complex<double>(parts[0], parts[1]);
      }
      refuse("a value of an unknown extension");
    case msgpack::type::ARRAY:
      return tagged(object, depth);
    default:
      refuse("a value of an unknown kind");
  }
}

at::IValue PayloadReader::tagged(const msgpack::object& object, int depth) const {
  const uint32_t size = object.via.array.size;
  switch (static_cast<ValueTag>(unsigned32Of(itemOf(object, 0)))) {
    case ValueTag::kTuple: {
      std::vector<c10::IValue> elements;
      elements.reserve(size - 1);
      for (uint32_t i = 1; i < size; ++i) {
        elements.push_back(valueAt(object.via.array.ptr[i], depth + 1));
      }
      return c10::ivalue::Tuple::create(std::move(elements));
    }
    case ValueTag::kList: {
      const c10::TypePtr type = readType(itemOf(object, 1));
      c10::impl::GenericList list(type);
      list.reserve(size - 2);
      for (uint32_t i = 2; i < size; ++i) {
        c10::IValue element = valueAt(object.via.array.ptr[i], depth + 1);
        checkKind(element, *type);
        list.push_back(std::move(element));
      }
      return list;
    }
    case ValueTag::kDict: {
      const c10::TypePtr keyType = readType(itemOf(object, 1));
      const c10::TypePtr valueType = readType(itemOf(object, 2));
      if (!isDictKeyType(*keyType) || size % 2 == 0) refuse("a dict has wrong keys");
      DictBuilder dict(keyType, valueType, (size - 3) / 2);
      for (uint32_t i = 3; i + 1 < size; i += 2) {
        c10::IValue key = valueAt(object.via.array.ptr[i], depth + 1);
        c10::IValue entry = valueAt(object.via.array.ptr[i + 1], depth + 1);
        checkKind(key, *keyType);
        if (!isDictKey(key)) refuse("a dict has wrong keys");
        checkKind(entry, *valueType);
        dict.set(std::move(key), std::move(entry));
      }
      return dict.take();
    }
    case ValueTag::kDevice: {
      const msgpack::object& name = itemOf(object, 1);
      if (name.type != msgpack::type::STR) refuse("a device has no name");
      try {
        return c10::Device(std::string(name.via.str.ptr, name.via.str.size));
      } catch (const c10::Error&) {
        refuse("a device has an unknown name");
      }
    }
  }
  refuse("a value of an unknown kind");
}

}  // namespace isopool::ipc
