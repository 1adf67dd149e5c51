// SPDX-License-Identifier: BSD-3-Clause
// A service on isopool: several models, many connections, deadlines, figures, an orderly end.
//
// A client connects to the Unix socket and writes lines of JSON; each line gets a line:
//
//   {"model": "resnet", "input": 2}   ->  {"answer": [...]}, or {"error": "WorkerLost", ...}
//   {"model": "text_writer", ...}     ->  {"item": 97} for each item, then {"answer": [...]}
//   {"figures": true}                 ->  the statistics of the pool
#include <ATen/core/grad_mode.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <exception>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "examples/service/models.h"
#include "examples/service/server.h"
#include "isopool/isopool.h"

namespace {

using nlohmann::json;

struct Options {
  std::string folder;
  std::string socket;
  std::string python;
  size_t workers = 2;
};

json failure(const char* error, const std::string& text) {
  return {{"error", error}, {"text", text}};
}

/// Calls `serve`. An error becomes an answer that names its kind.
template <typename Serve>
json orFailure(Serve serve) {
  try {
    return serve();
  } catch (const isopool::DeadlineExceeded& error) {
    return failure("DeadlineExceeded", error.what());
  } catch (const isopool::WorkerLost& error) {
    return failure("WorkerLost", error.what());
  } catch (const isopool::SupervisorLost& error) {
    return failure("SupervisorLost", error.what());
  } catch (const isopool::PoolUnavailable& error) {
    return failure("PoolUnavailable", error.what());
  } catch (const isopool::RemoteError& error) {
    return failure("RemoteError", error.what());
  } catch (const json::exception& error) {
    return failure("BadRequest", error.what());
  } catch (const std::out_of_range&) {
    return failure("BadRequest", "there is no such model, or it has no such input");
  } catch (const std::exception& error) {
    return failure("Error", error.what());
  }
}

json figuresOf(const isopool::InterpreterManager& pool) {
  const isopool::PoolStatistics now = pool.statistics();
  json models = json::object();
  for (const isopool::ModelStatistics& model : now.models) {
    models[model.name] = {{"answered", model.answered},
                          {"failed", model.failed},
                          {"p50_ms", model.latency.percentile(50).count() / 1e6},
                          {"p99_ms", model.latency.percentile(99).count() / 1e6}};
  }
  size_t serving = 0;
  uint64_t lentBytes = 0;
  for (const isopool::WorkerStatistics& worker : now.workers) {
    serving += worker.state == isopool::WorkerStatistics::State::kServing ? 1 : 0;
    lentBytes += worker.outputBytesLent;
  }
  return {{"models", models},
          {"workers_serving", serving},
          {"workers_replaced", now.workersReplaced},
          {"calls_rerun", now.callsRerun},
          {"connected", now.connected},
          {"reconnects", now.reconnects},
          {"input_bytes", now.inputBytes},
          {"input_bytes_in_use", now.inputBytesInUse},
          {"result_bytes_lent", lentBytes}};
}

json handle(const isopool::InterpreterManager& pool, const service::Models& models,
            service::Conversation& conversation, const std::string& line,
            const std::function<void(const json&)>& send) {
  return orFailure([&]() -> json {
    const json request = json::parse(line);
    if (request.contains("figures")) return {{"figures", figuresOf(pool)}};
    const at::NoGradGuard noGrad;  // reaches the worker
    return {{"answer",
             models.answer(request.at("model").get<std::string>(),
                           request.at("input").get<size_t>(), conversation, [&](const json& item) {
                             send({{"item", item}});
                           })}};
  });
}

void serve(const Options& options) {
  isopool::PoolOptions poolOptions;
  poolOptions.workers = options.workers;
  poolOptions.programName = "example-service";
  poolOptions.python = options.python;
  poolOptions.spares = 1;
  poolOptions.logger = [](isopool::LogLevel level, std::string_view text) {
    if (level >= isopool::LogLevel::kWarning) std::cerr << "service: " << text << std::endl;
  };
  isopool::InterpreterManager pool(poolOptions);
  const service::Models models(pool, options.folder);

  service::Server server(options.socket, [&]() -> service::Server::HandleLine {
    auto conversation = std::make_shared<service::Conversation>();
    return [&, conversation](const std::string& line, const service::Server::Send& send) {
      // Texts of models may be anything; JSON is UTF-8.
      const auto sendJson = [&](const json& value) {
        send(value.dump(-1, ' ', false, json::error_handler_t::replace));
      };
      sendJson(handle(pool, models, *conversation, line, sendJson));
    };
  });
  std::cout << "serving " << models.names() << " at " << options.socket << std::endl;
  server.run();
  std::cout << "stopped: " << figuresOf(pool).dump() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Serves the models that package_models.py has made, at a Unix socket.");
  app.add_option("folder", options.folder, "made by package_models.py")->required();
  app.add_option("--socket", options.socket, "where clients connect")->required();
  app.add_option("--workers", options.workers, "calls at the same time")->capture_default_str();
  app.add_option("--python", options.python,
                 "the interpreter of the workers of a private pool, with the models' libraries");
  CLI11_PARSE(app, argc, argv);
  try {
    serve(options);
  } catch (const std::exception& error) {
    std::cerr << "service: " << error.what() << "\n";
    return 1;
  }
}
