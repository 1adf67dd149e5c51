// SPDX-License-Identifier: BSD-3-Clause
#include "client/transport/object_definition.h"

#include <atomic>
#include <msgpack.hpp>

namespace isopool::client {

uint64_t newObjectNumber() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

ObjectDefinition loadedObject(base::PackageId file, const std::string& format,
                              const std::string& options) {
  const uint64_t object = newObjectNumber();
  msgpack::sbuffer body;
  msgpack::packer(body).pack_array(4).pack(object).pack(file.value).pack(format).pack(options);
  return {object, ipc::Operation::kDefineObject, std::string(body.data(), body.size())};
}

void draftDefinition(RequestDraft& draft, const ObjectDefinition& definition) {
  // Appends the bytes as they are: they are msgpack already.
  draft.writer.packer().pack_bin_body(definition.request.data(),
                                      static_cast<uint32_t>(definition.request.size()));
}

void draftForgetting(RequestDraft& draft, uint64_t object) {
  draft.writer.packer().pack_array(1).pack(object);
}

}  // namespace isopool::client
