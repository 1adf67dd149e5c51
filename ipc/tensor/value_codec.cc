// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/tensor/value_codec.h"

#include <ATen/core/Dict.h>
#include <ATen/core/ivalue_inl.h>
#include <ATen/core/jit_type.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <cstring>
#include <limits>

namespace isopool::ipc {

namespace {

enum class ValueTag : uint32_t { kTuple = 0, kList = 1, kDict = 2, kDevice = 3 };

enum class TypeCode : uint32_t {
  kAny = 0,
  kTensor = 1,
  kInt = 2,
  kFloat = 3,
  kBool = 4,
  kString = 5,
  kComplex = 6,
  kNone = 7,
  kDevice = 8,
  kNumber = 9,
  kList = 20,
  kOptional = 21,
  kDict = 22,
  kTuple = 23,
};

enum TensorFlag : uint8_t { kRequiresGrad = 1, kConjugate = 2, kNegative = 4 };

struct TensorHead {
  uint32_t storage;
  uint8_t scalarType;
  uint8_t flags;
  uint8_t rank;
  uint8_t unused;
  int64_t storageOffset;
};
static_assert(sizeof(TensorHead) == 16);

constexpr int kMaxNesting = 64;

[[noreturn]] void refuse(const std::string& what) { throw ValueError(what); }

void checkTensorCanCross(const at::Tensor& tensor) {
  if (!tensor.device().is_cpu()) {
    refuse("a " + tensor.device().str() +
           " tensor can't cross between processes: call .cpu() on it first");
  }
  if (tensor.layout() != c10::kStrided) {
    refuse("a tensor with layout " + std::string(toString(tensor.key_set())) +
           " can't cross between processes: call .to_dense() on it first");
  }
  if (tensor.is_quantized()) {
    refuse("a quantised tensor can't cross between processes: call .dequantize() on it first");
  }
  if (tensor.is_nested() || !tensor.has_storage()) {
    refuse(
        "a tensor without a plain storage (nested, meta, functional) can't cross between "
        "processes");
  }
  if (static_cast<size_t>(tensor.dim()) > kMaxTensorRank) {
    refuse("a tensor with more than " + std::to_string(kMaxTensorRank) +
           " dimensions can't cross between processes");
  }
}

TypeCode simpleTypeCode(c10::TypeKind kind) {
  switch (kind) {
    case c10::TypeKind::TensorType:
      return TypeCode::kTensor;
    case c10::TypeKind::IntType:
      return TypeCode::kInt;
    case c10::TypeKind::FloatType:
      return TypeCode::kFloat;
    case c10::TypeKind::BoolType:
      return TypeCode::kBool;
    case c10::TypeKind::StringType:
      return TypeCode::kString;
    case c10::TypeKind::ComplexType:
      return TypeCode::kComplex;
    case c10::TypeKind::NoneType:
      return TypeCode::kNone;
    case c10::TypeKind::DeviceObjType:
      return TypeCode::kDevice;
    case c10::TypeKind::NumberType:
      return TypeCode::kNumber;
    default:
      return TypeCode::kAny;
  }
}

const msgpack::object& itemOf(const msgpack::object& array, size_t index) {
  if (array.type != msgpack::type::ARRAY || index >= array.via.array.size) {
    refuse("a payload lacks an element");
  }
  return array.via.array.ptr[index];
}

uint64_t unsignedOf(const msgpack::object& object) {
  if (object.type != msgpack::type::POSITIVE_INTEGER) refuse("a payload lacks an integer");
  return object.via.u64;
}

uint32_t unsigned32Of(const msgpack::object& object) {
  const uint64_t value = unsignedOf(object);
  if (value > std::numeric_limits<uint32_t>::max()) refuse("a payload has a too large integer");
  return static_cast<uint32_t>(value);
}

c10::TypePtr typeOf(const msgpack::object& object, int depth) {
  if (depth > kMaxNesting) refuse("a payload has types nested too deeply");
  if (object.type != msgpack::type::ARRAY) {
    switch (static_cast<TypeCode>(unsigned32Of(object))) {
      case TypeCode::kTensor:
        return c10::TensorType::get();
      case TypeCode::kInt:
        return c10::IntType::get();
      case TypeCode::kFloat:
        return c10::FloatType::get();
      case TypeCode::kBool:
        return c10::BoolType::get();
      case TypeCode::kString:
        return c10::StringType::get();
      case TypeCode::kComplex:
        return c10::ComplexType::get();
      case TypeCode::kNone:
        return c10::NoneType::get();
      case TypeCode::kDevice:
        return c10::DeviceObjType::get();
      case TypeCode::kNumber:
        return c10::NumberType::get();
      default:
        return c10::AnyType::get();
    }
  }
  const auto code = static_cast<TypeCode>(unsigned32Of(itemOf(object, 0)));
  switch (code) {
    case TypeCode::kList:
      return c10::ListType::create(typeOf(itemOf(object, 1), depth + 1));
    case TypeCode::kOptional:
      return c10::OptionalType::create(typeOf(itemOf(object, 1), depth + 1));
    case TypeCode::kDict:
      return c10::DictType::create(typeOf(itemOf(object, 1), depth + 1),
                                   typeOf(itemOf(object, 2), depth + 1));
    case TypeCode::kTuple: {
      std::vector<c10::TypePtr> elements;
      for (uint32_t i = 1; i < object.via.array.size; ++i) {
        elements.push_back(typeOf(itemOf(object, i), depth + 1));
      }
      return c10::TupleType::create(std::move(elements));
    }
    default:
      refuse("a payload names an unknown type");
  }
}

// What a container holds is checked, because typed accessors trust it.
void checkKind(c10::IValue& value, const c10::Type& type) {
  bool right = true;
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
      if (value.isNone()) value = at::Tensor();  // undefined ones cross as nil
      right = value.isTensor();
      break;
    case c10::TypeKind::IntType:
      right = value.isInt();
      break;
    case c10::TypeKind::FloatType:
      right = value.isDouble();
      break;
    case c10::TypeKind::BoolType:
      right = value.isBool();
      break;
    case c10::TypeKind::StringType:
      right = value.isString();
      break;
    case c10::TypeKind::ComplexType:
      right = value.isComplexDouble();
      break;
    case c10::TypeKind::NumberType:
      right = value.isScalar();
      break;
    case c10::TypeKind::NoneType:
      right = value.isNone();
      break;
    case c10::TypeKind::DeviceObjType:
      right = value.isDevice();
      break;
    case c10::TypeKind::ListType:
      right = value.isList();
      break;
    case c10::TypeKind::TupleType:
      right = value.isTuple();
      break;
    case c10::TypeKind::DictType:
      right = value.isGenericDict();
      break;
    case c10::TypeKind::OptionalType:
      if (!value.isNone()) checkKind(value, *type.expectRef<c10::OptionalType>().getElementType());
      return;
    default:
      break;
  }
  if (!right) refuse("a payload has a value of another type than its container's");
}

bool isDictKeyType(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::IntType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::ComplexType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::TensorType:
    case c10::TypeKind::DeviceObjType:
      return true;
    default:
      return false;
  }
}

msgpack::object_handle unpackOne(std::span<const std::byte> bytes, size_t& offset) {
  const auto* data = reinterpret_cast<const char*>(bytes.data());
  const size_t all = bytes.size();
  // An element takes at least a byte, so these bounds keep a lie about sizes from costing memory.
  const msgpack::unpack_limit limit(all, all, all, all, all, 2 * kMaxNesting);
  const auto reference = [](msgpack::type::object_type, std::size_t, void*) { return true; };
  try {
    return msgpack::unpack(data, all, offset, reference, nullptr, limit);
  } catch (const msgpack::unpack_error& error) {
    refuse(std::string("a payload is no msgpack: ") + error.what());
  }
}

}  // namespace

void PayloadWriter::clear() {
  buffer_.clear();
  storages_.clear();
  storageUses_.clear();
  heads_.clear();
  indexOfStorage_.clear();
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
    // It reaches nothing, and nobody has checked where it begins.
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
  // Few storages are the rule: a walk beats a hash.
  constexpr size_t kWalked = 8;
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
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  packer_.pack_ext(sizeof head + 2 * rank * sizeof(int64_t), kTensorExtension);
  heads_.push_back({buffer_.size(), index, static_cast<uint32_t>(tensor.element_size())});
  packer_.pack_ext_body(reinterpret_cast<const char*>(&head), sizeof head);
  packer_.pack_ext_body(reinterpret_cast<const char*>(sizes.data()), rank * sizeof(int64_t));
  packer_.pack_ext_body(reinterpret_cast<const char*>(strides.data()), rank * sizeof(int64_t));
}

void PayloadWriter::addType(const c10::TypePtr& type) {
  const auto code = [](TypeCode value) { return static_cast<uint32_t>(value); };
  switch (type->kind()) {
    case c10::TypeKind::ListType:
      packer_.pack_array(2).pack(code(TypeCode::kList));
      addType(type->expectRef<c10::ListType>().getElementType());
      return;
    case c10::TypeKind::OptionalType:
      packer_.pack_array(2).pack(code(TypeCode::kOptional));
      addType(type->expectRef<c10::OptionalType>().getElementType());
      return;
    case c10::TypeKind::DictType:
      packer_.pack_array(3).pack(code(TypeCode::kDict));
      addType(type->expectRef<c10::DictType>().getKeyType());
      addType(type->expectRef<c10::DictType>().getValueType());
      return;
    case c10::TypeKind::TupleType: {
      const auto elements = type->expectRef<c10::TupleType>().elements();
      packer_.pack_array(static_cast<uint32_t>(elements.size() + 1)).pack(code(TypeCode::kTuple));
      for (const auto& element : elements) addType(element);
      return;
    }
    default:
      packer_.pack(code(simpleTypeCode(type->kind())));
  }
}

// msgpack's own packer writes a whole number as an integer, and it would be one on the other side.
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

void PayloadWriter::addList(const at::IValue& value) {
  const c10::List<c10::IValue> list = value.toList();
  packer_.pack_array(static_cast<uint32_t>(list.size() + 2))
      .pack(static_cast<uint32_t>(ValueTag::kList));
  addType(list.elementType());
  for (size_t i = 0; i < list.size(); ++i) addValue(list.get(i));
}

void PayloadWriter::addDict(const at::IValue& value) {
  const auto dict = value.toGenericDict();
  packer_.pack_array(static_cast<uint32_t>(2 * dict.size() + 3))
      .pack(static_cast<uint32_t>(ValueTag::kDict));
  addType(dict.keyType());
  addType(dict.valueType());
  for (const auto& entry : dict) {
    addValue(entry.key());
    addValue(entry.value());
  }
}

void PayloadWriter::addValue(const at::IValue& value) {
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
    const std::string& text = value.toStringRef();
    packer_.pack_str(static_cast<uint32_t>(text.size()));
    packer_.pack_str_body(text.data(), static_cast<uint32_t>(text.size()));
  } else if (value.isComplexDouble()) {
    const c10::complex<double> number = value.toComplexDouble();
    const std::array<double, 2> parts{number.real(), number.imag()};
    packer_.pack_ext(sizeof parts, kComplexExtension);
    packer_.pack_ext_body(reinterpret_cast<const char*>(parts.data()), sizeof parts);
  } else if (value.isTuple()) {
    const auto& elements = value.toTupleRef().elements();
    packer_.pack_array(static_cast<uint32_t>(elements.size() + 1))
        .pack(static_cast<uint32_t>(ValueTag::kTuple));
    for (const auto& element : elements) addValue(element);
  } else if (value.isList()) {
    addList(value);
  } else if (value.isGenericDict()) {
    addDict(value);
  } else if (value.isDevice()) {
    packer_.pack_array(2).pack(static_cast<uint32_t>(ValueTag::kDevice));
    packer_.pack(value.toDevice().str());
  } else {
    refuse("a value of kind " + value.tagKind() +
           " can't cross between processes: pass tensors, numbers, strings, None, and lists, "
           "tuples and dicts of them");
  }
}

std::span<const std::byte> PayloadWriter::finish(std::span<const StorageRecord> records) {
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
  return {reinterpret_cast<const std::byte*>(buffer_.data()), buffer_.size()};
}

PayloadReader::PayloadReader(std::span<const std::byte> bytes) {
  size_t offset = 0;
  bodyHandle_ = unpackOne(bytes, offset);
  storagesHandle_ = unpackOne(bytes, offset);
  if (offset != bytes.size()) refuse("a payload has bytes behind its end");
  body_ = bodyHandle_.get();
  const msgpack::object& table = storagesHandle_.get();
  if (body_.type != msgpack::type::ARRAY || table.type != msgpack::type::ARRAY ||
      table.via.array.size > kMaxStorages) {
    refuse("a payload is not an array with a storage table");
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

at::Tensor PayloadReader::tensor(const msgpack::object_ext& extension) const {
  TensorHead head;
  if (extension.size < sizeof head) refuse("a tensor is cut short");
  std::memcpy(&head, extension.data(), sizeof head);
  const size_t rank = head.rank;
  if (rank > kMaxTensorRank || extension.size != sizeof head + 2 * rank * sizeof(int64_t)) {
    refuse("a tensor has wrong dimensions");
  }
  if (head.storage >= storages_.size()) refuse("a tensor names no storage of its payload");
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
  // The storage itself is asked, because the record of an echo has no length.
  if (!fits || (!empty && static_cast<uint64_t>(end) > storages_[head.storage].nbytes())) {
    refuse("a tensor reaches beyond its storage");
  }
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(storages_[head.storage]),
                                                   c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                   c10::scalarTypeToTypeMeta(scalarType));
  impl->set_storage_offset(head.storageOffset);
  impl->set_sizes_and_strides(c10::IntArrayRef(sizes.data(), rank),
                              c10::IntArrayRef(strides.data(), rank));
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
      const c10::TypePtr type = typeOf(itemOf(object, 1), 0);
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
      const c10::TypePtr keyType = typeOf(itemOf(object, 1), 0);
      const c10::TypePtr valueType = typeOf(itemOf(object, 2), 0);
      if (!isDictKeyType(*keyType) || size % 2 == 0) refuse("a dict has wrong keys");
      c10::impl::GenericDict dict(keyType, valueType);
      dict.reserve((size - 3) / 2);
      for (uint32_t i = 3; i + 1 < size; i += 2) {
        c10::IValue key = valueAt(object.via.array.ptr[i], depth + 1);
        c10::IValue entry = valueAt(object.via.array.ptr[i + 1], depth + 1);
        checkKind(key, *keyType);
        checkKind(entry, *valueType);
        dict.insert_or_assign(std::move(key), std::move(entry));
      }
      return dict;
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
