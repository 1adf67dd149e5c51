// SPDX-License-Identifier: BSD-3-Clause
// Calls Python models from a server's event loop: one thread, many calls in flight, no blocking.
#include <ATen/ATen.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <iostream>

#include "isopool/isopool.h"

namespace asio = boost::asio;

namespace {

constexpr uint64_t kCalls = 1000;

/// Calls the model and adds up the results, on the event loop's thread.
class Client {
 public:
  Client(asio::io_context& loop, const isopool::ReplicatedObj& model)
      : model_(model), outcomes_(loop, ::dup(queue_.fd())) {}  // Asio closes its own

  void begin() {
    for (uint64_t tag = 0; tag < kCalls; ++tag) {
      model_.callAsync({at::full({3}, static_cast<double>(tag))}, queue_, tag);
    }
    wait();
  }
  double sum() const { return sum_; }
  uint64_t failed() const { return failed_; }

 private:
  void wait() {
    outcomes_.async_wait(asio::posix::stream_descriptor::wait_read,
                         [this](const boost::system::error_code& error) {
                           if (!error) take();
                         });
  }
  void take() {
    for (const isopool::Completed& each : queue_.take()) {
      ++ended_;
      try {
        sum_ += each.outcome.value().toTensor().sum().item<double>();
      } catch (const isopool::Error& error) {
        ++failed_;
        std::cerr << "call " << each.tag << ": " << error.what() << "\n";
      }
    }
    if (ended_ < kCalls) wait();
  }

  const isopool::ReplicatedObj& model_;
  isopool::CompletionQueue queue_;
  asio::posix::stream_descriptor outcomes_;
  uint64_t ended_ = 0;
  uint64_t failed_ = 0;
  double sum_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: event_loop PACKAGE (made by package_hello.py)\n";
    return 2;
  }
  isopool::InterpreterManager pool(2);
  isopool::ReplicatedObj model = pool.loadPackage(argv[1]).loadPickle("model", "model.pkl");
  asio::io_context loop;
  Client client(loop, model);
  client.begin();
  loop.run();  // returns when no operation is pending
  std::cout << "sum of " << kCalls << " answers: " << client.sum() << "\n";
  return client.failed() == 0 ? 0 : 1;
}
