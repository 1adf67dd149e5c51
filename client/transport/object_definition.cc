// SPDX-License-Identifier: BSD-3-Clause
#include "client/transport/object_definition.h"

#include <atomic>
#include <msgpack.hpp>
#include <stdexcept>

namespace isopool::client {

uint64_t newObjectNumber() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

ObjectDefinition loadedObject(base::PackageId file, const std::string& format,
                              const std::string& options, const std::string& name) {
  const uint64_t object = newObjectNumber();
  msgpack::sbuffer body;
  msgpack::packer(body)
      .pack_array(5)
      .pack(object)
      .pack(file.value)
      .pack(format)
      .pack(options)
      .pack(name);
  return {object, ipc::Operation::kDefineObject, std::string(body.data(), body.size()), name};
}

ObjectDefinition anotherOf(const ObjectDefinition& definition) {
  const msgpack::object_handle body =
      msgpack::unpack(definition.request.data(), definition.request.size());
  const msgpack::object& fields = body.get();
  if (fields.type != msgpack::type::ARRAY || fields.via.array.size == 0) {
    throw std::logic_error("the definition of an object is not an array");
  }
  const uint64_t object = newObjectNumber();
  msgpack::sbuffer other;
  msgpack::packer packer(other);
  packer.pack_array(fields.via.array.size).pack(object);
  for (uint32_t i = 1; i < fields.via.array.size; ++i) packer.pack(fields.via.array.ptr[i]);
  return {object, definition.operation, std::string(other.data(), other.size()), definition.name};
}

void draftDefinition(RequestDraft& draft, const ObjectDefinition& definition) {
  // Appends the bytes as they are: they are msgpack already.
  draft.writer.packer().pack_bin_body(definition.request.data(),
                                      static_cast<uint32_t>(definition.request.size()));
}

}  // namespace isopool::client
