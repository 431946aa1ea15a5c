// SPDX-License-Identifier: Apache-2.0
// What a loop of one's own, and losses of one's own, cost against Session::train(), which is the loop of
// `sluice train`.
//
// Per loop and turn a line of JSON: the loop, median seconds of a step by the caller's clock, tokens a
// second, and the ratio to the median of train(). Loops: "verbs" queue the step in so many calls. With
// --losses, in sessions of their own: "weights" give every token one; "loss" calls forward() first, and gives
// seeds; "round" gives a loss that is called round by round. A table of the medians comes last.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "sluice/sluice.h"

namespace {

using sluice::Batch;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string model = "llama3-8b", backend = "auto", cache;
  int64_t seq_len = 8192, tokens = 131072, steps = 4, turns = 2, calls = 16;
  double device_gib = 16, host_gib = 110;
  bool losses = false;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Notes when steps end.
struct Ends : sluice::Observer {
  std::vector<Clock::time_point> at;
  void stepped(const sluice::StepEvent&) override { at.push_back(Clock::now()); }
  void warned(const std::string& what) override { std::fprintf(stderr, "%s\n", what.c_str()); }
};

class Bench {
 public:
  Bench(const Options& o, sluice::Plan plan, sluice::Session session, Ends& ends)
      : o_(o),
        plan_(std::move(plan)),
        session_(std::move(session)),
        ends_(ends),
        data_(sluice::Dataset::random(plan_)),
        ones_(size_t(o.tokens), 1.0f) {}

  double planned_seconds() const { return plan_.step_seconds(); }

  // Seconds of a step, the median.
  sluice::Result<double> train() {
    ends_.at.assign(1, Clock::now());
    sluice::Schedule schedule;
    schedule.steps = session_.steps_done() + o_.steps;
    schedule.evaluate_every = 0;
    const sluice::Status trained = session_.train(data_, schedule);
    if (!trained.ok()) return trained.error();
    std::vector<double> took;
    for (size_t i = 1; i < ends_.at.size(); ++i)
      took.push_back(std::chrono::duration<double>(ends_.at[i] - ends_.at[i - 1]).count());
    return median(took);
  }

  sluice::Result<double> own(const std::string& loop) { return own(loop, o_.steps); }
  sluice::Result<double> own(const std::string& loop, int64_t steps) {
    std::vector<double> took;
    for (int64_t i = 0; i < steps; ++i) {
      const Clock::time_point begin = Clock::now();
      const sluice::Status stepped = step(loop);
      if (!stepped.ok()) return stepped.error();
      took.push_back(since(begin));
    }
    return median(took);
  }

 private:
  sluice::Status step(const std::string& loop) {
    const sluice::BatchRows rows = data_.batch(session_.steps_done());
    const int64_t sequences = o_.tokens / o_.seq_len, calls = std::min(o_.calls, sequences);
    std::vector<float> seeds;
    if (loop == "loss") {
      const auto log_probs = session_.forward(rows.batch());
      if (!log_probs.ok()) return log_probs.error();
      seeds.resize(log_probs->size());
      derive(*log_probs, seeds);
    }
    for (int64_t call = 0; call < calls; ++call) {
      const int64_t begin = sequences * call / calls * o_.seq_len,
                    end = sequences * (call + 1) / calls * o_.seq_len;
      const auto cut = [&](auto& all) { return std::span(all).subspan(size_t(begin), size_t(end - begin)); };
      Batch batch{cut(rows.tokens), cut(rows.targets), cut(rows.positions)};
      if (loop == "weights") batch.weights = cut(ones_);
      if (loop == "loss") batch.seeds = cut(seeds);
      const auto asked = [this](const sluice::RoundRows& round, std::span<float> derivatives) {
        derive(round.log_probabilities, derivatives);
        return sluice::Status();
      };
      const auto queued =
          loop == "round" ? session_.forward_backward(batch, asked) : session_.forward_backward(batch);
      if (!queued.ok()) return queued.error();
    }
    const auto stepped = session_.optim_step(1e-5);
    return stepped.ok() ? sluice::Status() : sluice::Status(stepped.error());
  }
  void derive(std::span<const float> log_probs, std::span<float> seeds) const {
    for (size_t t = 0; t < seeds.size(); ++t)
      seeds[t] = (log_probs[t] < -1 ? -1.0f : log_probs[t]) / float(o_.tokens);
  }

  const Options& o_;
  sluice::Plan plan_;
  sluice::Session session_;
  Ends& ends_;
  sluice::Dataset data_;
  std::vector<float> ones_;
};

// Loops that one plan is for.
struct Group {
  std::vector<std::string> loops;
  bool weighted = false, round_losses = false;
};

struct Found {
  std::string loop;
  double planned_s;
  std::vector<double> took;  // by turn
};

sluice::Status run(const Options& o, const Group& group, std::vector<Found>& found) {
  sluice::MachineOptions here;
  here.backend = o.backend;
  here.cache = o.cache;
  const auto model = sluice::Model::preset(o.model);
  if (!model.ok()) return model.error();
  const auto machine = sluice::Machine::here(here);
  if (!machine.ok()) return machine.error();
  sluice::StepOptions step;
  step.seq_len = o.seq_len;
  step.tokens_per_step = o.tokens;
  step.weighted = step.log_probabilities = step.evaluate = group.weighted;
  step.round_losses = group.round_losses;
  sluice::Caps caps;
  caps.device_bytes = int64_t(o.device_gib * double(1 << 30));
  caps.host_bytes = int64_t(o.host_gib * double(1 << 30));
  Ends ends;
  auto plan = sluice::plan(*model, step, caps, *machine, ends);
  if (!plan.ok()) return plan.error();
  auto session = sluice::Session::open(*plan, ends);
  if (!session.ok()) return session.error();
  Bench bench(o, *plan, std::move(*session), ends);
  const auto warm = bench.own("verbs", 1);  // after which an update is pending, as behind every step
  if (!warm.ok()) return warm.error();
  const size_t first = found.size();
  for (const std::string& loop : group.loops) found.push_back({loop, bench.planned_seconds(), {}});
  for (int64_t turn = 0; turn < o.turns; ++turn) {
    for (size_t i = first; i < found.size(); ++i) {
      const auto took = found[i].loop == "train" ? bench.train() : bench.own(found[i].loop);
      if (!took.ok()) return took.error();
      found[i].took.push_back(*took);
      std::printf(
          "{\"turn\": %lld, \"loop\": \"%s\", \"step_s\": %.4f, \"planned_s\": %.4f, \"tokens_per_second\": "
          "%.1f, "
          "\"ratio\": %.4f}\n",
          (long long)turn, found[i].loop.c_str(), *took, found[i].planned_s, double(o.tokens) / *took,
          median(found.front().took) / *took);
      std::fflush(stdout);
    }
  }
  return {};
}

sluice::Status run(const Options& o) {
  std::vector<Group> groups{{{"train", "verbs"}}};
  if (o.losses) groups.insert(groups.end(), {{{"weights", "loss"}, true, false}, {{"round"}, false, true}});
  std::vector<Found> found;
  sluice::Status status;
  for (const Group& group : groups) {
    if (status.ok()) status = run(o, group, found);
  }
  if (found.empty() || found.front().took.empty()) return status;
  std::printf("%-8s %9s %9s %9s %9s %8s\n", "loop", "step s", "planned", "tokens/s", "ratio", "planned");
  for (const Found& f : found) {
    if (f.took.empty()) continue;
    const double took = median(f.took);
    std::printf("%-8s %9.4f %9.4f %9.1f %9.4f %8.4f\n", f.loop.c_str(), took, f.planned_s,
                double(o.tokens) / took, median(found.front().took) / took,
                found.front().planned_s / f.planned_s);
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("What a loop of one's own costs against Session::train()");
  app.add_option("--model", o.model, "preset");
  app.add_option("--backend", o.backend, "auto, cpu, cuda");
  app.add_option("--cache", o.cache, "folder of costs and plans");
  app.add_option("--seq-len", o.seq_len, "tokens of a sequence");
  app.add_option("--tokens", o.tokens, "tokens of a step");
  app.add_option("--device-gib", o.device_gib, "cap");
  app.add_option("--host-gib", o.host_gib, "cap");
  app.add_option("--steps", o.steps, "steps of a loop in a turn");
  app.add_option("--turns", o.turns, "turns");
  app.add_option("--calls", o.calls, "of forward_backward() a step");
  app.add_flag("--losses", o.losses, "loops with weights and losses of one's own, too");
  CLI11_PARSE(app, argc, argv);
  const sluice::Status status = run(o);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
