// SPDX-License-Identifier: Apache-2.0
#include "bench/links.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/cell.h"
#include "host/host_memory.h"
#include "measure/link_runs.h"

namespace sluice::core {
namespace {

// Every lane reads and writes bytes of its own. Those on the host are their device's.
class LinkArenas {
 public:
  LinkArenas(const LaneTable& lanes, int64_t bytes, int64_t places) {
    for (const Lane lane : lanes) {
      const LaneEnds& ends = lanes[lane];
      if (ends.computes()) continue;
      const Copy first{{ends.from, arenas_[ends.from]}, {ends.to, arenas_[ends.to]}, bytes};
      const LinkCopy copy{lane, first, places, bytes};
      for (const Tier tier : {ends.from, ends.to}) arenas_[tier] += tier == kHost ? places * bytes : bytes;
      if (ends.from == kHost) parts_.push_back({copy.copy.from.offset, arenas_[kHost], ends.to});
      if (ends.to == kHost) parts_.push_back({copy.copy.to.offset, arenas_[kHost], ends.from});
      copies_.push_back(copy);
    }
  }

  std::span<const LinkCopy> copies() const { return copies_; }

  // Pages take memory once they are written.
  Status reserve(Backend& backend) const {
    backend.set_host_parts(parts_);
    SLUICE_TRY(backend.reserve(arenas_));
    for (const Tier tier : arenas_.tiers()) {
      if (arenas_[tier] > 0) SLUICE_TRY(backend.clear({tier, 0}, arenas_[tier]));
    }
    return {};
  }

 private:
  BytesByTier arenas_;
  std::vector<LinkCopy> copies_;
  std::vector<HostPart> parts_;
};

std::string name_of(const Backend& backend, const LaneEnds& ends) {
  return fmt::format("{} to {}", name_of(backend, ends.from), name_of(backend, ends.to));
}

// That take about `ns` when one takes `copy_ns`, but no more than a step has.
uint32_t copies_within(double ns, double copy_ns) {
  return uint32_t(std::clamp(ns / copy_ns, 8.0, 400.0));
}

Status check(const std::atomic<bool>& interrupted) {
  return interrupted ? Status(error(ErrorKind::Cancelled, "interrupted")) : Status();
}

}  // namespace

RateSpread spread_of(std::span<const Interval> copies, int64_t bytes) {
  std::vector<double> rates;
  for (const Interval& i : copies)
    rates.push_back(1e9 * double(bytes) / std::max(1.0, i.end_ns - i.start_ns));
  const auto [least, most] = std::ranges::minmax_element(rates);
  return {int64_t(rates.size()), 1e9 * double(bytes) / mean_ns(copies), measured_of(rates).deviation, *least,
          *most};
}

Result<LinkBench> run_links(const Machine& machine, const LinkOptions& options,
                            const std::atomic<bool>& interrupted) {
  SLUICE_ASSIGN(const std::unique_ptr<Backend> backend, machine.make());
  LinkBench out;
  BytesByTier most(available_bytes());
  for (size_t d = 0; d < machine.devices(); ++d) {
    int64_t& room = most[Tier::device(d)];
    if (!machine.traits().shares_cores) room = machine.device_total_bytes;
  }
  out.bytes = options.bytes > 0 ? options.bytes : link_copy_bytes(most, machine.devices());
  const int64_t places =
      machine.traits().shares_cores ? 1 : link_places(most[kHost], machine.devices(), out.bytes);
  const LinkArenas arenas(backend->lanes(), out.bytes, places);
  SLUICE_TRY(arenas.reserve(*backend));
  uint32_t most_copies = 0;
  for (const LinkCopy& copy : arenas.copies()) {
    SLUICE_TRY(check(interrupted));
    SLUICE_ASSIGN(const auto trial, run_copies(*backend, {&copy, 1}, 2));
    const uint32_t copies = copies_within(options.ns, mean_ns(std::span(trial[copy.lane]).last(1)));
    most_copies = std::max(most_copies, copies);
    SLUICE_ASSIGN(const auto runs, run_copies(*backend, {&copy, 1}, 1 + copies));
    const RateSpread alone = spread_of(std::span(runs[copy.lane]).subspan(1), out.bytes);
    out.links.push_back({name_of(*backend, backend->lanes()[copy.lane]), alone, {}});
  }
  SLUICE_TRY(check(interrupted));
  // Fast links end first: what counts is while all are at work.
  SLUICE_ASSIGN(auto runs, run_copies(*backend, arenas.copies(), 1 + most_copies));
  runs = while_all_work(runs);
  for (size_t i = 0; i < out.links.size(); ++i)
    out.links[i].all = spread_of(runs[arenas.copies()[i].lane], out.bytes);
  return out;
}

Page links_page(const LinkBench& bench) {
  Page page{.title = "Links",
            .legend = {fmt::format("Copies of {}, one after the other on each link and direction. Alone: "
                                   "nothing else is copied. All: every link of every device is at work, "
                                   "and those copies count that ran while all were.",
                                   to_text(double(bench.bytes), Form::Memory))}};
  Section section{.key = "links", .title = "Rates of links"};
  Table table{.key = "rates",
              .title = "Bytes per second, deviations and extremes of single copies",
              .row_title = "link"};
  table.columns = {{"alone_bytes_per_s", "alone", Form::BytesPerSecond},
                   {"alone_deviation", "±", Form::BytesPerSecond},
                   {"alone_least", "least", Form::BytesPerSecond},
                   {"alone_most", "most", Form::BytesPerSecond},
                   {"all_bytes_per_s", "all", Form::BytesPerSecond},
                   {"all_deviation", "±", Form::BytesPerSecond},
                   {"all_least", "least", Form::BytesPerSecond},
                   {"all_most", "most", Form::BytesPerSecond},
                   {"share", "of alone", Form::Share},
                   {"alone_copies", "copies", Form::Count},
                   {"all_copies", "of all", Form::Count}};
  for (const LinkResult& link : bench.links) {
    Row row{.name = link.name};
    for (const RateSpread& r : {link.alone, link.all})
      row.values.insert(row.values.end(), {r.mean, r.deviation, r.least, r.most});
    row.values.insert(row.values.end(),
                      {link.all.mean / link.alone.mean, double(link.alone.copies), double(link.all.copies)});
    table.rows.push_back(std::move(row));
  }
  section.tables.push_back(std::move(table));
  page.sections.push_back(std::move(section));
  return page;
}

}  // namespace sluice::core
