// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/tensor/payload_types.h"

#include <ATen/core/ivalue_inl.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>

#include <string>
#include <utility>
#include <vector>

#include "ipc/tensor/payload_format.h"

namespace isopool::ipc {

namespace {

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
      // Only an empty container can have another element type: values of such a type are refused.
      return TypeCode::kAny;
  }
}

c10::TypePtr readTypeAt(const msgpack::object& object, int depth) {
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
      case TypeCode::kAny:
        return c10::AnyType::get();
      default:
        refuse("a payload names an unknown type");
    }
  }
  const auto code = static_cast<TypeCode>(unsigned32Of(itemOf(object, 0)));
  switch (code) {
    case TypeCode::kList:
      return c10::ListType::create(readTypeAt(itemOf(object, 1), depth + 1));
    case TypeCode::kOptional:
      return c10::OptionalType::create(readTypeAt(itemOf(object, 1), depth + 1));
    case TypeCode::kDict: {
      c10::TypePtr keyType = readTypeAt(itemOf(object, 1), depth + 1);
      if (!isDictKeyType(*keyType)) refuse("a dict has wrong keys");
      return c10::DictType::create(std::move(keyType), readTypeAt(itemOf(object, 2), depth + 1));
    }
    case TypeCode::kTuple: {
      std::vector<c10::TypePtr> elements;
      for (uint32_t i = 1; i < object.via.array.size; ++i) {
        elements.push_back(readTypeAt(itemOf(object, i), depth + 1));
      }
      return c10::TupleType::create(std::move(elements));
    }
    default:
      refuse("a payload names an unknown type");
  }
}

// `parts` counts the parts of the whole type.
void packPart(PayloadWriter::Packer& packer, const c10::TypePtr& type, size_t& parts) {
  if (++parts > kMaxTypeParts) {
    refuse("a container whose type has more than " + std::to_string(kMaxTypeParts) +
           " parts can't cross between processes: pass its parts one by one");
  }
  const auto code = [](TypeCode value) { return static_cast<uint32_t>(value); };
  switch (type->kind()) {
    case c10::TypeKind::ListType:
      packer.pack_array(2).pack(code(TypeCode::kList));
      packPart(packer, type->expectRef<c10::ListType>().getElementType(), parts);
      return;
    case c10::TypeKind::OptionalType:
      packer.pack_array(2).pack(code(TypeCode::kOptional));
      packPart(packer, type->expectRef<c10::OptionalType>().getElementType(), parts);
      return;
    case c10::TypeKind::DictType:
      packer.pack_array(3).pack(code(TypeCode::kDict));
      packPart(packer, type->expectRef<c10::DictType>().getKeyType(), parts);
      packPart(packer, type->expectRef<c10::DictType>().getValueType(), parts);
      return;
    case c10::TypeKind::TupleType: {
      const auto elements = type->expectRef<c10::TupleType>().elements();
      packer.pack_array(static_cast<uint32_t>(elements.size() + 1)).pack(code(TypeCode::kTuple));
      for (const auto& element : elements) packPart(packer, element, parts);
      return;
    }
    default:
      packer.pack(code(simpleTypeCode(type->kind())));
  }
}

}  // namespace

size_t packType(PayloadWriter::Packer& packer, const c10::TypePtr& type) {
  size_t parts = 0;
  packPart(packer, type, parts);
  return parts;
}

c10::TypePtr readType(const msgpack::object& object) {
  try {
    return readTypeAt(object, 0);
  } catch (const c10::Error&) {
    // torch forbids some combinations, for example an optional None.
    refuse("a payload names an impossible type");
  }
}

void checkKind(c10::IValue& value, const c10::Type& type) {
  bool right = true;
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
      if (value.isNone()) value = at::Tensor();  // undefined tensors are sent as nil
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
    case c10::TypeKind::AnyType:
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

bool isDictKey(const c10::IValue& value) {
  return value.isInt() || value.isString() || value.isDouble() || value.isComplexDouble() ||
         value.isBool() || value.isTensor() || value.isDevice();
}

}  // namespace isopool::ipc
