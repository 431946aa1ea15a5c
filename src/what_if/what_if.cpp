// SPDX-License-Identifier: Apache-2.0
#include "what_if/what_if.h"

#include <fmt/format.h>

#include <bit>
#include <mutex>
#include <optional>
#include <string>

#include "what_if/grid.h"

namespace sluice::core {
namespace {

struct Change {
  std::string name;
  RunConfig config;
  std::optional<Machine> machine = {};  // another one than the plan's
  bool is_beyond_card = false;          // it needs no plan to say so
};

// A quarter of the cap, as a power of two.
int64_t some_more(int64_t cap_bytes) {
  return int64_t(std::bit_floor(uint64_t(std::max<int64_t>(cap_bytes / 4, 1))));
}

std::vector<Change> changes_of(const Prepared& p) {
  std::vector<Change> out;
  for (const Tier tier : {kDevice, kHost}) {  // the first device's cap is that of all
    if (p.config.caps[tier] == kUnlimited) continue;
    const int64_t more = some_more(p.config.caps[tier]);
    BytesByTier caps = p.config.caps;
    caps[tier] += more;
    std::string name = fmt::format("+{} {}", cap_text(more), name_of(tier));
    const bool beyond = tier == kDevice && p.machine.card && caps[tier] > p.machine.card->memory_bytes;
    if (beyond) name += fmt::format(" (card: {})", format_bytes(p.machine.card->memory_bytes));
    out.push_back({std::move(name), under(p.config, caps), {}, beyond});
  }
  const int64_t device_cap = p.config.caps[kDevice];
  const bool capped = device_cap != kUnlimited;
  BytesByTier half = p.config.caps;
  half[kDevice] = capped ? device_cap / 2 : readable_cap(fullest_device(outlook_of(p).bytes) / 2);
  out.push_back({fmt::format("half the device {} ({})", capped ? "cap" : "memory", cap_text(half[kDevice])),
                 under(p.config, half)});
  if (const size_t devices = p.machine.devices(); p.machine.card && devices < Tier::kMostDevices) {
    RunConfig one_more = on_devices(p.config, int(devices) + 1);
    auto machine = simulated_machine(one_more, *p.machine.card);
    if (machine.ok()) {
      out.push_back(
          {fmt::format("one more device ({})", devices + 1), std::move(one_more), std::move(*machine)});
    }
  }
  const auto& train = p.config.train;
  out.push_back({"2x tokens per step", in_rows(p.config, train.seq_len, 2 * train.tokens_per_step)});
  return out;
}

}  // namespace

std::vector<WhatIf> what_ifs(const Prepared& p, const StudyWatch& watch) {
  const std::vector<Change> changes = changes_of(p);
  const double base = outlook_of(p).speed.tokens_per_s;
  std::vector<std::optional<WhatIf>> found(changes.size());
  const auto count = int64_t(changes.size());
  std::mutex mutex;
  int64_t done = 0;
  watch.say("planning what-ifs", 0, count);
  for_each_parallel(count, planning_threads(p.machine), [&](int64_t i) {
    if (watch.stop.stop_requested()) return;
    const Change& change = changes[size_t(i)];
    // From the same knowledge of the machine as the plan itself, or the difference would be that knowledge's.
    const auto plan = [&] {
      return outlook(change.config, change.machine ? *change.machine : p.unmeasured_machine, watch);
    };
    if (change.is_beyond_card) {
      found[size_t(i)] = WhatIf{change.name, 0};
    } else if (const auto o = plan(); o.ok()) {
      found[size_t(i)] = WhatIf{change.name, o->fits() ? o->speed.tokens_per_s / base : 0};
    }
    const std::lock_guard lock(mutex);
    watch.say("planning what-ifs", ++done, count);
    if (const auto& w = found[size_t(i)]; w && w->speedup > 0)
      watch.row(fmt::format("{}: {:.0f} tokens/s", w->change, w->speedup * base));
  });
  std::vector<WhatIf> out;
  for (auto& w : found) {
    if (w) out.push_back(std::move(*w));
  }
  return out;
}

std::string price_of_exact(const Prepared& p, const StudyWatch& watch) {
  if (!p.config.run.exact) return {};
  RunConfig free = not_exact(p.config);
  const bool here = p.machine.traits().runs_models;
  const auto machine = here ? resolve_machine(free, "") : Result<Machine>(p.unmeasured_machine);
  const auto without =
      machine.ok() ? outlook(std::move(free), *machine, watch) : Result<Outlook>(machine.error());
  if (!without.ok()) {
    return without.error().kind == ErrorKind::Cancelled
               ? std::string()
               : fmt::format("run.exact = true: its price is not known: {}", without.message());
  }
  if (!without->fits()) return "run.exact = true: without it nothing fits these caps";
  const double step_ns = p.stages.main.plan.makespan_ns;
  return fmt::format("run.exact = true: a step takes {:.3g} s, {:.2f} times the {:.3g} s without it{}",
                     step_ns / 1e9, step_ns / without->step_ns, without->step_ns / 1e9,
                     here ? "" : ", if its kernels are as fast as others; they are measured where they run");
}

bool what_ifs_are_cheap(const Prepared& p) {
  // Four searches of tens of milliseconds, for which the ops of as many shapes may be measured.
  constexpr size_t kSmall = 400;
  const BackendTraits& traits = p.machine.traits();
  const double measuring_ns = traits.runs_models ? 4 * traits.settle_ns : 0;
  return measuring_ns <= 5e9 && p.stages.main.model.program.tasks().size() <= kSmall;
}

}  // namespace sluice::core
