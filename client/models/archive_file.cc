// SPDX-License-Identifier: BSD-3-Clause
#include "client/models/archive_file.h"

#include <c10/util/Exception.h>
#include <caffe2/serialize/read_adapter_interface.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "base/file_size_signal.h"
#include "base/mutex.h"
#include "base/regular_file.h"
#include "base/system_call.h"
#include "base/without_cancellation.h"
#include "client/program/process_fork.h"
#include "isopool/errors.h"

namespace isopool::client {

namespace {

using Digest = std::pair<uint64_t, uint64_t>;

constexpr size_t kChunkBytes = size_t{4} << 20;

// A package that can't be held is one that can't be opened.
template <typename Work>
auto orCheck(const std::string& name, Work&& work) {
  const base::WithoutCancellation complete;
  try {
    return work();
  } catch (const base::SystemCallError& error) {
    TORCH_CHECK(false, name, " can't be held in shared memory: ", error.what());
  }
}

void checkTime(const std::string& name, const std::optional<base::TimePoint>& deadline) {
  if (!deadline || std::chrono::steady_clock::now() < *deadline) return;
  throw DeadlineExceeded("the deadline passed while " + name + " was being read",
                         /*started=*/false);
}

}  // namespace

// A memory object in the making: its bytes are hashed as they come, while they are warm.
class ArchiveFile::Copy {
 public:
  explicit Copy(const std::string& name)
      : name_(name),
        object_(ipc::createGrowingMemoryObject("isopool:archive")),
        hash_(XXH3_createState(), &XXH3_freeState) {
    if (hash_ == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(hash_.get());
  }

  void append(const char* data, size_t size) {
    XXH3_128bits_update(hash_.get(), data, size);
    const base::NoFileSizeSignal limited;
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
    TORCH_CHECK(bytes_ > 0, name_, " is empty");
    ipc::sealMemoryObject(object_, ipc::Seal::kFixedSize);
    ipc::sealMemoryObject(object_, ipc::Seal::kReadOnly);
  }

  base::Fd takeObject() { return std::move(object_); }
  uint64_t bytes() const { return bytes_; }
  Digest digest() const {
    const XXH128_hash_t digest = XXH3_128bits_digest(hash_.get());
    return {digest.low64, digest.high64};
  }

 private:
  const std::string name_;
  base::Fd object_;
  uint64_t bytes_ = 0;
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash_;
};

// The files of this process, by content and by number. Never destroyed: results may still ask.
struct ArchiveFile::Registry {
  base::Mutex mutex;
  std::map<Digest, std::weak_ptr<ArchiveFile>> byDigest ISOPOOL_GUARDED_BY(mutex);
  std::map<uint32_t, std::weak_ptr<ArchiveFile>> byId ISOPOOL_GUARDED_BY(mutex);

  static Registry& instance() {
    static PerProcess<Registry> registry;
    return registry.get();
  }
};

base::PackageId ArchiveFile::newId() {
  static std::atomic<uint32_t> next{1};
  return base::PackageId(next.fetch_add(1, std::memory_order_relaxed));
}

std::shared_ptr<ArchiveFile> ArchiveFile::find(base::PackageId id) {
  Registry& registry = Registry::instance();
  base::MutexLock lock(registry.mutex);
  const auto entry = registry.byId.find(id.value);
  return entry == registry.byId.end() ? nullptr : entry->second.lock();
}

std::shared_ptr<ArchiveFile> ArchiveFile::open(const std::string& path,
                                               const std::optional<base::TimePoint>& deadline) {
  return orCheck(path, [&] {
    Copy copy(path);
    try {
      base::readRegularFile(path, [&](const char* data, size_t bytes) {
        checkTime(path, deadline);
        copy.append(data, bytes);
      });
    } catch (const base::FileError& error) {
      const int number = error.errorNumber();
      TORCH_CHECK(number == 0, "open file failed, file path: ", path, ", errno ", number, ": ",
                  error.what());
      TORCH_CHECK(false, path, " ", error.what());
    }
    return keep(path, copy);
  });
}

std::shared_ptr<ArchiveFile> ArchiveFile::read(caffe2::serialize::ReadAdapterInterface& reader,
                                               const std::optional<base::TimePoint>& deadline) {
  const std::string name = "the archive given by a reader";
  return orCheck(name, [&] {
    Copy copy(name);
    std::vector<char> chunk(kChunkBytes);
    const size_t size = reader.size();
    for (size_t offset = 0; offset < size;) {
      const size_t wanted = std::min(chunk.size(), size - offset);
      const size_t got = reader.read(offset, chunk.data(), wanted, "reading an archive");
      TORCH_CHECK(got > 0 && got <= wanted, "reading ", name, " ended after ", offset, " of ", size,
                  " bytes");
      checkTime(name, deadline);
      copy.append(chunk.data(), got);
      offset += got;
    }
    return keep(name, copy);
  });
}

std::shared_ptr<ArchiveFile> ArchiveFile::copyOf(const std::string& name, const void* data,
                                                 size_t bytes) {
  return orCheck(name, [&] {
    Copy copy(name);
    copy.append(static_cast<const char*>(data), bytes);
    return keep(name, copy);
  });
}

std::shared_ptr<ArchiveFile> ArchiveFile::keep(const std::string& name, Copy& copy) {
  copy.seal();
  std::shared_ptr<ArchiveFile> file(new ArchiveFile(name, copy.takeObject(), copy.bytes()));
  Registry& registry = Registry::instance();
  base::MutexLock lock(registry.mutex);
  std::weak_ptr<ArchiveFile>& entry = registry.byDigest[copy.digest()];
  if (auto same = entry.lock()) {
    // A digest can collide; bytes can't.
    if (same->bytes() == file->bytes() &&
        std::memcmp(same->mapping_.data(), file->mapping_.data(), file->bytes()) == 0) {
      return same;
    }
  }
  file->id_ = newId();
  file->digest_ = copy.digest();
  entry = file;
  registry.byId[file->id_.value] = file;
  return file;
}

ArchiveFile::ArchiveFile(std::string name, base::Fd object, uint64_t bytes)
    : name_(std::move(name)),
      object_(std::move(object)),
      mapping_(ipc::mapPrivate(object_, 0, bytes)),
      unusedRanges_(std::make_shared<UnusedRanges>(bytes)) {}

bool ArchiveFile::adopt(base::Fd object) {
  if (!ipc::memoryObjectHas(object, bytes(), ipc::Seal::kReadOnly)) return false;
  ipc::Mapping mapping;
  try {
    mapping = ipc::mapPrivate(object, 0, bytes());
  } catch (const base::SystemCallError&) {
    return false;  // without a place to look at them, nobody knows that they are the same
  }
  if (std::memcmp(mapping.data(), mapping_.data(), bytes()) != 0) return false;
  // With it nobody becomes a user meanwhile.
  base::MutexLock lock(Registry::instance().mutex);
  if (weak_from_this().use_count() > 1) return true;
  mapping_ = std::move(mapping);
  object_ = std::move(object);
  unusedRanges_->clear();
  return true;
}

std::shared_ptr<StoredBytes> ArchiveFile::range(uint64_t begin, uint64_t end) {
  if (begin > end || end > bytes()) return nullptr;
  return StoredBytes::of(object_, begin, end, unusedRanges_);
}

}  // namespace isopool::client
