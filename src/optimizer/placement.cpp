// SPDX-License-Identifier: Apache-2.0
#include "optimizer/placement.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "ops/compact_format.h"
#include "ops/exchange.h"
#include "ops/op.h"

namespace sluice::core {
namespace {

// Trained weights next to each other in the table, of one layer or of none.
struct Group {
  std::vector<size_t> weights;
  uint32_t first_use = UINT32_MAX, first_write = UINT32_MAX;  // parts of the step
  std::vector<uint32_t> last_write;                           // by replica; none: nothing writes it
};

class UpdatePlacer {
 public:
  UpdatePlacer(const Program& passes, const std::vector<Weight>& weights,
               const std::vector<ParamObjects>& objects, const UpdateObjects& shared,
               const OptimizerConfig& config, const Numerics& numerics)
      : passes_(passes),
        weights_(weights),
        objects_(objects),
        shared_(shared),
        config_(config),
        numerics_(numerics),
        slots_(norm_slots(weights)) {}

  Program run();

 private:
  void find_parts();
  void find_groups();
  void before(uint32_t part);
  void after(uint32_t part);
  // The gradients of a replica of these weights are there, if they are trained.
  void complete(const Group& group, size_t replica);
  // Adds the gradients of the newest two nodes of the tree.
  void add_up(size_t weight, bool root);
  // Calls f(slot, elements) for each slot of a weight.
  template <class F>
  void for_each_slot(size_t weight, F&& f) {
    for (size_t s = 0; s < slots_.size(); ++s) {
      if (slots_[s].weight == weight) f(int64_t(s), slots_[s].elements);
    }
  }
  void sum_squares(size_t weight);
  std::string name_of_slot(std::string_view what, int64_t slot) const;
  void sum_bucket();
  void sum_over_processes(size_t weight);
  // Whether the state of a weight can follow its update.
  bool late(const Group& group, size_t weight) const;
  void update(const Group& group, bool may_be_late);
  void update_late(const Group& group);
  void share(size_t weight);
  UpdatePart part_of(size_t weight, const ParamObjects::Part& part) const;
  void add(SharedOp op, std::string name, std::span<const Bound> uses, int layer) {
    out_.add(std::move(name), std::move(op), uses, Phase::Update, layer, -1, -1);
  }

  const Program& passes_;
  const std::vector<Weight>& weights_;
  const std::vector<ParamObjects>& objects_;
  const UpdateObjects& shared_;
  const OptimizerConfig& config_;
  const Numerics& numerics_;
  const std::vector<NormSlot> slots_;
  std::vector<uint32_t> part_;  // by task
  std::vector<Group> groups_;
  // By weight, sums of replicas that wait for their neighbours, with how many replicas each has.
  struct Node {
    ObjectId object;
    size_t first, replicas;
  };
  std::vector<std::vector<Node>> nodes_;
  std::vector<size_t> bucket_;  // weights whose gradients wait to be summed over processes
  int64_t bucket_bytes_ = 0;
  bool sums_written_ = false;
  Program out_;
};

void UpdatePlacer::find_parts() {
  const std::vector<Task>& tasks = passes_.tasks();
  uint32_t part = 0;
  for (size_t t = 0; t < tasks.size(); ++t) {
    if (t > 0) part += tasks[t].layer != tasks[t - 1].layer || tasks[t].round != tasks[t - 1].round;
    part_.push_back(part);
  }
}

void UpdatePlacer::find_groups() {
  std::vector<uint32_t> group_of(passes_.objects().size(), UINT32_MAX);
  std::vector<size_t> replica_of(passes_.objects().size(), 0);
  int layer = 0;
  for (size_t w = 0; w < weights_.size(); ++w) {
    if (w == 0 || weights_[w].layer != layer) groups_.emplace_back();
    layer = weights_[w].layer;
    if (!objects_[w].grad.valid()) continue;
    groups_.back().weights.push_back(w);
    group_of[objects_[w].param.value] = group_of[objects_[w].grad.value] = uint32_t(groups_.size() - 1);
    for (size_t i = 0; i < objects_[w].replicas.size(); ++i) {
      const uint32_t leaf = objects_[w].replicas[i].value;
      group_of[leaf] = uint32_t(groups_.size() - 1);
      replica_of[leaf] = i;
    }
  }
  for (size_t t = 0; t < passes_.tasks().size(); ++t) {
    for (const Use& use : passes_.tasks()[t].uses) {
      if (group_of[use.object.value] == UINT32_MAX) continue;
      Group& group = groups_[group_of[use.object.value]];
      if (passes_.object(use.object).kind == ObjectKind::Param) {
        group.first_use = std::min(group.first_use, part_[t]);
      } else if (use.access != Access::Read) {
        group.first_write = std::min(group.first_write, part_[t]);
        const size_t replica = replica_of[use.object.value];
        group.last_write.resize(std::max(group.last_write.size(), replica + 1));
        group.last_write[replica] = part_[t];
      }
    }
  }
}

void UpdatePlacer::complete(const Group& group, size_t replica) {
  for (const size_t w : group.weights) {
    const std::vector<ObjectId>& leaves = objects_[w].replicas;
    std::vector<Node>& nodes = nodes_[w];
    nodes.push_back({objects_[w].of_replica(replica), replica, 1});
    const bool last = replica + 1 >= leaves.size();
    // Neighbours of one size; behind the last replica, what is left over.
    while (nodes.size() > 1 && (last || nodes[nodes.size() - 2].replicas == nodes.back().replicas))
      add_up(w, last && nodes.size() == 2);
    if (!last) continue;
    if (shared_.processes == 1) {
      sum_squares(w);
      continue;
    }
    bucket_.push_back(w);
    bucket_bytes_ += out_.object(objects_[w].grad).bytes;
    if (bucket_bytes_ >= config_.bucket_bytes) sum_bucket();
  }
}

void UpdatePlacer::sum_bucket() {
  for (const size_t w : std::exchange(bucket_, {})) sum_over_processes(w);
  bucket_bytes_ = 0;
}

void UpdatePlacer::add_up(size_t weight, bool root) {
  std::vector<Node>& nodes = nodes_[weight];
  const Node right = nodes.back();
  nodes.pop_back();
  Node& left = nodes.back();
  const ObjectId grad = objects_[weight].grad;
  const auto type = [&](const Node& node) { return out_.object(node.object).format.type; };
  ObjectId sum = grad;
  const bool rounds = root && shared_.processes == 1;
  if (!rounds) {
    Object inner = out_.object(grad);
    inner.name += fmt::format(".{}+{}", left.first, left.replicas + right.replicas);
    inner.format = DType::F32;
    inner.bytes = inner.format.bytes(weights_[weight].elements());
    inner.persistent = false;
    sum = out_.add(std::move(inner));
  }
  const Bound uses[] = {left.object, right.object, sum};
  add(AddGradients{weights_[weight].elements(), type(left), type(right),
                   rounds ? numerics_.grad : DType::F32},
      fmt::format("add.{}.{}+{}", weights_[weight].object, left.first, left.replicas + right.replicas), uses,
      weights_[weight].layer);
  left = {sum, left.first, left.replicas + right.replicas};
}

void UpdatePlacer::sum_squares(size_t w) {
  const ObjectId grad = objects_[w].grad;
  const NumberFormat& format = passes_.object(grad).format;
  for_each_slot(w, [&](int64_t slot, const Weight::Stretch& of) {
    const Bound uses[] = {{grad, format.bytes(of.first)}, shared_.sums};
    add(SumSq{.elements = of.count,
              .slot = slot,
              .slots = int64_t(slots_.size()),
              .dtype = numerics_.grad,
              .first = !std::exchange(sums_written_, true)},
        name_of_slot("norm_of", slot), uses, weights_[w].layer);
  });
}

std::string UpdatePlacer::name_of_slot(std::string_view what, int64_t slot) const {
  const auto& [weight, elements] = slots_[size_t(slot)];
  const std::string name = fmt::format("{}.{}", what, weights_[weight].object);
  return weights_[weight].learnt.empty() ? name : fmt::format("{}.{}", name, elements.first);
}

void UpdatePlacer::sum_over_processes(size_t w) {
  const ObjectId grad = objects_[w].grad, own = nodes_[w].back().object;
  for_each_slot(w, [&](int64_t slot, const Weight::Stretch& of) {
    std::vector<Bound> uses{{grad, out_.object(grad).format.bytes(of.first)}, shared_.sums};
    if (own != grad) uses.emplace_back(own, out_.object(own).format.bytes(of.first));
    add(SumOverProcesses{.elements = of.count,
                         .processes = shared_.processes,
                         .slot = slot,
                         .slots = int64_t(slots_.size()),
                         .dtype = numerics_.grad,
                         .first = !std::exchange(sums_written_, true),
                         .apart = own != grad},
        name_of_slot("sum", slot), uses, weights_[w].layer);
  });
}

UpdatePart UpdatePlacer::part_of(size_t weight, const ParamObjects::Part& part) const {
  const Weight& of = weights_[weight];
  return {part, weight, of.decay, numerics_of(of, numerics_)};
}

bool UpdatePlacer::late(const Group& group, size_t weight) const {
  const ParamObjects& o = objects_[weight];
  return config_.deferred && config_.late_moments && group.first_use != group.first_write &&
         o.rule->update_state != nullptr && !o.parts.empty() &&
         o.rule->update_state(part_of(weight, o.parts.front()), config_.values);
}

void UpdatePlacer::update(const Group& group, bool may_be_late) {
  for (const size_t w : group.weights) {
    const ParamObjects& o = objects_[w];
    const bool state = !may_be_late || !late(group, w);
    for (const ParamObjects::Part& part : o.parts) {
      std::vector<Bound> uses{{o.param, passes_.object(o.param).format.bytes(part.first)},
                              {o.grad, passes_.object(o.grad).format.bytes(part.first)}};
      uses.insert(uses.end(), part.state.begin(), part.state.end());
      uses.insert(uses.end(), {shared_.clip, shared_.args});
      if (part.master.valid()) uses.emplace_back(part.master);
      const Op op = o.rule->update(part_of(w, part), config_.values, state);
      add(op, fmt::format("{}.{}.p{}", name_of(op), weights_[w].object, part.number), uses,
          weights_[w].layer);
    }
  }
  for (const size_t w : group.weights) share(w);
}

void UpdatePlacer::share(size_t w) {
  const ParamObjects& o = objects_[w];
  if (o.owners.empty()) return;
  const NumberFormat& format = passes_.object(o.param).format;
  const std::vector<UpdateExtent> extents =
      extents_of(weights_[w], config_, numerics_of(weights_[w], numerics_));
  for (size_t i = 0; i < extents.size(); ++i) {
    const Bound uses[] = {{o.param, format.bytes(extents[i].first)}};
    add(ShareWeight{.elements = extents[i].elements(),
                    .processes = config_.sharded.processes,
                    .owner = o.owners[i],
                    .dtype = format.type},
        fmt::format("share.{}.p{}", weights_[w].object, i), uses, weights_[w].layer);
  }
}

void UpdatePlacer::update_late(const Group& group) {
  for (const size_t w : group.weights) {
    if (!late(group, w)) continue;
    const ParamObjects& o = objects_[w];
    for (const ParamObjects::Part& part : o.parts) {
      std::vector<Bound> uses{{o.grad, passes_.object(o.grad).format.bytes(part.first)}};
      uses.insert(uses.end(), part.state.begin(), part.state.end());
      uses.insert(uses.end(), {shared_.clip, shared_.args});
      const Op op = *o.rule->update_state(part_of(w, part), config_.values);
      add(op, fmt::format("{}.{}.p{}", name_of(op), weights_[w].object, part.number), uses,
          weights_[w].layer);
    }
  }
}

void UpdatePlacer::before(uint32_t part) {
  if (!config_.deferred) return;
  for (const Group& group : groups_) {
    if (group.first_use == part) update(group, true);
  }
  for (const Group& group : groups_) {
    if (group.first_write == part) update_late(group);
  }
}

void UpdatePlacer::after(uint32_t part) {
  for (const Group& group : groups_) {
    for (size_t i = 0; i < group.last_write.size(); ++i) {
      if (group.last_write[i] == part) complete(group, i);
    }
  }
}

Program UpdatePlacer::run() {
  find_parts();
  find_groups();
  out_.facts = passes_.facts;
  nodes_.resize(weights_.size());
  for (const Object& object : passes_.objects()) out_.add(object);
  const std::vector<Task>& tasks = passes_.tasks();
  for (size_t t = 0; t < tasks.size(); ++t) {
    if (t == 0 || part_[t] != part_[t - 1]) before(part_[t]);
    out_.add(tasks[t]);
    if (t + 1 == tasks.size() || part_[t] != part_[t + 1]) after(part_[t]);
  }
  sum_bucket();
  if (shared_.sums.valid()) {
    const Bound uses[] = {shared_.sums, shared_.clip};
    add(ClipScale{.slots = int64_t(slots_.size()), .max_norm = config_.clip_norm}, "clip", uses, -1);
  }
  // A program without passes is the pending update itself.
  if (!config_.deferred || tasks.empty()) {
    for (const Group& group : groups_) update(group, false);
  }
  return std::move(out_);
}

}  // namespace

std::string name_of_state(std::string_view role, const Weight& weight, size_t part) {
  return fmt::format("{}_{}.p{}", role, weight.object, part);
}

std::vector<NormSlot> norm_slots(const std::vector<Weight>& weights) {
  std::vector<NormSlot> out;
  for (size_t w = 0; w < weights.size(); ++w) {
    for (const Weight::Stretch& elements : weights[w].learnt_elements()) out.push_back({w, elements});
  }
  return out;
}

std::vector<std::vector<int64_t>> owners_of(const std::vector<Weight>& weights, const OptimizerConfig& config,
                                            const Numerics& numerics) {
  std::vector<int64_t> elements(size_t(config.sharded.processes));
  std::vector<std::vector<int64_t>> out(weights.size());
  for (size_t w = 0; w < weights.size(); ++w) {
    if (!weights[w].trainable) continue;
    for (const UpdateExtent& extent : extents_of(weights[w], config, numerics_of(weights[w], numerics))) {
      const auto least = std::ranges::min_element(elements);
      out[w].push_back(least - elements.begin());
      *least += extent.elements();
    }
  }
  return out;
}

void add_state(const Weight& weight, const OptimizerConfig& config, const Numerics& numerics,
               Program& program, ParamObjects& objects, std::vector<int64_t> owners) {
  const Numerics own = numerics_of(weight, numerics);
  objects.rule = &config.optimizer->rule_of(weight);
  objects.owners = std::move(owners);
  objects.masters = own.master;
  const std::vector<UpdateExtent> extents = extents_of(weight, config, own);
  for (size_t i = 0; i < extents.size(); ++i) {
    const UpdateExtent& extent = extents[i];
    if (!objects.owners.empty() && objects.owners[i] != config.sharded.process) continue;
    ParamObjects::Part part{extent, {}, {}, i};
    const auto add = [&](std::string_view role, const NumberFormat& format, int64_t numbers) {
      return program.add(Object{name_of_state(role, weight, i), fmt::format("{}_{}", role, weight.role),
                                ObjectKind::OptState, format, format.bytes(format.padded(numbers)),
                                weight.layer, -1, -1, true});
    };
    for (const StateSlot& slot : objects.rule->state)
      part.state.push_back(add(slot.role, slot.format_in(own), slot.numbers(extent)));
    if (own.master != MasterWeights::Off)
      part.master = add(kMasterRole, format_of(own.master), extent.elements());
    objects.parts.push_back(std::move(part));
  }
}

Program place_updates(const Program& passes, const std::vector<Weight>& weights,
                      const std::vector<ParamObjects>& objects, const UpdateObjects& shared,
                      const OptimizerConfig& config, const Numerics& numerics) {
  return UpdatePlacer(passes, weights, objects, shared, config, numerics).run();
}

}  // namespace sluice::core
