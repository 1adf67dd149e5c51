// SPDX-License-Identifier: BSD-3-Clause
#include "cli/metrics/metric_family.h"

#include <array>
#include <cstdio>

#include "base/utf8.h"

namespace isopool::cli {

namespace {

constexpr size_t kMostCharacters = 128;
constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD
constexpr uint64_t kThousand = 1000;
constexpr uint64_t kMillion = 1'000'000;

const char* nameOf(MetricFamily::Type type) {
  switch (type) {
    case MetricFamily::Type::kCounter:
      return "counter";
    case MetricFamily::Type::kGauge:
      return "gauge";
    case MetricFamily::Type::kHistogram:
      return "histogram";
  }
  return "untyped";
}

// Exact, unlike a double: counts of bytes and calls may exceed 2^53.
std::string decimal(uint64_t whole, uint64_t millionths) {
  whole += millionths / kMillion;
  std::string text = std::to_string(whole);
  const auto fraction = static_cast<unsigned>(millionths % kMillion);
  if (fraction == 0) return text;
  std::array<char, 12> digits{};
  std::snprintf(digits.data(), digits.size(), ".%06u", fraction);
  text += digits.data();
  while (text.back() == '0') text.pop_back();
  return text;
}

std::string textOf(const Labels& labels) {
  if (labels.empty()) return "";
  std::string text = "{";
  for (const auto& [name, value] : labels) {
    if (text.size() > 1) text += ',';
    text.append(name).append("=\"").append(labelText(value)).append("\"");
  }
  return text += '}';
}

}  // namespace

MetricFamily::MetricFamily(std::string name, Type type, std::string help)
    : name_(std::move(name)), type_(type), help_(std::move(help)) {}

void MetricFamily::add(const std::string& suffix, const Labels& labels, Value value) {
  const std::string key = name_ + suffix + textOf(labels);
  const auto [found, isNew] = series_.try_emplace(key);
  if (isNew) order_.push_back(key);
  found->second.whole += value.whole;
  found->second.millionths += value.millionths;
}

void MetricFamily::add(const Labels& labels, uint64_t value) {
  add("", labels, {.whole = value, .millionths = 0});
}

void MetricFamily::addMilliseconds(const Labels& labels, uint64_t value) {
  add("", labels, {.whole = value / kThousand, .millionths = value % kThousand * kThousand});
}

void MetricFamily::addDurations(const Labels& labels,
                                const std::vector<uint64_t>& boundsMicroseconds,
                                const std::vector<uint64_t>& counts, uint64_t sumMicroseconds) {
  uint64_t upTo = 0;
  for (size_t bucket = 0; bucket < counts.size(); ++bucket) {
    upTo += counts[bucket];
    const bool isLast = bucket + 1 == counts.size() || bucket >= boundsMicroseconds.size();
    Labels withBound = labels;
    withBound.emplace_back("le", isLast ? "+Inf" : decimal(0, boundsMicroseconds[bucket]));
    if (isLast) {
      for (size_t rest = bucket + 1; rest < counts.size(); ++rest) upTo += counts[rest];
    }
    add("_bucket", withBound, {.whole = upTo, .millionths = 0});
    if (isLast) break;
  }
  add("_sum", labels,
      {.whole = sumMicroseconds / kMillion, .millionths = sumMicroseconds % kMillion});
  add("_count", labels, {.whole = upTo, .millionths = 0});
}

std::string MetricFamily::text() const {
  if (order_.empty()) return "";
  std::string text =
      "# HELP " + name_ + " " + help_ + "\n# TYPE " + name_ + " " + nameOf(type_) + "\n";
  for (const std::string& each : order_) {
    const Value& value = series_.at(each);
    text += each + " " + decimal(value.whole, value.millionths) + "\n";
  }
  return text;
}

std::string labelText(std::string_view value) {
  std::string text;
  for (size_t characters = 0; !value.empty() && characters < kMostCharacters; ++characters) {
    const base::Character first = base::firstCharacter(value);
    const std::string_view character = value.substr(0, first.bytes);
    if (character == "\n") {
      text += "\\n";
    } else if (!first.valid || base::isControlCharacter(first.code)) {
      text += kReplacement;
    } else {
      if (character == "\\" || character == "\"") text += '\\';
      text += character;
    }
    value.remove_prefix(character.size());
  }
  return text;
}

}  // namespace isopool::cli
