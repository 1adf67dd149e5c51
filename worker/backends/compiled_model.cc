// SPDX-License-Identifier: BSD-3-Clause
#include "worker/backends/compiled_model.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/fd.h"
#include "base/system_call.h"
#include "worker/memory/package_store.h"
#include "worker/memory/weight_sharing.h"
#include "worker/sandbox/anonymous_folder.h"

namespace isopool::worker {

namespace {

using Weights = std::unordered_map<std::string, at::Tensor>;

// How far behind a weight its stored bytes lie. The largest one is looked for; since the loader
// copies all of them in their order and alignment, the others lie equally far.
std::optional<ptrdiff_t> distanceToStored(const Weights& weights, const ipc::Mapping& library) {
  const c10::Storage* largest = nullptr;
  for (const auto& [name, tensor] : weights) {
    if (tensor.has_storage() && (largest == nullptr || tensor.nbytes() > largest->nbytes())) {
      largest = &tensor.storage();
    }
  }
  if (largest == nullptr || largest->nbytes() < kLeastSharedBytes) return std::nullopt;
  const auto* end = library.data() + library.bytes();
  for (const std::byte* from = library.data(); from < end;) {
    const auto* found = static_cast<const std::byte*>(
        ::memmem(from, static_cast<size_t>(end - from), largest->data(), kLeastSharedBytes));
    if (found == nullptr || static_cast<size_t>(end - found) < largest->nbytes()) break;
    if (std::memcmp(found, largest->data(), largest->nbytes()) == 0) {
      return found - static_cast<const std::byte*>(largest->data());
    }
    from = found + 1;
  }
  return std::nullopt;
}

// Where in the library a weight's own bytes lie, if at this distance.
std::optional<uint64_t> storedAt(const at::Tensor& tensor, ptrdiff_t distance,
                                 const ipc::Mapping& library) {
  if (!tensor.has_storage() || tensor.storage().nbytes() == 0) return std::nullopt;
  const auto* data = static_cast<const std::byte*>(tensor.storage().data());
  const auto address = reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(distance);
  const auto* stored = reinterpret_cast<const std::byte*>(address);
  const size_t bytes = tensor.storage().nbytes();
  if (!library.contains(stored) ||
      bytes > static_cast<size_t>(library.data() + library.bytes() - stored) ||
      std::memcmp(stored, data, bytes) != 0) {
    return std::nullopt;
  }
  return static_cast<uint64_t>(stored - library.data());
}

}  // namespace

// Where the library is loaded from. dlopen() takes a path that it has seen for the library that it
// has loaded, and a descriptor's number comes again: so no path is used twice.
class CompiledModel::Place {
 public:
  Place(const std::string& library, const std::string& operators) {
    static uint32_t count = 0;
    ++count;
    if (operators.empty()) {
      // The same place spelled in another way: a bit of the count is "/" or "./".
      const size_t folder = library.rfind('/') + 1;
      path_ = library.substr(0, folder);
      for (uint32_t bits = count; bits != 0; bits >>= 1) path_ += (bits & 1) != 0 ? "./" : "/";
      path_ += library.substr(folder);
      return;
    }
    // The runtime looks for the description beside the library, by its name.
    folder_ = takeAnonymousFolder();
    if (!folder_.valid()) {
      throw std::runtime_error(
          "the model calls operators through torch's dispatcher, and AOTInductor's runtime wants a "
          "folder for that. This system allows none without a name, which takes user namespaces, "
          "and "
          "the supervisor's folder for temporary files (TMPDIR) takes none either. Allow one of "
          "them, or store the model as TorchScript, by torch.export.save or as a torch.package");
    }
    name_ = "model" + std::to_string(count);
    path_ = "/proc/self/fd/" + std::to_string(folder_.get()) + "/" + name_ + ".so";
    base::checkSystemCall(::symlinkat(library.c_str(), folder_.get(), (name_ + ".so").c_str()),
                          "symlinkat", path_);
    write(name_ + ".json", operators);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  /// What was loaded from it needs it no more, and the folder may be one that is kept.
  ~Place() {
    if (!folder_.valid()) return;
    for (const char* suffix : {".so", ".json"}) {
      ::unlinkat(folder_.get(), (name_ + suffix).c_str(), 0);
    }
  }

  const std::string& path() const { return path_; }

 private:
  void write(const std::string& name, const std::string& text) const {
    const base::Fd file(base::checkSystemCall(
        ::openat(folder_.get(), name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600), "openat",
        name));
    for (size_t written = 0; written < text.size();) {
      const ssize_t result = ::write(file.get(), text.data() + written, text.size() - written);
      if (result < 0 && errno == EINTR) continue;
      if (result < 0) throw base::SystemCallError("write", name, errno);
      written += static_cast<size_t>(result);
    }
  }

  std::string path_;
  std::string name_;
  base::Fd folder_;
};

CompiledModel::CompiledModel(const std::string& path, std::shared_ptr<const ipc::Mapping> library,
                             const std::string& operators)
    : CompiledModel(Place(path, operators), library) {}

CompiledModel::CompiledModel(const Place& place, const std::shared_ptr<const ipc::Mapping>& library)
    : AOTIModelContainerRunner(place.path(), /*num_models=*/1, "cpu", /*cubin_dir=*/"",
                               /*run_single_threaded=*/false) {
  shareWeights(library);
}

// The library's loader has copied the weights out of it.
void CompiledModel::shareWeights(const std::shared_ptr<const ipc::Mapping>& library) {
  const Weights loaded = extract_constants_map(/*use_inactive=*/false);
  const auto distance = distanceToStored(loaded, *library);
  if (!distance) return;
  // Weights are told by their names in the module, and set by those in the library.
  for (const auto& [name, nameInModule] : getConstantNamesToOriginalFQNs()) {
    const auto found = loaded.find(nameInModule);
    if (found == loaded.end()) continue;
    const at::Tensor& tensor = found->second;
    const auto stored = storedAt(tensor, *distance, *library);
    weights_[name] = stored ? at::empty({0}, tensor.options())
                                  .set_(packageStorage(library, *stored, tensor.storage().nbytes()),
                                        tensor.storage_offset(), tensor.sizes(), tensor.strides())
                            : tensor.clone();
  }
  update_constant_buffer(weights_, /*use_inactive=*/true, /*validate_full_updates=*/false,
                         /*user_managed=*/true);
  swap_constant_buffer();
  free_inactive_constant_buffer();
}

std::vector<at::Tensor> CompiledModel::run(const std::vector<at::Tensor>& inputs) {
  const c10::NoGradGuard withoutGradients;
  return AOTIModelContainerRunner::run(inputs);
}

}  // namespace isopool::worker
