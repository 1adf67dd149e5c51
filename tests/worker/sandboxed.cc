// SPDX-License-Identifier: BSD-3-Clause
#include "tests/worker/sandboxed.h"

#include <fstream>

#include "ipc/control/worker_messages.h"

namespace isopool::tests {

namespace fs = std::filesystem;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const fs::path& folder(const std::string& name) {
  static std::map<std::string, fs::path> folders;
  fs::path& path = folders[name];
  if (path.empty()) {
    path = fs::path(probePackage()).parent_path() / name;
    fs::create_directories(path);
    std::ofstream(path / "file.txt") << "content";
  }
  return path;
}

ZygoteProcess& strictZygote() {
  static ZygoteProcess zygote({"ISOPOOL_SANDBOX=strict",
                               "ISOPOOL_SANDBOX_READ=" + folder("readable").string(),
                               "ISOPOOL_SANDBOX_WRITE=" + folder("writable").string()});
  return zygote;
}

Sandboxed::Sandboxed(ZygoteProcess& zygote) : worker(zygote.fork(1)), client(*worker) {
  client.defineProbe();
}

std::string Sandboxed::errorOf(const std::string& source, const std::string& type) {
  const Answer answer = run(source);
  if (answer.status != ipc::CompletionStatus::kPythonError) {
    ADD_FAILURE() << "nothing was raised by " << source;
    return {};
  }
  EXPECT_EQ(answer.error[0], type) << answer.error[1];
  EXPECT_TRUE(has(answer.error[2], answer.error[1])) << answer.error[2];
  return answer.error[1];
}

Acts Sandboxed::toldActs(uint64_t count) {
  Acts acts;
  for (uint64_t told = 0; told < count;) {
    const ipc::Frame frame = worker->receive();
    if (frame.type != ipc::MessageType::kForbiddenAct) continue;
    const auto act = ipc::decodeMessage<ipc::ForbiddenAct>(frame);
    acts[act.act] += act.times;
    told += act.times;
  }
  return acts;
}

}  // namespace isopool::tests
