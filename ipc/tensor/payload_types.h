// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/type_ptr.h>

#include <msgpack.hpp>

#include "ipc/tensor/value_codec.h"

/// The types of containers in a payload: an integer, or an array that begins with one.
namespace isopool::ipc {

void packType(PayloadWriter::Packer& packer, const c10::TypePtr& type);

/// Throws ValueError.
c10::TypePtr readType(const msgpack::object& object);

/// Throws ValueError unless a container of `type` may hold the value: typed accessors trust it.
void checkKind(c10::IValue& value, const c10::Type& type);

bool isDictKeyType(const c10::Type& type);

/// What a dict whose keys may be anything can have as a key.
bool isDictKey(const c10::IValue& value);

}  // namespace isopool::ipc
