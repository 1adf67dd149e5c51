// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/task_threads.h"

#include <ATen/Parallel.h>
#include <c10/core/thread_pool.h>
#include <c10/util/thread_name.h>

#include <memory>
#include <utility>

#include "worker/process/floating_point.h"

namespace isopool::worker {

namespace {

class TaskThreads final : public c10::ThreadPool {
 public:
  // Each thread starts as those of torch's own pool for tasks.
  explicit TaskThreads(int count)
      : c10::ThreadPool(count, /*numa_node_id=*/-1, [] {
          c10::setThreadName("pt_task");
          at::init_num_threads();
        }) {}

  void run(std::function<void()> task) override {
    c10::ThreadPool::run([modes = FloatingPointControl::ofThisThread(), task = std::move(task)] {
      modes.apply();
      task();
    });
  }
};

}  // namespace

// torch makes its pool by this name; its own entry has a lower priority.
void carryModesToTaskThreads() {
  c10::ThreadPoolRegistry()->Register(
      "C10",
      [](int, int count, bool) -> std::shared_ptr<c10::TaskThreadPoolBase> {
        return std::make_shared<TaskThreads>(count);
      },
      c10::REGISTRY_PREFERRED);
}

}  // namespace isopool::worker
