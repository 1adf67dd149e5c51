// SPDX-License-Identifier: BSD-3-Clause
// Archives: arbitrary bytes as a file that a program loads as a package, and as a model with and
// without a name.
#include <c10/util/Exception.h>

#include <memory>

#include "client/models/archive_file.h"
#include "client/models/package_contents.h"
#include "client/models/stored_model.h"
#include "tests/fuzz/fuzz_target.h"

namespace isopool::fuzz {
namespace {

template <typename Open>
void open(Open&& tryToOpen) {
  try {
    tryToOpen();
  } catch (const c10::Error&) {
    // The documented error for a file that is not a package or model.
  }
}

}  // namespace
}  // namespace isopool::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace isopool;
  fuzz::open([&] {
    const std::shared_ptr<client::ArchiveFile> file =
        client::ArchiveFile::copyOf("input", data, size);
    fuzz::open([&] { client::readPackage(*file); });
    fuzz::open([&] { client::readModel(file, ""); });
    fuzz::open([&] { client::readModel(file, "model"); });
    const auto whole = file->range(0, file->bytes());
    fuzz::require(whole != nullptr && whole->storage(0, size).nbytes() == size,
                  "a file has all its bytes");
    fuzz::require(file->range(1, file->bytes() + 1) == nullptr, "a file has no more bytes");
  });
  return 0;
}
