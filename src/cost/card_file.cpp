// SPDX-License-Identifier: Apache-2.0
// Machine files.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <type_traits>
#include <utility>

#include "base/nearest.h"
#include "cost/card.h"
#include "text/toml.h"

namespace sluice::core {
namespace {

// Calls f(key, field) for every key of a file. A field's type says what its value is: text, a size (int64_t),
// a compute capability, or a number above 0. A size or number of 0 is not known, and not written.
template <class F>
void visit_keys(Card& c, F&& f) {
  f("name", c.name), f("multiprocessors", c.multiprocessors), f("compute_capability", c.compute_capability);
  f("memory.size", c.memory_bytes), f("memory.bytes_per_s", c.memory_rate),
      f("memory.reached_bytes_per_s", c.memory_reached);
  f("peak_flops.source", c.peak_source), f("peak_flops.bf16", c.peak.bf16), f("peak_flops.f16", c.peak.f16),
      f("peak_flops.f8", c.peak.f8), f("peak_flops.tf32", c.peak.tf32), f("peak_flops.f32", c.peak.f32);
  f("reached_flops.source", c.reached_source);
  f("reached_flops.bf16.products", c.bf16.products),
      f("reached_flops.bf16.attention_forward", c.bf16.attention_forward),
      f("reached_flops.bf16.attention_backward", c.bf16.attention_backward);
  f("reached_flops.f32.products", c.f32.products),
      f("reached_flops.f32.attention_forward", c.f32.attention_forward),
      f("reached_flops.f32.attention_backward", c.f32.attention_backward);
  f("links.source", c.link_source), f("links.load_bytes_per_s", c.load_rate),
      f("links.store_bytes_per_s", c.store_rate), f("links.host_bytes_per_s", c.host_rate),
      f("links.peer_bytes_per_s", c.peer_rate), f("links.disk_bytes_per_s", c.disk_rate),
      f("links.copy_slowdown", c.copy_slowdown);
  f("held.device", c.held_bytes[kDevice]), f("held.host", c.held_bytes[kHost]),
      f("held.host_per_pinned_gib", c.host_growth.per_arena_gib),
      f("held.host_per_action", c.host_growth.per_action);
}

Status read(const std::string& text, std::string& field) {
  field = text;
  return {};
}
Status read(const std::string& text, int64_t& field) {
  SLUICE_ASSIGN(field, parse_bytes(text));
  return field == kUnlimited ? error("'{}' is not a size", text) : Status();
}
// 8.9; a whole number is a major one.
Status read(const std::string& text, ComputeCapability& field) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, problem] = std::from_chars(text.data(), end, value);
  const bool number = problem == std::errc() && at == end && value >= 1 && value < 100;
  const int tenths = number ? int(std::lround(10 * value)) : 0;
  if (!number || std::abs(10 * value - tenths) > 1e-9)
    return error("'{}': allowed are compute capabilities, such as 8.9", text);
  field = {tenths / 10, tenths % 10};
  return {};
}
template <class Number>
Status read(const std::string& text, Number& field) {
  constexpr double kMost = std::is_same_v<Number, int> ? 1e6 : 1e24;
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, problem] = std::from_chars(text.data(), end, value);
  const bool number = problem == std::errc() && at == end;
  if (!number || !(value > 0 && value <= kMost))
    return error("'{}': allowed are numbers from 0 to {:g}", text, kMost);
  field = Number(value);
  return {};
}

std::string written(const std::string& text) {
  return text.empty() ? "" : toml_text(text);
}
std::string written(int64_t size) {
  return size > 0 ? toml_text(exact_bytes(size)) : "";
}
std::string written(ComputeCapability c) {
  return c.known() ? c.to_text() : "";
}
template <class Number>
std::string written(Number number) {
  return number > 0 ? fmt::format("{}", double(number)) : "";
}

// Checks that rates are complete, and that plans have the other values they need.
Status check(const Card& card) {
  if (card.memory_bytes <= kGiB) {
    return error("memory.size: allowed are sizes above 1GiB, which a driver keeps; such as \"24564MiB\"");
  }
  for (const auto& [format, rates] : {std::pair{"bf16", card.bf16}, {"f32", card.f32}}) {
    const std::pair<const char*, double> parts[] = {{"products", rates.products},
                                                    {"attention_forward", rates.attention_forward},
                                                    {"attention_backward", rates.attention_backward}};
    const auto known =
        std::count_if(std::begin(parts), std::end(parts), [](const auto& p) { return p.second > 0; });
    for (const auto& [name, rate] : parts) {
      if (known > 0 && rate == 0)
        return error("reached_flops.{}.{} is missing: rates of a format come together", format, name);
    }
  }
  if (!card.can_be_planned()) return {};
  const std::pair<const char*, double> needed[] = {{"memory.reached_bytes_per_s", card.memory_reached},
                                                   {"links.load_bytes_per_s", card.load_rate},
                                                   {"links.store_bytes_per_s", card.store_rate}};
  for (const auto& [name, rate] : needed) {
    if (rate <= 0) return error("{} is missing: plans need it", name);
  }
  return {};
}

}  // namespace

std::string to_toml(const Card& card) {
  std::string out, table;
  Card copy = card;
  visit_keys(copy, [&](std::string_view key, const auto& field) {
    const std::string value = written(field);
    if (value.empty()) return;
    const size_t dot = key.rfind('.');
    const std::string_view now = dot == key.npos ? "" : key.substr(0, dot);
    if (now != table) {
      out += fmt::format("\n[{}]\n", now);
      table = now;
    }
    out += fmt::format("{} = {}\n", key.substr(dot == key.npos ? 0 : dot + 1), value);
  });
  return out;
}

Result<Card> changed(Card card, std::span<const std::pair<std::string, std::string>> settings) {
  for (const auto& [key, value] : settings) {
    std::vector<std::string_view> keys;
    Status status;
    bool known = false;
    visit_keys(card, [&, &key = key, &value = value](std::string_view name, auto& field) {
      keys.push_back(name);
      if (name != key) return;
      known = true;
      status = read(value, field);
    });
    if (!known) return error("machine.{}: a machine has no such key; it has {}", key, fmt::join(keys, ", "));
    if (!status.ok()) return error("machine.{} = {}", key, status.message());
    if (key != "name") card.name += fmt::format(", {} {}", key, value);
    card.compared = false;
  }
  if (settings.empty()) return card;
  if (const Status complete = check(card); !complete.ok()) return error("machine.{}", complete.message());
  return card;
}

Result<Card> parse_card(std::string_view text, const std::string& name) {
  SLUICE_ASSIGN(Settings settings, parse_toml(text, name));
  Card card;
  card.key = card.name = std::filesystem::path(name).stem().string();
  card.held_bytes = {{kDevice, kHeldByDevice}, {kHost, kHeldByHost}};
  card.host_growth = kHostGrowthOnGpu;
  std::vector<std::string> keys;
  Status status;
  visit_keys(card, [&](std::string_view key, auto& field) {
    keys.emplace_back(key);
    const auto setting = settings.find(key);
    if (!status.ok() || setting == settings.end()) return;
    const std::string place = fmt::format("{}:{}: {}", name, setting->second.line, key);
    if (setting->second.values.size() != 1) {
      status = error("{}: takes one value", place);
    } else if (const Status taken = read(setting->second.values.front(), field); !taken.ok()) {
      status = error("{} = {}", place, taken.message());
    }
    settings.erase(setting);
  });
  SLUICE_TRY(std::move(status));
  for (const auto& [key, setting] : settings) {
    const std::string near = nearest(key, keys);
    return error("{}:{}: a machine has no key '{}'{}", name, setting.line, key,
                 similar(key, near) ? fmt::format("; did you mean '{}'?", near)
                                    : fmt::format("; allowed are {}", fmt::join(keys, ", ")));
  }
  if (const Status complete = check(card); !complete.ok()) return error_at(name, complete.error());
  return card;
}

}  // namespace sluice::core
