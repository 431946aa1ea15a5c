// SPDX-License-Identifier: Apache-2.0
#include "what_if/planned.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

#include "estimate/counts.h"
#include "estimate/subject.h"
#include "plan/stalls.h"
#include "search/planner.h"
#include "trace/trace.h"
#include "what_if/grid.h"

namespace sluice::core {
namespace {

// The largest number up to `most` that fits; 0: none. What is smaller than one that fits fits; `known` does,
// or is 0. From one that fits `step` says how far to go: what is far too large takes long to refuse.
Result<int64_t> largest_that_fits(int64_t known, int64_t most, const std::function<int64_t(int64_t)>& step,
                                  const std::function<Result<bool>(int64_t)>& fits) {
  int64_t low = known, high = most + 1;
  while (low < most && high > most) {
    const int64_t next = std::min(low + step(low), most);
    SLUICE_ASSIGN(const bool fit, fits(next));
    (fit ? low : high) = next;
  }
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    SLUICE_ASSIGN(const bool fit, fits(middle));
    (fit ? low : high) = middle;
  }
  return low;
}

// Lengths that are tried are numbered from 1: multiples of 256 up to 2,048, then eight up to each double.
// Long ones are cut into 8 to 15 chunks, so that no search takes long.
constexpr int64_t kGrain = 256, kChunks = 8, kMostPlannedNumber = 96;
int64_t chunk_of(int64_t number) {
  return number <= kChunks ? kGrain : kGrain << (number / kChunks - 1);
}
int64_t length_of(int64_t number) {
  return chunk_of(number) * (number <= kChunks ? number : kChunks + number % kChunks);
}
static_assert(kGrain << (kMostPlannedNumber / kChunks - 1) == kMostPlannedTokens / kChunks);

// As scaled_to() needs them. What names layers by their numbers trains some of them otherwise.
bool are_alike(const ModelSpec& model) {
  const auto names_no_layer = [](const std::vector<std::string>& patterns) {
    return std::all_of(patterns.begin(), patterns.end(), [](const std::string& pattern) {
      return pattern.find_first_of("0123456789[?") == pattern.npos;
    });
  };
  const Adapters& a = model.adapters;
  std::vector<std::string> others;
  for (const auto* of : {&a.ranks, &a.alphas}) {
    for (const Adapters::Other& other : *of) others.push_back(other.pattern);
  }
  return std::all_of(model.layers.begin(), model.layers.end(),
                     [&](const LayerSpec& layer) { return layer == model.layers.front(); }) &&
         names_no_layer(model.freeze) && names_no_layer(a.targets) && names_no_layer(a.exclude) &&
         names_no_layer(a.whole) && names_no_layer(others);
}

void count_activations(const Prepared& p, PlannedCase& c) {
  const Stage& s = p.stages.main;
  for (int64_t r = 0; r < p.shape.rounds; ++r) {
    int64_t tokens = 0;
    for (int64_t chunk = 0; chunk < p.shape.chunks_in(r); ++chunk) tokens += p.shape.tokens_in(r, chunk);
    c.round_tokens = std::max(c.round_tokens, tokens);
  }
  const BatchShape sequence{p.shape.seq_len, 1};
  const Kept everything = count_training(p.model, sequence, p.numerics, *p.optimizer.optimizer).everything;
  c.everything_bytes = everything.bytes / sequence.tokens() * c.round_tokens;
  const MemoryHistory history = memory_history(s.model.program, s.plan, predicted_timeline(s.plan));
  for (const Tier tier : history.tiers()) {
    int64_t most = 0;
    for (const MemoryPoint& point : history[tier]) {
      most = std::max(most, point.bytes[size_t(ObjectKind::Activation)]);
    }
    (tier.is_device() ? c.device_activations : c.host_activations) += most;
  }
}

class CaseSearch {
 public:
  CaseSearch(const PlannedModel& asked, const Machine& machine, const StudyWatch& watch)
      : asked_(asked), machine_(machine), watch_(watch) {}

  // `less` is the case of less host memory, if there is one: what fits there fits.
  Result<PlannedCase> run(int64_t host_cap, const PlannedCase* less) {
    PlannedCase c{.host_cap = host_cap};
    BytesByTier caps = asked_.config.caps;
    caps[kHost] = host_cap;
    config_ = under(asked_.config, caps);
    say("planning", 0);
    const auto prepared =
        prepare_on(config_, machine_, StepSpec{.model = asked_.model}, {.stop = watch_.stop});
    if (!prepared.ok() && prepared.error().kind != ErrorKind::DoesNotFit) return prepared.error();
    if (prepared.ok()) {
      c.found = outlook_of(*prepared);
      count_activations(*prepared, c);
    } else {
      c.found.refusal = prepared.error();
    }
    if (are_alike(asked_.model)) {
      const auto fits_deep = [&](int64_t layers) {
        say("searching for the largest model, layers", layers);
        return fits_with(scaled_to(asked_.model, layers), config_.train.seq_len, 0);
      };
      SLUICE_ASSIGN(c.layers, largest_that_fits(
                                  less == nullptr ? 0 : less->layers, kMostPlannedLayers,
                                  [](int64_t n) { return std::max<int64_t>(n, 1); }, fits_deep));
      if (c.layers > 0) c.params = parameter_parts(scaled_to(asked_.model, c.layers)).all();
    }
    const auto fits_long = [&](int64_t number) {
      say("searching for the longest sequence, tokens", length_of(number));
      return fits_with(asked_.model, length_of(number), number > kChunks ? chunk_of(number) : 0);
    };
    SLUICE_ASSIGN(number_, largest_that_fits(
                               number_, kMostPlannedNumber, [](int64_t) { return kChunks; }, fits_long));
    if (number_ > 0) c.seq_len = length_of(number_);
    return c;
  }

 private:
  void say(const std::string& doing, int64_t n) {
    const std::string what = fmt::format("host {}: {}", cap_text(config_.caps[kHost]), doing);
    watch_.say(n > 0 ? fmt::format("{} {}", what, n) : what, 0, 0);
  }
  // In steps of one sequence; chunk_tokens 0: of any chunks.
  Result<bool> fits_with(ModelSpec model, int64_t seq_len, int64_t chunk_tokens) {
    if (watch_.stop.stop_requested()) return stopped_planning();
    return fits(of_chunks(in_rows(config_, seq_len, seq_len), chunk_tokens), machine_,
                StepSpec{.model = std::move(model)});
  }

  const PlannedModel& asked_;
  const Machine& machine_;
  const StudyWatch& watch_;
  RunConfig config_;
  int64_t number_ = 0;  // of the longest sequence so far
};

std::string name_of(const PlannedCase& c, int64_t least) {
  return c.host_cap <= least ? "device alone" : "host " + cap_text(c.host_cap);
}

Table speeds(const Machine& machine, std::span<const PlannedCase> cases) {
  Table t{.key = "speed", .title = "Speed", .row_title = "memory beside the device"};
  t.note_key = "binds", t.note_title = "what binds";
  t.columns = {{"host_cap_bytes", "host cap", Form::Memory},
               {"tokens_per_s", "tokens/s", Form::Count},
               {"step_s", "step", Form::Seconds},
               {"mfu", "MFU", Form::Share},
               {"device_bytes", "held on the device", Form::Memory},
               {"host_bytes", "on the host", Form::Memory}};
  for (const PlannedCase& c : cases) {
    Row row{.name = name_of(c, least_host_cap(machine)), .values = {double(c.host_cap)}};
    row.values.resize(t.columns.size());
    if (c.found.fits()) {
      row.values = {double(c.host_cap),
                    c.found.speed.tokens_per_s,
                    c.found.step_ns / 1e9,
                    c.found.speed.mfu,
                    double(fullest_device(c.found.bytes)),
                    double(c.found.bytes[kHost])};
    }
    row.note = c.found.fits() ? c.found.binds : missing_memory(*c.found.refusal);
    t.rows.push_back(std::move(row));
  }
  return t;
}

Table activations(const Machine& machine, std::span<const PlannedCase> cases) {
  Table t{.key = "activations", .title = "Activations", .row_title = "memory beside the device"};
  t.columns = {{"round_tokens", "tokens of a round", Form::Count},
               {"everything_bytes", "all kept, by formula", Form::Memory},
               {"device_activation_bytes", "planned, on the device", Form::Memory},
               {"host_activation_bytes", "on the host", Form::Memory},
               {"more_flops", "more FLOPs", Form::Share}};
  for (const PlannedCase& c : cases) {
    if (!c.found.fits()) continue;
    const Speed& speed = c.found.speed;
    t.rows.push_back({name_of(c, least_host_cap(machine)),
                      {double(c.round_tokens), double(c.everything_bytes), double(c.device_activations),
                       double(c.host_activations), speed.hardware_tflops / speed.model_tflops - 1}});
  }
  t.formulas = {
      "By formula: objects that the backward pass reads, of the longest round. Planned: the most that is "
      "there at once in each memory, with what only the next ops read and the chunk under way; less than "
      "the formula's where it is computed again, or where one round's backward pass frees it while the "
      "next round begins. More FLOPs: computed again, scores within attention's backward pass among them."};
  return t;
}

// By the planned speeds; nothing where no tokens are asked for.
Table costs(const PlannedModel& asked, const Machine& machine, std::span<const PlannedCase> cases) {
  Table t{.key = "cost",
          .title = fmt::format("Training on {} tokens at these speeds", to_text(asked.tokens, Form::Count)),
          .row_title = "memory beside the device"};
  t.columns = {{"gpu_hours", "device hours", Form::Hours},
               {"hours", "hours", Form::Hours},
               {"usd", "cost", Form::Usd}};
  for (const PlannedCase& c : cases) {
    if (asked.tokens == 0 || !c.found.fits()) continue;
    const double hours = asked.tokens / c.found.speed.tokens_per_s / 3600,
                 device_hours = hours * double(machine.devices());
    t.rows.push_back(
        {name_of(c, least_host_cap(machine)),
         {device_hours, hours,
          asked.usd_per_hour > 0 ? std::optional(device_hours * asked.usd_per_hour) : std::nullopt}});
  }
  return t;
}

Table limits(const PlannedModel& asked, const Machine& machine, std::span<const PlannedCase> cases) {
  Table t{.key = "limits", .title = "What fits at most", .row_title = "memory beside the device"};
  t.columns = {{"params", "largest model", Form::Count},
               {"layers", "its layers", Form::Count},
               {"seq_len", "longest sequence", Form::Count}};
  const auto known = [](int64_t n) { return n > 0 ? std::optional(double(n)) : std::nullopt; };
  for (const PlannedCase& c : cases) {
    t.rows.push_back(
        {name_of(c, least_host_cap(machine)), {known(c.params), known(c.layers), known(c.seq_len)}});
  }
  t.formulas = {fmt::format(
      "Largest model: its depth to its width as here, sequences of {} tokens; a layer more does not fit. "
      "Longest sequence: of this model, in 15 chunks at most, to an eighth of itself. Steps of one sequence.",
      to_text(double(asked.config.train.seq_len), Form::Count))};
  return t;
}

}  // namespace

int64_t least_host_cap(const Machine& machine) {
  return machine.profile.overhead_bytes[kHost] + 64 * kMiB;
}

Result<std::vector<PlannedCase>> plan_cases(const PlannedModel& asked, const Machine& machine,
                                            std::span<const int64_t> host_caps, const StudyWatch& watch) {
  std::vector<PlannedCase> out;
  CaseSearch search(asked, machine, watch);
  for (const int64_t host_cap : host_caps) {
    SLUICE_ASSIGN(PlannedCase found, search.run(host_cap, out.empty() ? nullptr : &out.back()));
    out.push_back(std::move(found));
  }
  return out;
}

Section planned_section(const PlannedModel& asked, const Machine& machine,
                        std::span<const PlannedCase> cases) {
  Section s{"planned", "By plans under caps"};
  const auto& train = asked.config.train;
  s.notes.push_back(fmt::format(
      "Steps of {} tokens, sequences of {}, on {}{} with {} of memory each; {}.",
      to_text(double(train.tokens_per_step), Form::Count), to_text(double(train.seq_len), Form::Count),
      machine.devices() > 1 ? fmt::format("{} x ", machine.devices()) : "",
      machine.card ? machine.card->name : machine.profile.name, cap_text(asked.config.caps[kDevice]),
      "weights, gradients, state and activations may stream from host memory, or be computed again"));
  s.tables = {speeds(machine, cases), limits(asked, machine, cases)};
  if (Table kept = activations(machine, cases); !kept.rows.empty()) s.tables.push_back(std::move(kept));
  if (Table cost = costs(asked, machine, cases); !cost.rows.empty()) {
    s.tables.insert(s.tables.begin() + 1, std::move(cost));
  }
  return s;
}

}  // namespace sluice::core
