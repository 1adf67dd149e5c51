// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/type_ptr.h>

#include <msgpack.hpp>

#include "ipc/tensor/value_codec.h"

/// The element types of containers in a payload. A type is encoded as an integer, or as an array
/// that begins with one.
namespace isopool::ipc {

/// Writes a type and returns the number of its parts. A type that no value can have becomes Any.
/// Throws ValueError if it has more than kMaxTypeParts, as a type whose parts occur in it again and
/// again may have.
size_t packType(PayloadWriter::Packer& packer, const c10::TypePtr& type);

/// Reads what packType() has written, from any bytes. Throws ValueError if it is not a type, is
/// nested more than kMaxNesting deep, or is a combination that torch forbids.
c10::TypePtr readType(const msgpack::object& object);

/// Throws ValueError if a container with elements of `type` must not contain the value: torch's
/// typed accessors do not check, so that a wrong value would be read as another type's bytes.
/// Replaces None by an undefined tensor if `type` is that of tensors. Checks the value itself, not
/// the elements of a container in it.
void checkKind(c10::IValue& value, const c10::Type& type);

/// True if a dict may have keys of this type.
bool isDictKeyType(const c10::Type& type);

/// True if the value may be a key of a dict with keys of any type.
bool isDictKey(const c10::IValue& value);

}  // namespace isopool::ipc
