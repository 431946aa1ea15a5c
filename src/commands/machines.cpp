// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "commands/outcome.h"
#include "commands/say.h"
#include "commands/terminal.h"
#include "cost/card.h"
#include "machine/machine.h"

namespace sluice::core {
namespace {

std::string tera(double rate) {
  return rate > 0 ? fmt::format("{:.4g}", rate / 1e12) : "-";
}

nlohmann::ordered_json json_of(const Card& c) {
  nlohmann::ordered_json reached;
  for (const auto& [format, rates] : {std::pair{"bf16", c.bf16}, {"f32", c.f32}}) {
    if (!rates.known()) continue;
    reached[format] = {{"products", rates.products},
                       {"attention_forward", rates.attention_forward},
                       {"attention_backward", rates.attention_backward}};
  }
  nlohmann::ordered_json peak{{"source", c.peak_source}};
  for (const auto& [format, rate] : {std::pair{"bf16", c.peak.bf16},
                                     {"f16", c.peak.f16},
                                     {"f8", c.peak.f8},
                                     {"tf32", c.peak.tf32},
                                     {"f32", c.peak.f32}}) {
    if (rate > 0) peak[format] = rate;
  }
  nlohmann::ordered_json off_by_json;  // null: no speed planned for it was compared
  if (const std::optional<OffBy> off = off_by(c)) {
    off_by_json = {{"mean", off->mean},
                   {"worst", off->worst},
                   {"speeds", off->speeds},
                   {"of", off->measured ? "measured" : "published"}};
  }
  return {{"key", c.key},
          {"name", c.name},
          {"memory_bytes", c.memory_bytes},
          {"memory_bytes_per_s", c.memory_rate},
          {"peak_flops", std::move(peak)},
          {"reached_flops", std::move(reached)},
          {"reached_source", c.reached_source},
          {"load_bytes_per_s", c.load_rate},
          {"store_bytes_per_s", c.store_rate},
          {"link_source", c.link_source},
          {"planned", c.can_be_planned()},
          {"compared", c.compared},
          {"off_by", std::move(off_by_json)}};
}

std::string table_of(std::span<const Card> all) {
  std::string out =
      "dense products with f32 sums, TFLOP/s, by the format of what is multiplied; memory by the data sheet, "
      "and "
      "links each way, both busy, in GB/s; off by: how far planned speeds were from measured or published "
      "ones, "
      "in the mean\n\n";
  out += fmt::format("{:<14}  {:<21}  {:>6}  {:>6}  {:>6}  {:>6}  {:>6}  {:>6}  {:>6}  {:>6}  {:<21}  {}\n",
                     "--machine", "card", "memory", "f8", "bf16", "f16", "tf32", "f32", "link", "off by",
                     "rates of products", "what steps reach of them");
  for (const Card& c : all) {
    const std::string reached = !c.can_be_planned() ? "unknown: arithmetic only" : c.reached_source;
    const std::string link = c.load_rate > 0 ? fmt::format("{:.4g}", c.load_rate / 1e9) : "-";
    const std::optional<OffBy> off = off_by(c);
    out += fmt::format(
        "{:<14}  {:<21}  {:>6.0f}  {:>6}  {:>6}  {:>6}  {:>6}  {:>6}  {:>6}  {:>6}  {:<21}  {}\n", c.key,
        c.name, c.memory_rate / 1e9, tera(c.peak.f8), tera(c.peak.bf16), tera(c.peak.f16), tera(c.peak.tf32),
        tera(c.peak.f32), link, off ? fmt::format("{:.1f} %", 100 * off->mean) : "-", c.peak_source, reached);
  }
  return out;
}

Status show(const std::string& name, bool json) {
  if (!name.empty()) {
    SLUICE_ASSIGN(const Card card, card_named(name));
    say_result(json ? json_of(card).dump(2) + "\n" : to_toml(card));
    return {};
  }
  if (!json) {
    show_text(table_of(cards()));
    return {};
  }
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Card& card : cards()) all.push_back(json_of(card));
  say_result(all.dump(2) + "\n");
  return {};
}

}  // namespace

Outcome machines(const std::string& name, bool json) {
  return outcome(show(name, json));
}

}  // namespace sluice::core
