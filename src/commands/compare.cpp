// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/bytes.h"
#include "commands/outcome.h"
#include "commands/say.h"
#include "commands/terminal.h"
#include "commands/watched.h"
#include "config/files/load_config.h"
#include "cost/card.h"
#include "draw/axis.h"
#include "estimate/subject.h"
#include "io/file.h"
#include "machine/machine.h"
#include "model/families/families.h"
#include "run/inputs/paths.h"
#include "run/inputs/resolve.h"
#include "run/processes/processes.h"
#include "run/training/trial.h"
#include "what_if/comparison.h"
#include "what_if/grid.h"

namespace sluice::core {
namespace {

// "2xrtx3090" is two cards of one host.
Result<CardsOfHost> cards_of_host(const std::string& word) {
  CardsOfHost out;
  const char* const end = word.data() + word.size();
  const auto [rest, failed] = std::from_chars(word.data(), end, out.devices);
  const bool counts = failed == std::errc() && rest != end && *rest == 'x';
  if (counts && (out.devices < 1 || out.devices > int(Tier::kMostDevices)))
    return error("--machines {}: allowed are 1 to {} of a card", word, int(Tier::kMostDevices));
  if (!counts) out.devices = 0;
  auto card = card_named(counts ? std::string(rest + 1, end) : word);
  if (!card.ok()) return error_at("--machines", card.error());
  out.card = std::move(*card);
  return out;
}

Result<std::vector<CardsOfHost>> cards_of(const std::string& machines) {
  std::vector<CardsOfHost> out;
  SLUICE_ASSIGN(const std::vector<std::string> names, parse_words("--machines", machines));
  for (const std::string& name : names) {
    if (name == "all") {
      for (const Card& card : cards()) out.push_back({card});
      continue;
    }
    SLUICE_ASSIGN(CardsOfHost some, cards_of_host(name));
    out.push_back(std::move(some));
  }
  return out;
}

Result<double> price_in(std::string_view text, std::string_view whole) {
  double price = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), price);
  if (failed != std::errc() || end != text.data() + text.size() || !(price > 0)) {
    return error("--price {}: '{}' is no price; allowed are 2.5 for every machine, or rtx4090=0.4,h100=2.5",
                 whole, text);
  }
  return price;
}

// "2.5" for all of them, or "rtx4090=0.4,h100=2.5": by key.
Result<std::map<std::string, double>> prices_of(const std::string& text,
                                                std::span<const CardsOfHost> compared) {
  std::map<std::string, double> out;
  if (text.empty()) return out;
  SLUICE_ASSIGN(const std::vector<std::string> parts, parse_words("--price", text));
  for (const std::string& part : parts) {
    const size_t at = part.rfind('=');
    SLUICE_ASSIGN(const double price,
                  price_in(std::string_view(part).substr(at == part.npos ? 0 : at + 1), text));
    if (at == part.npos) {
      for (const auto& [card, devices] : compared) out.try_emplace(card.key, price);
      continue;
    }
    auto named = card_named(part.substr(0, at));
    if (!named.ok()) return error_at("--price", named.error());
    const auto same = [&](const CardsOfHost& c) { return c.card.key == named->key; };
    if (std::none_of(compared.begin(), compared.end(), same)) {
      std::vector<std::string> keys;
      for (const auto& [card, devices] : compared) keys.push_back(card.key);
      return error("--price {}: {} is not compared; compared are {}", text, part.substr(0, at),
                   fmt::join(keys, ", "));
    }
    out[named->key] = price;
  }
  return out;
}

// "1,2,4", of hosts with this network between them.
Result<Clusters> clusters_of(const std::string& hosts, const std::string& network) {
  constexpr int64_t kMost = 1024;
  Clusters out{{}, {}};
  SLUICE_ASSIGN(const std::vector<std::string> words, parse_words("--hosts", hosts));
  for (const std::string& word : words) {
    int64_t n = 0;
    const auto [end, failed] = std::from_chars(word.data(), word.data() + word.size(), n);
    if (failed != std::errc() || end != word.data() + word.size() || n < 1 || n > kMost)
      return error("--hosts {}: '{}': allowed are numbers from 1 to {}", hosts, word, kMost);
    out.hosts.push_back(n);
  }
  const auto rate = parse_rate(network);
  if (!rate.ok()) return error_at("--network", rate.error());
  out.share = [rate = *rate](Machine& machine, int n) {
    plan_to_share(machine, n, network_of_rate(machine, rate));
  };
  return out;
}

struct Comparing {
  RunConfig config;
  std::vector<CardsOfHost> cards;
  AskedCaps caps;
  Clusters clusters;
  ComparisonText text;
};

Result<Comparing> resolve(const CompareRequest& r) {
  Comparing c;
  const std::string preset = preset_meant_by(r.model), model = preset.empty() ? r.model : preset;
  SLUICE_ASSIGN(c.caps, parse_caps(r.device_mem, r.host_mem, true));
  RunConfig base = demo_config(model, r.seq_len, r.tokens_per_step);
  if (!c.caps.device.empty()) base.caps[kDevice] = c.caps.device.front();
  std::vector<std::string> settings{model_setting(model)};
  settings.insert(settings.end(), r.settings.begin(), r.settings.end());
  SLUICE_ASSIGN(c.config, load_config("", settings, std::move(base)));
  SLUICE_TRY(expect_read(r.settings, "sluice compare", keys_of_plans()));
  SLUICE_ASSIGN(const ModelSpec spec, resolve_model(c.config));
  for (const std::string& notice : spec.notices) say(stderr, "warning: {}\n", notice);
  SLUICE_ASSIGN(c.cards, cards_of(r.machines));
  for (auto& [card, devices] : c.cards) {
    SLUICE_ASSIGN(card, changed(std::move(card), c.config.machine));
  }
  SLUICE_ASSIGN(c.clusters, clusters_of(r.hosts, r.network));
  SLUICE_ASSIGN(c.text.usd_per_hour, prices_of(r.price, c.cards));
  if (!r.tokens.empty()) {
    SLUICE_ASSIGN(c.text.tokens, parse_amount("--tokens", r.tokens));
  }
  for (const auto& [option, path] : {std::pair{"--html", r.html}, {"--svg", r.svg}}) {
    if (!path.empty()) SLUICE_TRY(check_output(option, path));
  }
  std::vector<std::string> hosts;
  for (const int64_t cap : c.caps.host) hosts.push_back(cap_text(cap));
  const bool capped = c.caps.host != std::vector<int64_t>{kUnlimited};
  c.text.title = fmt::format(
      "{}: sequences of {}, {} tokens a step, {}", model, grouped(double(c.config.train.seq_len), 0),
      grouped(double(c.config.train.tokens_per_step), 0),
      capped ? fmt::format("host memory {}", fmt::join(hosts, " or ")) : "no host cap");
  c.text.legend = {
      "The caps are each card's memory and the host's; leave the system some GiB of what a host has. \"off "
      "by\" is the mean distance of speeds planned for a card from measured or published ones; \"-\": none "
      "was compared (sluice machines)."};
  if (std::ranges::max(c.clusters.hosts) > 1) {
    c.text.legend.push_back(
        fmt::format("Several hosts: each trains on rows of its own, and their gradients are summed over a "
                    "network of {}, as "
                    "sluice simulate --hosts plans it; steps and speeds are of all, memory is of each.",
                    r.network));
  }
  if (c.text.tokens > 0) c.text.legend.push_back("Days and cost in all are for " + r.tokens + " tokens.");
  return c;
}

Result<Ending> run(const CompareRequest& r, Requests& asked) {
  SLUICE_ASSIGN(Comparing c, resolve(r));
  const auto study = [&](const StudyWatch& watch) {
    return compare_cards(c.config, c.cards, c.caps.host, watch, c.clusters);
  };
  const std::vector<ComparedCard> compared = watched("planning for cards", c.config, asked, study);
  const size_t all = c.cards.size() * c.clusters.hosts.size() * c.caps.host.size();
  if (compared.size() < all) c.text.legend.push_back(stopped_words(compared.size(), all));
  const Page page = page_of(compared, c.text);
  if (!r.html.empty()) SLUICE_TRY(write_file(r.html, to_html(page)));
  if (!r.svg.empty()) SLUICE_TRY(write_file(r.svg, render(page.sections.front().bars.front())));
  if (r.json) {
    say("{}", to_json(page));
  } else {
    show_text(to_text(page));
  }
  for (const std::string& path : {r.html, r.svg}) {
    if (!path.empty() && !r.json) say("\nsaved: {}", path);
  }
  if (!r.json && !(r.html.empty() && r.svg.empty())) say("\n");
  return compared.size() < all ? Ending::Interrupted : Ending::Done;
}

}  // namespace

Outcome compare(const CompareRequest& request, Requests& asked) {
  return outcome(run(request, asked));
}

}  // namespace sluice::core
