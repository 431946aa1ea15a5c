// SPDX-License-Identifier: Apache-2.0
#include "what_if/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "draw/axis.h"
#include "run/inputs/resolve.h"
#include "run/prepare/checks.h"
#include "setup/card_cap.h"
#include "what_if/grid.h"

namespace sluice::core {
namespace {

void plan_for(ComparedCard& cell, RunConfig config, const Clusters& clusters, const StudyWatch& watch) {
  if (!cell.card.can_be_planned()) {
    cell.missing = "rates that steps of Sluice reach there: nobody knows them";
    cell.is_known = true;
    return;
  }
  const auto attempt = [&]() -> Status {
    if (cell.wanted > 0) config = on_devices(std::move(config), cell.wanted);
    SLUICE_ASSIGN(Machine machine, simulated_machine(config, cell.card));
    cell.devices = machine.devices();
    if (cell.hosts > 1) clusters.share(machine, int(cell.hosts));
    config = under(std::move(config), cell.caps);
    SLUICE_ASSIGN(const ModelSpec model, resolve_model(config));
    SLUICE_TRY(check_early(config, machine, model));
    SLUICE_ASSIGN(const CapsOnMachine on_machine, caps_on(config, machine));
    cell.caps = on_machine.caps;
    SLUICE_ASSIGN(cell.found, outlook(std::move(config), machine, watch));
    if (cell.found.refusal) cell.missing = missing_memory(*cell.found.refusal);
    return {};
  };
  const Status status = attempt();
  if (!status.ok()) cell.missing = status.message();
  cell.is_known = status.ok() || status.error().kind != ErrorKind::Cancelled;
}

void take_plans_for_less(std::vector<ComparedCard>& cells, size_t host_caps) {
  for (size_t i = 1; i < cells.size(); ++i) {
    if (i % host_caps == 0) continue;  // the first of its card and number of hosts
    const ComparedCard& less = cells[i - 1];
    ComparedCard& more = cells[i];
    if (!less.is_known || !more.is_known || !less.trains()) continue;
    if (more.trains() && more.found.speed.tokens_per_s >= less.found.speed.tokens_per_s) continue;
    more.missing.clear();
    more.found = less.found;
    more.planned_for_host = less.planned_for_host == kUnlimited ? less.caps[kHost] : less.planned_for_host;
  }
}

std::string name_of(const ComparedCard& c, bool with_host) {
  return with_host ? fmt::format("{}, host {}", c.name(), cap_text(c.caps[kHost])) : c.name();
}

// Its speed in words, or what is missing.
std::string speed_text(const ComparedCard& c) {
  if (!c.trains()) return c.missing;
  return fmt::format("{} tokens/s, MFU {:.1f} %; {}", grouped(c.found.speed.tokens_per_s, 0),
                     100 * c.found.speed.mfu, c.found.binds);
}

bool differ_in_host(std::span<const ComparedCard> compared) {
  return std::any_of(compared.begin(), compared.end(),
                     [&](const ComparedCard& c) { return c.caps[kHost] != compared.front().caps[kHost]; });
}

std::optional<double> price_of(const ComparedCard& c, const ComparisonText& text) {
  const auto it = text.usd_per_hour.find(c.card.key);
  return it == text.usd_per_hour.end() ? std::nullopt : std::optional(double(c.hosts) * it->second);
}

Table trained(std::span<const ComparedCard> compared, const ComparisonText& text) {
  Table t{.key = "cards", .title = "Cards that train it", .row_title = "card"};
  t.note_key = "binds", t.note_title = "what binds";
  // Speed first: a phone shows no more than two or three columns at once.
  t.columns = {{"tokens_per_s", "tokens/s", Form::Count},
               {"mfu", "MFU", Form::Share},
               {"off_by", "off by", Form::Share},
               {"step_s", "step", Form::Seconds},
               {"memory_bytes", "device cap", Form::Memory},
               {"device_bytes", "held there", Form::Memory},
               {"host_bytes", "on the host", Form::Memory}};
  if (!text.usd_per_hour.empty()) {
    t.columns.push_back({"usd_per_hour", "an hour", Form::Usd});
    t.columns.push_back({"usd_per_billion", "1 B tokens", Form::Usd});
  }
  if (text.tokens > 0) t.columns.push_back({"days", "days", Form::Number});
  if (text.tokens > 0 && !text.usd_per_hour.empty()) t.columns.push_back({"usd", "in all", Form::Usd});
  const bool with_host = differ_in_host(compared);
  for (const ComparedCard& c : compared) {
    if (!c.trains()) continue;
    const double speed = c.found.speed.tokens_per_s;
    const std::optional<OffBy> off = off_by(c.card);
    Row row{.name = name_of(c, with_host),
            .values = {speed, c.found.speed.mfu, off ? std::optional(off->mean) : std::nullopt,
                       c.found.step_ns / 1e9, double(c.caps[kDevice]), double(fullest_device(c.found.bytes)),
                       double(c.found.bytes[kHost])},
            .note = c.found.binds};
    const std::optional<double> price = price_of(c, text);
    const auto cost = [&](double tokens) -> std::optional<double> {
      if (!price) return std::nullopt;
      return *price * tokens / speed / 3600;
    };
    if (!text.usd_per_hour.empty()) row.values.insert(row.values.end(), {price, cost(1e9)});
    if (text.tokens > 0) row.values.push_back(text.tokens / speed / 86400);
    if (text.tokens > 0 && !text.usd_per_hour.empty()) row.values.push_back(cost(text.tokens));
    if (c.planned_for_host != kUnlimited) {
      row.note += fmt::format("; by the plan for host {}", cap_text(c.planned_for_host));
    }
    t.rows.push_back(std::move(row));
  }
  return t;
}

Table refused(std::span<const ComparedCard> compared) {
  Table t{.key = "cannot", .title = "Cards that do not", .row_title = "card"};
  t.columns = {{"memory_bytes", "memory", Form::Memory}};
  t.note_key = "missing", t.note_title = "what is missing";
  const bool with_host = differ_in_host(compared);
  for (const ComparedCard& c : compared) {
    // Values that no memory changes are shown once.
    const std::string name = name_of(c, with_host && c.card.can_be_planned());
    if (c.trains() || (!t.rows.empty() && t.rows.back().name == name)) continue;
    t.rows.push_back({name, {double(c.card.memory_bytes)}, c.missing});
  }
  return t;
}

}  // namespace

std::vector<ComparedCard> compare_cards(const RunConfig& config, std::span<const CardsOfHost> cards,
                                        std::span<const int64_t> host_caps, const StudyWatch& watch,
                                        const Clusters& clusters) {
  std::vector<ComparedCard> cells;
  for (const auto& [card, devices] : cards) {
    for (const int64_t hosts : clusters.hosts) {
      for (const int64_t host_cap : host_caps) {
        cells.push_back({card, config.caps});
        cells.back().caps[kHost] = host_cap;
        cells.back().hosts = hosts;
        cells.back().wanted = devices;
        cells.back().devices = size_t(std::max(1, devices));
      }
    }
  }
  std::mutex mutex;
  int64_t done = 0;
  const auto count = int64_t(cells.size());
  watch.say("planning for cards", 0, count);
  for_each_parallel(count, search_threads(), [&](int64_t i) {
    ComparedCard& cell = cells[size_t(i)];
    if (watch.stop.stop_requested()) return;
    plan_for(cell, config, clusters, watch);
    if (!cell.is_known) return;
    const std::lock_guard lock(mutex);
    watch.say("planning for cards", ++done, count);
    if (cell.card.can_be_planned())
      watch.row(fmt::format("{}: {}", name_of(cell, host_caps.size() > 1), speed_text(cell)));
  });
  take_plans_for_less(cells, host_caps.size());
  std::erase_if(cells, [](const ComparedCard& cell) { return !cell.is_known; });
  return cells;
}

Page page_of(std::span<const ComparedCard> compared, const ComparisonText& text) {
  Page page{.title = text.title, .legend = text.legend};
  Section s{.key = "comparison", .title = "Comparison"};
  Bars bars{.title = "tokens/s", .subtitle = text.title};
  const bool with_host = differ_in_host(compared);
  for (const ComparedCard& c : compared) {
    Bar bar{.name = name_of(c, with_host && c.card.can_be_planned()), .label = c.missing};
    if (c.trains()) {
      bar.value = c.found.speed.tokens_per_s;
      bar.label =
          fmt::format("{}, MFU {:.1f} %; {}", grouped(bar.value, 0), 100 * c.found.speed.mfu, c.found.binds);
    }
    if (bars.bars.empty() || bars.bars.back().name != bar.name) bars.bars.push_back(std::move(bar));
  }
  for (Table table : {trained(compared, text), refused(compared)}) {
    if (!table.rows.empty()) s.tables.push_back(std::move(table));
  }
  s.bars.push_back(std::move(bars));
  page.sections.push_back(std::move(s));
  return page;
}

}  // namespace sluice::core
