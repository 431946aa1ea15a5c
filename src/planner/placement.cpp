// SPDX-License-Identifier: Apache-2.0
#include "planner/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/philox.h"

namespace sluice::core {
namespace {

int layers_of(const Program& program) {
  int layers = 0;
  for (const Task& task : program.tasks()) layers = std::max(layers, int(task.layer) + 1);
  return layers;
}

// Tasks by the device of their layer; the others run on the first.
Placement by_layer(const Program& program, std::span<const size_t> device_of_layer, size_t devices) {
  Placement out;
  out.devices = devices;
  for (const Task& task : program.tasks())
    out.tasks.push_back(task.layer < 0 ? kDevice : Tier::device(device_of_layer[size_t(task.layer)]));
  return out;
}

}  // namespace

std::vector<size_t> ring_of(std::span<const double> layer_ns, double beside_ns,
                            std::span<const double> shares, const RingShape& shape) {
  const size_t devices = shares.size(), layers = layer_ns.size(), dealt = layers - size_t(shape.tail);
  const size_t stages = devices * size_t(shape.turns);
  const double dealt_ns = std::accumulate(layer_ns.begin(), layer_ns.begin() + long(dealt), 0.0);
  const double tail_ns = std::accumulate(layer_ns.begin() + long(dealt), layer_ns.end(), beside_ns);
  // Of each stage: the first device's are shorter by the tail and what is beside it.
  const auto stage_ns = [&](size_t stage) {
    const double of_first = std::max(0.0, shares[0] * (dealt_ns + tail_ns) - tail_ns);
    const size_t device = stage % devices;
    const double of_device =
        device == 0 ? of_first : shares[device] * (dealt_ns - of_first) / (1 - shares[0]);
    return of_device / shape.turns;
  };
  // A layer belongs to the stage in which its middle lies.
  std::vector<size_t> out(layers, 0);
  double begin_ns = 0;
  size_t stage = 0;
  double end_ns = stage_ns(0);
  for (size_t l = 0; l < dealt; ++l) {
    const double middle_ns = begin_ns + layer_ns[l] / 2;
    while (stage + 1 < stages && middle_ns > end_ns) end_ns += stage_ns(++stage);
    out[l] = stage % devices;
    begin_ns += layer_ns[l];
  }
  return out;
}

Placement ring(const Program& program, const TaskCosts& costs, std::span<const double> shares,
               const RingShape& shape) {
  std::vector<double> layer_ns(size_t(layers_of(program)), 0);
  double beside_ns = 0;
  for (size_t t = 0; t < program.tasks().size(); ++t) {
    const int layer = program.tasks()[t].layer;
    (layer < 0 ? beside_ns : layer_ns[size_t(layer)]) += costs.ns[t];
  }
  Placement out = by_layer(program, ring_of(layer_ns, beside_ns, shares, shape), shares.size());
  out.how = fmt::format("a ring of {} devices, {} turn{}, {} layer{} with the head", shares.size(),
                        shape.turns, shape.turns == 1 ? "" : "s", shape.tail, shape.tail == 1 ? "" : "s");
  return out;
}

std::vector<RingShape> ring_shapes(const Program& program, size_t devices) {
  const int layers = layers_of(program), part = layers / int(devices);
  std::vector<RingShape> out;
  for (int turns = 1; turns <= std::max(1, part); turns += turns < 4 ? 1 : turns / 2) {
    for (int tail = 0; tail <= part; tail += tail < 4 ? 1 : 2) out.push_back({turns, tail});
  }
  return out;
}

Placement placed_at(const Program& program, std::span<const Home> homes, size_t devices) {
  std::map<int32_t, Tier> by_layer;
  for (size_t o = 0; o < homes.size(); ++o) {
    const int32_t layer = program.objects()[o].layer;
    if (layer < 0) continue;
    for (size_t d = 0; d < devices; ++d) {
      if (homes[o].on(Tier::device(d))) by_layer.emplace(layer, Tier::device(d));
    }
  }
  Placement out;
  out.devices = devices;
  for (const Task& task : program.tasks()) {
    const auto it = by_layer.find(task.layer);
    out.tasks.push_back(it == by_layer.end() ? kDevice : it->second);
  }
  return out;
}

Placement random_placement(const Program& program, size_t devices, uint64_t seed) {
  uint64_t counter = 0;
  const auto below = [&](size_t n) {
    return size_t(double(uniform_open(philox(seed, counter++, 1).v[0])) * double(n)) % n;
  };
  // Of every second seed whole layers; of the others each role of a layer for itself.
  std::map<std::pair<int32_t, std::string>, Tier> devices_of;
  Placement out;
  out.devices = devices;
  out.how = "at random";
  for (const Task& task : program.tasks()) {
    const bool whole = seed % 2 == 0 && task.layer >= 0;
    const std::string role = whole ? "" : task.name.substr(0, task.name.find('.'));
    const auto [it, fresh] = devices_of.try_emplace({task.layer, role}, kDevice);
    if (fresh) it->second = Tier::device(below(devices));
    out.tasks.push_back(it->second);
  }
  return out;
}

}  // namespace sluice::core
