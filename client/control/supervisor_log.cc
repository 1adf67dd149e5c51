// SPDX-License-Identifier: BSD-3-Clause
#include "client/control/supervisor_log.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace isopool::client {

namespace {

using base::Json;

constexpr int kPiecesAtOnce = 4;
constexpr size_t kLongestLine = 64u << 10;  // isopoold's have at most 4 KiB

std::string textIn(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_string() ? found->get<std::string>() : "";
}

std::optional<uint64_t> numberIn(const Json& line, const char* key) {
  const auto found = line.find(key);
  if (found == line.end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<uint64_t>();
}

LogLevel levelOf(const std::string& name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  return name == "error" ? LogLevel::kError : LogLevel::kWarning;
}

// "worker 2 (pid 4711, model resnet.pt:model): ".
std::string writerOf(const Json& line, const std::string& source) {
  if (source != "worker") return source + ": ";
  const std::string slot = textIn(line, "slot");
  const std::string model = textIn(line, "model");
  std::string who = slot == "spare" ? "spare worker" : slot.empty() ? "worker" : "worker " + slot;
  if (const auto pid = numberIn(line, "worker_pid")) {
    who += " (pid " + std::to_string(*pid) + (model.empty() ? "" : ", model " + model) + ")";
  }
  return who + ": ";
}

}  // namespace

SupervisorLog::Line parseLogLine(std::string_view line) {
  const Json parsed = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  SupervisorLog::Line result;
  if (!parsed.is_object() || !parsed.contains("message")) {
    return {LogLevel::kWarning, std::nullopt, "isopoold: " + std::string(line)};
  }
  result.level = levelOf(textIn(parsed, "level"));
  const std::string source = textIn(parsed, "source");
  result.text =
      (source.empty() ? "isopoold: " : writerOf(parsed, source)) + textIn(parsed, "message");
  if (const auto pool = numberIn(parsed, "pool")) result.pool = static_cast<uint32_t>(*pool);
  return result;
}

void SupervisorLog::read(const std::function<void(const Line&)>& take) {
  std::array<char, 65536> bytes;
  for (int piece = 0; piece < kPiecesAtOnce && pipe_.valid(); ++piece) {
    const ssize_t got = ::read(pipe_.get(), bytes.data(), bytes.size());
    if (got < 0) return;
    if (got == 0) pipe_.close();
    rest_.append(bytes.data(), static_cast<size_t>(got));
    size_t begin = 0;
    for (size_t end; (end = rest_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      take(parseLogLine(std::string_view(rest_).substr(begin, end - begin)));
    }
    rest_.erase(0, begin);
    if (!rest_.empty() && (got == 0 || rest_.size() > kLongestLine)) {
      take(parseLogLine(rest_));
      rest_.clear();
    }
  }
}

}  // namespace isopool::client
