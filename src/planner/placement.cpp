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
                            std::span<const double> shares, int stage_layers) {
  const double all_ns = std::accumulate(layer_ns.begin(), layer_ns.end(), beside_ns);
  std::vector<double> left_ns;  // of each device's part
  for (const double share : shares) left_ns.push_back(share * all_ns);
  left_ns.front() -= beside_ns;
  std::vector<size_t> out;
  // A layer is part of what it has the larger half in.
  const auto takes = [&](size_t device) {
    return out.size() < layer_ns.size() && left_ns[device] >= layer_ns[out.size()] / 2;
  };
  const auto deal = [&](size_t device, size_t most) {
    for (; most > 0 && takes(device); --most) {
      left_ns[device] -= layer_ns[out.size()];
      out.push_back(device);
    }
  };
  while (takes(0)) {
    deal(0, size_t(stage_layers));
    if (!takes(0)) break;
    for (size_t d = 1; d < shares.size(); ++d) deal(d, size_t(stage_layers));
  }
  // Once the first device has its part, the others take the rest of theirs. What is left of a part by less
  // than half a layer is the next one's, so that no device gets all of that.
  for (size_t d = 1; d < shares.size(); ++d) {
    if (d > 1) left_ns[d] += left_ns[d - 1];
    deal(d, layer_ns.size());
  }
  out.resize(layer_ns.size(), shares.size() - 1);
  return out;
}

Placement ring(const Program& program, const TaskCosts& costs, std::span<const double> shares,
               int stage_layers) {
  std::vector<double> layer_ns(size_t(layers_of(program)), 0);
  double beside_ns = 0;
  for (size_t t = 0; t < program.tasks().size(); ++t) {
    const int layer = program.tasks()[t].layer;
    (layer < 0 ? beside_ns : layer_ns[size_t(layer)]) += costs.ns[t];
  }
  Placement out = by_layer(program, ring_of(layer_ns, beside_ns, shares, stage_layers), shares.size());
  out.how = fmt::format("a ring of {} devices, stages of {} layer{}", shares.size(), stage_layers,
                        stage_layers == 1 ? "" : "s");
  return out;
}

std::vector<int> ring_stages(const Program& program, size_t devices) {
  const int part = std::max(1, layers_of(program) / int(devices));
  std::vector<int> out;
  for (int layers = 1; layers < part; layers += layers < 4 ? 1 : layers / 2) out.push_back(layers);
  out.push_back(part);
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
