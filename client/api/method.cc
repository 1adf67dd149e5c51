// SPDX-License-Identifier: BSD-3-Clause
#include "isopool/method.h"

#include "client/api/result_stream.h"
#include "client/pool/broadcast.h"
#include "client/pool/pool_call.h"

namespace isopool {

namespace {

client::PoolCall callOf(const ReplicatedObjImpl& object, const std::string& method,
                        at::ArrayRef<at::IValue> args, const client::NamedArguments* kwargs,
                        const CallOptions& options) {
  client::PoolCall call(object, args, kwargs, options);
  call.callMethod(method);
  return call;
}

}  // namespace

at::IValue Method::operator()(at::ArrayRef<at::IValue> args) const {
  return client::callOnPool(callOf(object_.impl(), name_, args, nullptr, {}));
}

at::IValue Method::call(std::vector<at::IValue> args,
                        std::unordered_map<std::string, c10::IValue> kwargs,
                        const CallOptions& options) const {
  client::PoolCall call = callOf(object_.impl(), name_, args, &kwargs, options);
  return client::callOnPool(call, options.interrupted);
}

std::vector<at::IValue> Method::callOnAll(std::vector<at::IValue> args,
                                          std::unordered_map<std::string, c10::IValue> kwargs,
                                          const CallOptions& options) const {
  return client::callOnEverySlot(callOf(object_.impl(), name_, args, &kwargs, options));
}

void Method::warmUp(std::vector<at::IValue> args,
                    std::unordered_map<std::string, c10::IValue> kwargs,
                    const CallOptions& options) const {
  object_.warmUpMethod(name_, std::move(args), std::move(kwargs), options);
}

PendingCall Method::callAsync(std::vector<at::IValue> args,
                              std::unordered_map<std::string, c10::IValue> kwargs,
                              const CallOptions& options) const {
  return object_.callMethodAsync(name_, nullptr, std::move(args), std::move(kwargs), options);
}

PendingCall Method::callAsync(std::vector<at::IValue> args, CompletionQueue& queue, uint64_t tag,
                              std::unordered_map<std::string, c10::IValue> kwargs,
                              const CallOptions& options) const {
  return object_.callMethodAsync(name_, queue, tag, std::move(args), std::move(kwargs), options);
}

ResultStream Method::stream(std::vector<at::IValue> args,
                            std::unordered_map<std::string, c10::IValue> kwargs,
                            const CallOptions& options) const {
  return ResultStream(openStream(callOf(object_.impl(), name_, args, &kwargs, options), options));
}

}  // namespace isopool
