// SPDX-License-Identifier: BSD-3-Clause
#include "client/package_file.h"

#include <c10/util/Exception.h>
#include <caffe2/serialize/in_memory_adapter.h>
#include <caffe2/serialize/inline_container.h>
#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <utility>
#include <vector>

namespace isopool::client {

namespace {

using Digest = std::pair<uint64_t, uint64_t>;

constexpr size_t kChunkBytes = size_t{4} << 20;

void forgetSlice(void* context) { delete static_cast<PackageSlice*>(context); }

std::string recordText(caffe2::serialize::PyTorchStreamReader& reader, const std::string& name) {
  const auto [data, size] = reader.getRecord(name);
  return {static_cast<const char*>(data.get()), size};
}

}  // namespace

// A memory object in the making: its bytes are hashed as they come, while they are warm.
class PackageFile::Copy {
 public:
  explicit Copy(const std::string& name)
      : name_(name),
        object_(ipc::createGrowingMemoryObject("isopool:package")),
        hash_(XXH3_createState(), &XXH3_freeState) {
    XXH3_128bits_reset(hash_.get());
  }

  void append(const char* data, size_t size) {
    XXH3_128bits_update(hash_.get(), data, size);
    for (size_t written = 0; written < size;) {
      const ssize_t result = ::write(object_.get(), data + written, size - written);
      if (result < 0 && errno == EINTR) continue;
      TORCH_CHECK(result >= 0, "no memory to hold ", name_, ": ", std::strerror(errno));
      written += static_cast<size_t>(result);
    }
    bytes_ += size;
  }

  /// Nothing can be written to it from here on, by anybody.
  void seal() {
    TORCH_CHECK(bytes_ > 0, name_, " is empty: not a torch.package");
    ipc::sealMemoryObject(object_, ipc::Seal::kFixedSize);
    ipc::sealMemoryObject(object_, ipc::Seal::kReadOnly);
  }

  ipc::Fd takeObject() { return std::move(object_); }
  uint64_t bytes() const { return bytes_; }
  Digest digest() const {
    const XXH128_hash_t digest = XXH3_128bits_digest(hash_.get());
    return {digest.low64, digest.high64};
  }

 private:
  const std::string name_;
  ipc::Fd object_;
  uint64_t bytes_ = 0;
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash_;
};

// The packages of this process, by content and by number. Never destroyed: results may still ask.
struct PackageFile::Registry {
  std::mutex mutex;
  std::map<Digest, std::weak_ptr<PackageFile>> byDigest;
  std::map<uint32_t, std::weak_ptr<PackageFile>> byId;
  uint32_t nextId = 1;

  static Registry& instance() {
    static auto* registry = new Registry;
    return *registry;
  }
};

std::shared_ptr<PackageFile> PackageFile::find(ipc::PackageId id) {
  Registry& registry = Registry::instance();
  std::lock_guard lock(registry.mutex);
  const auto entry = registry.byId.find(id.value);
  return entry == registry.byId.end() ? nullptr : entry->second.lock();
}

std::shared_ptr<PackageFile> PackageFile::open(const std::string& path) {
  const ipc::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  TORCH_CHECK(file.valid(), "open file failed, file path: ", path, ", errno ", errno, ": ",
              std::strerror(errno));
  Copy copy(path);
  std::vector<char> chunk(kChunkBytes);
  for (;;) {
    const ssize_t got = ::read(file.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    TORCH_CHECK(got >= 0, "reading ", path, " failed: ", std::strerror(errno));
    if (got == 0) break;
    copy.append(chunk.data(), static_cast<size_t>(got));
  }
  return keep(path, copy);
}

std::shared_ptr<PackageFile> PackageFile::read(caffe2::serialize::ReadAdapterInterface& reader) {
  const std::string name = "the package given by a reader";
  Copy copy(name);
  std::vector<char> chunk(kChunkBytes);
  const size_t size = reader.size();
  for (size_t offset = 0; offset < size;) {
    const size_t wanted = std::min(chunk.size(), size - offset);
    const size_t got = reader.read(offset, chunk.data(), wanted, "reading a package");
    TORCH_CHECK(got > 0 && got <= wanted, "reading ", name, " ended after ", offset, " of ", size,
                " bytes");
    copy.append(chunk.data(), got);
    offset += got;
  }
  return keep(name, copy);
}

std::shared_ptr<PackageFile> PackageFile::keep(const std::string& name, Copy& copy) {
  copy.seal();
  std::shared_ptr<PackageFile> file(new PackageFile(name, copy.takeObject(), copy.bytes()));
  try {
    file->readContents();
  } catch (const c10::Error& error) {
    TORCH_CHECK(false, name,
                " can't be opened as a torch.package: ", error.what_without_backtrace());
  }

  Registry& registry = Registry::instance();
  std::lock_guard lock(registry.mutex);
  std::weak_ptr<PackageFile>& entry = registry.byDigest[copy.digest()];
  if (auto same = entry.lock()) {
    // A digest can collide; bytes can't.
    if (same->bytes() == file->bytes() &&
        std::memcmp(same->mapping_.data(), file->mapping_.data(), file->bytes()) == 0) {
      return same;
    }
  }
  file->id_ = ipc::PackageId(registry.nextId++);
  entry = file;
  registry.byId[file->id_.value] = file;
  return file;
}

PackageFile::PackageFile(std::string name, ipc::Fd object, uint64_t bytes)
    : name_(std::move(name)),
      object_(std::move(object)),
      mapping_(ipc::mapPrivate(object_, bytes)) {}

void PackageFile::readContents() {
  caffe2::serialize::PyTorchStreamReader reader(
      std::make_shared<caffe2::serialize::MemoryReadAdapter>(mapping_.data(),
                                                             static_cast<off_t>(bytes())));
  const std::string externs = ".data/extern_modules";
  TORCH_CHECK(reader.hasRecord(externs), "it is not a torch.package, for it has no record ",
              externs, ". Make it with torch.package.PackageExporter");
  std::istringstream lines(recordText(reader, externs));
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) externModules_.push_back(line);
  }
  if (reader.hasRecord(".data/python_version")) {
    pythonVersion_ = recordText(reader, ".data/python_version");
    while (!pythonVersion_.empty() &&
           std::isspace(static_cast<unsigned char>(pythonVersion_.back())) != 0) {
      pythonVersion_.pop_back();
    }
  }
}

c10::Storage PackageFile::slice(uint64_t offset, uint64_t bytes) {
  if (offset > this->bytes() || bytes > this->bytes() - offset) return {};
  auto* context = new PackageSlice{shared_from_this(), offset};
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes,
      c10::DataPtr(mapping_.data() + offset, context, &forgetSlice,
                   c10::Device(c10::DeviceType::CPU)),
      /*allocator=*/nullptr, /*resizable=*/false));
}

const PackageSlice* packageSliceOf(const c10::Storage& storage) noexcept {
  const c10::DataPtr& data = storage.data_ptr();
  return data.get_deleter() == &forgetSlice ? static_cast<const PackageSlice*>(data.get_context())
                                            : nullptr;
}

}  // namespace isopool::client
