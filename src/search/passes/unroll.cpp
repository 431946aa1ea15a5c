// SPDX-License-Identifier: Apache-2.0
// Unrolling: the runs of a step in the order of time, and the lives of the values that they use.
//
// Two walks. The first finds what runs: tasks in the order given, what is computed again before who needs it,
// and a hand-over where a device needs another one's result. It also times them, as if only data and the
// devices' own order held anything up. What several devices use keeps the program's order also where no data
// flows, so that by time there is one content of an object at a time. The second walk takes the runs by their
// times and says which values they use.
#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "base/order.h"
#include "ops/chosen_parts.h"
#include "search/passes/activation_lives.h"

namespace sluice::core {
namespace {

constexpr uint32_t kNotThere = UINT32_MAX;
constexpr size_t kFewUses = 4;  // most values have no more

struct Timed {
  Run run;
  double start_ns = 0, end_ns = 0;
};

// Whether a use needs what the object held before.
bool needs_content(const Program& program, const Use& u, bool shared) {
  if (u.access != Access::Write) return true;
  // Several writes may fill an object; where they are on several devices, each needs what the others wrote.
  return shared && (u.offset != 0 || u.bytes != program.object(u.object).bytes);
}

class Unroller {
 public:
  Unroller(const Program& program, const Placement& placement, const TaskCosts& costs, const Profile& profile,
           const Saves& saves, const Limits& limits)
      : program_(program),
        placement_(placement),
        costs_(costs),
        profile_(profile),
        saves_(saves),
        limits_(limits),
        lives_(lives_of_activations(program, placement)),
        shared_(shared_objects(program, placement)),
        written_(program.objects().size(), false),
        ends_(ends_of_passes()) {
    for (const Task& task : program.tasks()) {
      for (const Use& u : task.uses)
        written_[u.object.value] = written_[u.object.value] || u.access != Access::Read;
    }
  }

  StepSchedule run(const std::vector<TaskId>& order) {
    find_runs(order);
    sort_by(runs_, [](const Timed& run) { return run.start_ns; });
    make_values();
    return std::move(out_);
  }

 private:
  // By task: what is made for the whole step and goes after it, as its pass ends. What is to be computed
  // again goes with every pass. What is to be on the host goes with those of the first round, which have the
  // updates to store, and is kept from the second on.
  std::vector<std::vector<uint32_t>> ends_of_passes() const {
    std::vector<std::vector<uint32_t>> ends(program_.tasks().size());
    // By the task that makes it, the last that uses some of it in each pass.
    std::map<std::tuple<uint32_t, int32_t, Phase>, uint32_t> last;
    for (uint32_t t = 0; t < program_.tasks().size(); ++t) {
      const Task& task = program_.tasks()[t];
      for (const Use& u : task.uses) {
        const uint32_t o = u.object.value;
        if (!lives_.of_step[o] || saves_[o] == Save::Keep) continue;
        if (task.round == 0 || saves_[o] == Save::Again)
          last[{lives_.writers[o].back(), task.round, task.phase}] = t;
      }
    }
    for (const auto& [pass, t] : last) {
      for (const Use& u : program_.tasks()[std::get<0>(pass)].uses) {
        if (lives_.of_step[u.object.value]) ends[t].push_back(u.object.value);
      }
    }
    return ends;
  }
  // Whether all that a task writes is made for the whole step.
  bool makes_for_step(const Task& task) const {
    return std::ranges::all_of(
        task.uses, [&](const Use& u) { return u.access == Access::Read || lives_.of_step[u.object.value]; });
  }

  // The first walk.

  void find_runs(const std::vector<TaskId>& order) {
    const size_t objects = program_.objects().size();
    there_.assign(placement_.devices, std::vector<bool>(objects, false));
    left_ = lives_.forward_uses;
    owner_.assign(objects, kDevice);
    made_.assign(objects, false);
    used_ns_.assign(objects, 0);
    arrived_ns_.assign(placement_.devices, std::vector<double>(placement_.devices > 1 ? objects : 0, 0));
    now_ns_.assign(placement_.devices, 0);
    link_ns_.assign(placement_.devices, std::vector<double>(placement_.devices, 0));
    for (const TaskId task : order) {
      pass_ = &program_.task(task);
      provide(task);
      append(task, false);
      drop_after(task, [&](uint32_t o) { there_[placement_.of(task).index()][o] = false; });
    }
  }

  // Whatever the task needs is there then.
  void provide(TaskId id) {
    const size_t device = placement_.of(id).index();
    for (const Use& u : program_.task(id).uses) {
      if (needs_content(program_, u, shared_[u.object.value]) && !there_[device][u.object.value])
        provide(u.object.value, device);
    }
  }
  // Hands over results of other devices, finds given ones, and makes dropped ones again by their writers.
  void provide(uint32_t o, size_t device) {
    if (shared_[o] && made_[o]) {
      hand_over(o, device);
    } else if (!lives_.writers[o].empty()) {
      for (const uint32_t t : lives_.writers[o]) {
        for (const Use& u : program_.tasks()[t].uses) {
          if (u.object.value != o && u.access != Access::Write && !there_[device][u.object.value])
            provide(u.object.value, device);
        }
        append(TaskId(t), true);
      }
    }
    there_[device][o] = true;
  }

  void hand_over(uint32_t o, size_t device) {
    const Tier from = owner_[o], to = Tier::device(device);
    const double ns = profile_.hand_over_ns(program_.objects()[o].bytes, from, to);
    double& link_ns = link_ns_[from.index()][device];
    Timed timed{{TaskId(), false, kNoUse, RunKind::HandOver, from, to, ObjectId(o), ns}};
    timed.start_ns = std::max(link_ns, arrived_ns_[from.index()][o]);
    timed.end_ns = link_ns = arrived_ns_[device][o] = timed.start_ns + ns;
    used_ns_[o] = std::max(used_ns_[o], timed.end_ns);
    runs_.push_back(timed);
  }

  void append(TaskId id, bool recompute) {
    const Tier tier = placement_.of(id);
    const size_t device = tier.index();
    const Task& task = program_.task(id);
    Timed timed{{id, recompute, kNoUse, RunKind::Task, tier, tier}, now_ns_[device]};
    for (const Use& u : task.uses) {
      const uint32_t o = u.object.value;
      if (!shared_[o]) continue;
      timed.start_ns =
          std::max(timed.start_ns, u.access == Access::Read ? arrived_ns_[device][o] : used_ns_[o]);
    }
    // A network is at work beside the device: the simulator says who waits for it. What devices exchange by
    // it begins in the program's order, as with other processes, whose plans may differ.
    const bool computes = lane_of(task.op) == LaneKind::Compute;
    if (!computes) timed.start_ns = exchanged_ns_ = std::max(exchanged_ns_, timed.start_ns);
    timed.end_ns = now_ns_[device] = timed.start_ns + (computes ? costs_.ns[id.value] : 0);
    const bool kept_after = pass_->round > 1 || (pass_->round == 1 && pass_->phase != Phase::Forward);
    timed.run.plain = !recompute || (makes_for_step(task) && !kept_after);
    timed.run.ns = computes ? timed.end_ns - timed.start_ns : costs_.ns[id.value];
    for (const Use& u : task.uses) {
      const uint32_t o = u.object.value;
      if (u.access != Access::Read) {
        for (auto& there : there_) there[o] = false;
        owner_[o] = tier;
        made_[o] = true;
      }
      there_[device][o] = true;
      if (!shared_[o]) continue;
      used_ns_[o] = std::max(used_ns_[o], timed.end_ns);
      if (u.access != Access::Read) arrived_ns_[device][o] = timed.end_ns;
    }
    runs_.push_back(timed);
  }

  // Calls gone(object) for what goes after a task: what ends with its pass. After a forward task as its last
  // one there, that is also what only the forward pass uses, and what is to be computed again.
  template <class F>
  void drop_after(TaskId id, F&& gone) {
    const Task& task = program_.task(id);
    for (const uint32_t o : ends_[id.value]) gone(o);
    if (task.phase != Phase::Forward) return;
    for (auto u = task.uses.begin(); u != task.uses.end(); ++u) {
      const uint32_t o = u->object.value;
      const auto is_same = [&](const Use& before) { return before.object == u->object; };
      if (left_[o] == 0 || std::any_of(task.uses.begin(), u, is_same)) continue;
      const bool goes = lives_.temporary[o] || (saves_[o] == Save::Again && lives_.crosses[o]);
      if (--left_[o] == 0 && goes) gone(o);
    }
  }

  // The second walk.

  void make_values() {
    const size_t n = program_.objects().size();
    out_.devices.resize(placement_.devices);
    current_.assign(placement_.devices, std::vector<uint32_t>(n, kNotThere));
    last_forward_.resize(placement_.devices);
    left_ = lives_.forward_uses;
    std::vector<Run> runs(runs_.size());
    std::vector<double> start_ns(runs_.size());
    std::ranges::transform(runs_, runs.begin(), &Timed::run);
    std::ranges::transform(runs_, start_ns.begin(), &Timed::start_ns);
    for (DeviceSchedule& s : out_.devices) {
      s.runs = runs;
      s.start_ns = start_ns;
      s.workspace_bytes.assign(runs.size(), 0);
    }
    out_.turns = turns_of(runs);
    double end_ns = 0;
    for (position_ = 0; position_ < runs_.size(); ++position_) {
      const Timed& timed = runs_[position_];
      if (timed.run.kind == RunKind::HandOver) {
        hand_over(timed.run);
      } else {
        launch(timed.run);
      }
      end_ns = std::max(end_ns, timed.end_ns);
    }
    for (size_t d = 0; d < out_.devices.size(); ++d) {
      DeviceSchedule& s = out_.devices[d];
      s.device = Tier::device(d);
      s.start_ns.push_back(end_ns);
      s.workspace_bytes.push_back(limits_.boundary_bytes[s.device]);
      mark_crossings(s, last_forward_[d]);
      if (limits_.chosen_experts) mark_chosen(s);
    }
    give_back();
  }

  std::vector<uint32_t> turns_of(const std::vector<Run>& runs) const {
    std::vector<uint32_t> out{0};
    for (size_t p = 1; p <= runs.size(); ++p)
      out.push_back(out.back() + (p == runs.size() || !goes_on(runs[p - 1], runs[p])));
    return out;
  }
  // Whether a run only changes in place what the one before it wrote: it reads nothing else that tasks write.
  bool goes_on(const Run& before, const Run& run) const {
    if (before.kind != RunKind::Task || run.kind != RunKind::Task || before.device != run.device)
      return false;
    const auto wrote = [&](ObjectId o) {
      return std::ranges::any_of(program_.task(before.task).uses,
                                 [&](const Use& u) { return u.object == o && u.access != Access::Read; });
    };
    return std::ranges::all_of(program_.task(run.task).uses, [&](const Use& u) {
      return u.access == Access::Read ? !written_[u.object.value]
                                      : u.access == Access::Accumulate && wrote(u.object);
    });
  }

  void launch(const Run& run) {
    const size_t device = run.device.index();
    const Task& task = program_.task(run.task);
    DeviceSchedule& s = out_.devices[device];
    s.runs[position_].first_value = uint32_t(s.use_values.size());
    s.workspace_bytes[position_] = costs_.workspace_bytes[run.task.value];
    for (const Use& u : task.uses) {
      const uint32_t o = u.object.value;
      const bool whole = u.offset == 0 && u.bytes == program_.object(u.object).bytes;
      if (u.access != Access::Read && shared_[o]) {
        for (size_t d = 0; d < out_.devices.size(); ++d) {
          if (d != device) current_[d][o] = kNotThere;
        }
      }
      if (current_[device][o] == kNotThere) {
        const bool given = program_.object(u.object).persistent || u.access != Access::Write;
        current_[device][o] = new_value(device, o, given);
      }
      use(device, o, u.access != Access::Read, u.access == Access::Write && whole,
          task.phase == Phase::Forward && !run.recompute);
    }
    if (!run.recompute) drop_after(run.task, [&](uint32_t o) { current_[device][o] = kNotThere; });
  }

  void hand_over(const Run& run) {
    const uint32_t o = run.object.value;
    const bool forward = program_.object(run.object).kind == ObjectKind::Activation && left_[o] > 0;
    for (const Tier tier : {run.device, run.to}) {
      DeviceSchedule& s = out_.devices[tier.index()];
      s.runs[position_].first_value = uint32_t(s.use_values.size());
      if (tier == run.to) current_[tier.index()][o] = new_value(tier.index(), o, false);
      use(tier.index(), o, tier == run.to, tier == run.to, forward);
    }
  }

  // The run at the position uses the value of an object on a device.
  void use(size_t device, uint32_t o, bool writes, bool overwrites, bool forward) {
    DeviceSchedule& s = out_.devices[device];
    const uint32_t value = current_[device][o];
    s.use_values.push_back(value);
    if (forward && program_.objects()[o].kind == ObjectKind::Activation && !lives_.of_step[o])
      last_forward_[device][value] = position_;
    std::vector<ValueUse>& uses = s.values[value].uses;
    if (!uses.empty() && uses.back().position == position_) {
      uses.back().writes = uses.back().writes || writes;
      uses.back().overwrites = false;
    } else {
      if (uses.empty()) uses.reserve(kFewUses);
      uses.push_back({position_, writes, overwrites});
    }
  }

  uint32_t new_value(size_t device, uint32_t o, bool given) {
    const Object& object = program_.objects()[o];
    DeviceSchedule& s = out_.devices[device];
    Value v;
    v.object = ObjectId(o);
    v.bytes = align_up(object.bytes, limits_.alignment);
    v.circular = object.persistent;
    v.given = given;
    v.needed_after = object.kind == ObjectKind::Metric;
    // An object that several devices use and one changes is on the host between steps.
    v.host_home = object.kind == ObjectKind::Input || object.kind == ObjectKind::Metric ||
                  (object.persistent && shared_[o] && written_[o]);
    if (!limits_.fixed_homes.empty()) {
      const Home& home = limits_.fixed_homes[o];
      v.fixed = home.on(Tier::device(device));
      v.host_home = v.host_home || (!v.fixed && home.anywhere());
      v.on_disk = !v.fixed && home.on(kDisk);
    } else {
      v.on_disk = limits_.is_on_disk(v.object);
    }
    s.values.push_back(std::move(v));
    last_forward_[device].push_back(kNoUse);
    return uint32_t(s.values.size() - 1);
  }

  static void mark_crossings(DeviceSchedule& s, const std::vector<uint32_t>& last_forward) {
    for (size_t i = 0; i < s.values.size(); ++i) {
      Value& v = s.values[i];
      if (last_forward[i] == kNoUse || v.uses.back().position == last_forward[i]) continue;
      v.crossing = 0;
      while (v.uses[v.crossing].position != last_forward[i]) ++v.crossing;
    }
  }

  // An object of a single reader that chooses parts of it can be loaded by its choice.
  void mark_chosen(DeviceSchedule& s) const {
    for (uint32_t p = 0; p < s.size(); ++p) {
      const Run& run = s.runs[p];
      if (run.kind != RunKind::Task || run.device != s.device) continue;
      const auto parts = chosen_parts(program_.task(run.task).op);
      if (!parts) continue;
      Value& weights = s.values[s.use_values[run.first_value + parts->object]];
      const uint32_t chooser = s.use_values[run.first_value + parts->chooser];
      const bool reads_alone = weights.given && weights.uses.size() == 1 && !weights.uses.front().writes;
      const auto written = [p](const ValueUse& u) { return u.writes && u.position < p; };
      const std::vector<ValueUse>& uses = s.values[chooser].uses;
      const auto known = std::find_if(uses.rbegin(), uses.rend(), written);
      if (!reads_alone || weights.fixed || known == uses.rend()) continue;
      const int64_t bytes = parts->expected_bytes(program_.object(weights.object).bytes);
      // Parts lie apart from each other.
      const double ns = parts->expected * profile_.transfer_latency_ns +
                        1e9 * double(bytes) / profile_.bytes_per_s(weights.far(), s.device);
      weights.chosen = ChosenLoad{run.task, chooser, known->position, bytes, ns};
      s.values[chooser].read_by_host = true;
    }
  }

  // An object that several devices use and some change returns one value to the host: the last writer's.
  void give_back() {
    for (size_t d = 0; d < out_.devices.size(); ++d) {
      for (uint32_t i = 0; i < out_.devices[d].values.size(); ++i) {
        Value& v = out_.devices[d].values[i];
        const uint32_t o = v.object.value;
        if (!shared_[o] || !written_[o]) continue;
        const bool last = owner_[o].index() == d && current_[d][o] == i;
        v.circular = v.circular && last;
        v.needed_after = v.needed_after && last;
      }
    }
  }

  const Program& program_;
  const Placement& placement_;
  const TaskCosts& costs_;
  const Profile& profile_;
  const Saves& saves_;
  const Limits& limits_;
  const ActivationLives lives_;
  const std::vector<bool> shared_;

  std::vector<bool> written_;                      // by object: some task writes it
  const std::vector<std::vector<uint32_t>> ends_;  // by task
  std::vector<Timed> runs_;
  std::vector<std::vector<bool>> there_;  // by device and object
  std::vector<uint32_t> left_;            // by object: forward tasks that will still use it
  std::vector<Tier> owner_;               // by object: who wrote it last
  std::vector<bool> made_;                // by object: written in this step
  // Shared objects: the end of their last use so far, and when their content came to or was made on each
  // device.
  std::vector<double> used_ns_;
  std::vector<std::vector<double>> arrived_ns_;
  double exchanged_ns_ = 0;                   // when the last exchange with other processes began
  std::vector<double> now_ns_;                // when a device has done what it has to do so far
  std::vector<std::vector<double>> link_ns_;  // the same of links
  const Task* pass_ = nullptr;                // whose runs are found

  uint32_t position_ = 0;                            // of the run whose values are made
  std::vector<std::vector<uint32_t>> current_;       // by device and object: its value now
  std::vector<std::vector<uint32_t>> last_forward_;  // by device and value: position of its last forward use
  StepSchedule out_;
};

}  // namespace

StepSchedule unroll(const Program& program, const Placement& placement, const std::vector<TaskId>& order,
                    const TaskCosts& costs, const Profile& profile, const Saves& saves,
                    const Limits& limits) {
  return Unroller(program, placement, costs, profile, saves, limits).run(order);
}

}  // namespace sluice::core
