// SPDX-License-Identifier: Apache-2.0
#include "search/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/counts.h"
#include "base/philox.h"

namespace sluice::core {
namespace {

std::vector<size_t> dealt_alike(std::span<const double> piece_ns, std::span<const int32_t> layer_of_piece,
                                std::vector<double> left_ns, int stage_layers) {
  std::vector<size_t> out;
  // A piece is part of what it has the larger half in.
  const auto takes = [&](size_t device) {
    return out.size() < piece_ns.size() && left_ns[device] >= piece_ns[out.size()] / 2;
  };
  // Up to the layer `end`.
  const auto deal = [&](size_t device, int32_t end) {
    while (takes(device) && layer_of_piece[out.size()] < end) {
      left_ns[device] -= piece_ns[out.size()];
      out.push_back(device);
    }
  };
  const size_t devices = left_ns.size();
  while (takes(0)) {
    deal(0, layer_of_piece[out.size()] + stage_layers);
    if (!takes(0)) break;
    for (size_t d = 1; d < devices && out.size() < piece_ns.size(); ++d)
      deal(d, layer_of_piece[out.size()] + stage_layers);
  }
  // Once the first device has its part, the others take the rest of theirs. What is left of a part by less
  // than half a piece is the next one's, so that no device gets all of that.
  for (size_t d = 1; d < devices; ++d) {
    if (d > 1) left_ns[d] += left_ns[d - 1];
    deal(d, std::numeric_limits<int32_t>::max());
  }
  out.resize(piece_ns.size(), devices - 1);
  return out;
}

std::vector<size_t> dealt_in_turns(std::span<const double> piece_ns, std::span<const double> part_ns,
                                   int turns) {
  const size_t devices = part_ns.size(), stages = devices * size_t(turns);
  std::vector<size_t> out;
  size_t stage = 0;
  double begin_ns = 0, end_ns = part_ns.front() / turns;  // of the piece, of the stage
  for (const double ns : piece_ns) {
    while (stage + 1 < stages && end_ns < begin_ns + ns / 2) end_ns += part_ns[++stage % devices] / turns;
    out.push_back(stage % devices);
    begin_ns += ns;
  }
  return out;
}

// Shifts the ends of stages by a piece, one or two of them at once, for as long as that makes the devices'
// parts more even. `left_ns`, by device, is what each would have in addition. No stage goes away.
class Evening {
 public:
  Evening(std::span<const double> piece_ns, std::vector<double> left_ns, std::vector<size_t>& device_of)
      : piece_ns_(piece_ns), left_ns_(std::move(left_ns)), device_of_(device_of) {}

  void run() {
    while (shift_best()) {
    }
  }

 private:
  struct Shift {
    size_t piece, to;
  };
  // A piece at an end of its stage can go to the next stage, unless it is all of the stage.
  std::vector<Shift> shifts() const {
    std::vector<Shift> out;
    const size_t n = device_of_.size();
    const auto differ = [&](size_t a, size_t b) { return device_of_[a] != device_of_[b]; };
    for (size_t p = 0; p + 1 < n; ++p) {
      if (!differ(p, p + 1)) continue;
      if (p > 0 && !differ(p - 1, p)) out.push_back({p, device_of_[p + 1]});
      if (p + 2 < n && !differ(p + 1, p + 2)) out.push_back({p + 1, device_of_[p]});
    }
    return out;
  }
  // By how much the sum of squares of what is left falls.
  double gain(const Shift& s) const {
    const double ns = piece_ns_[s.piece];
    return 2 * ns * (left_ns_[s.to] - left_ns_[device_of_[s.piece]] - ns);
  }
  void apply(const Shift& s) {
    left_ns_[device_of_[s.piece]] += piece_ns_[s.piece];
    left_ns_[s.to] -= piece_ns_[s.piece];
    device_of_[s.piece] = s.to;
  }
  bool shift_best() {
    const double all_ns = std::accumulate(piece_ns_.begin(), piece_ns_.end(), 0.0);
    double most = 1e-9 * all_ns * all_ns;
    std::vector<Shift> best;
    for (const Shift& one : shifts()) {
      if (const double g = gain(one); g > most) most = g, best = {one};
      const Shift back{one.piece, device_of_[one.piece]};
      const double first = gain(one);
      apply(one);
      for (const Shift& other : shifts()) {
        if (const double g = first + gain(other); g > most) most = g, best = {one, other};
      }
      apply(back);
    }
    for (const Shift& s : best) apply(s);
    return !best.empty();
  }

  std::span<const double> piece_ns_;
  std::vector<double> left_ns_;
  std::vector<size_t>& device_of_;
};

// By device, how much of the time of the layers is its part.
std::vector<double> parts_of_layers(std::span<const double> piece_ns, double beside_ns,
                                    std::span<const double> shares) {
  const double layers_ns = std::accumulate(piece_ns.begin(), piece_ns.end(), 0.0);
  std::vector<double> out;
  for (const double share : shares) out.push_back(share * (layers_ns + beside_ns));
  out.front() -= beside_ns;
  if (out.front() >= 0) return out;
  // The others share all layers.
  out.front() = 0;
  const double parts_ns = std::accumulate(out.begin(), out.end(), 0.0);
  for (double& part : out) part *= layers_ns / parts_ns;
  return out;
}

int32_t rounds_of(const Program& program) {
  int32_t rounds = 1;
  for (const Task& task : program.tasks()) rounds = std::max(rounds, task.round + 1);
  return rounds;
}

// How long pieces take, by piece and round; what is of no round (updates) counts to the last.
std::vector<std::vector<double>> times_by_round(const Program& program, const Pieces& pieces,
                                                const TaskCosts& costs) {
  const int32_t rounds = rounds_of(program);
  std::vector<std::vector<double>> out(pieces.layer.size(), std::vector<double>(size_t(rounds), 0));
  for (size_t t = 0; t < pieces.of.size(); ++t) {
    const int32_t piece = pieces.of[t], round = program.tasks()[t].round;
    if (piece != Pieces::kNone) out[size_t(piece)][size_t(round < 0 ? rounds - 1 : round)] += costs.ns[t];
  }
  return out;
}

// From a round on a piece is another device's, with its update; 0: it stays where it is.
struct Handed {
  int32_t round = 0;
  size_t to = 0;
};

// Finds pieces at ends of stages to hand on, so that the devices' parts get even.
class Handing {
 public:
  Handing(std::vector<std::vector<double>> ns_by_round, std::span<const size_t> device_of)
      : late_ns_(std::move(ns_by_round)), device_of_(device_of), handed_(device_of.size()) {
    for (std::vector<double>& ns : late_ns_) {
      for (size_t r = ns.size() - 1; r > 0; --r) ns[r - 1] += ns[r];
    }
  }

  // By piece. `left_ns`, by device, is what each would have in addition.
  std::vector<Handed> run(std::span<const double> left_ns) {
    // Moves as little as possible from each device to the next around the ring.
    const size_t devices = left_ns.size();
    std::vector<double> flow_ns;
    double sum = 0;
    for (const double left : left_ns) flow_ns.push_back(sum -= left);
    std::vector<double> sorted = flow_ns;
    std::ranges::sort(sorted);
    const double around_ns = sorted[devices / 2];
    for (size_t d = 0; d < devices; ++d) {
      const size_t next = (d + 1) % devices;
      const double ns = flow_ns[d] - around_ns;
      ns > 0 ? hand(d, next, ns) : hand(next, d, -ns);
    }
    return std::move(handed_);
  }

 private:
  // Whether a piece lies at an end of its stage, with `to` behind it.
  bool can_go(size_t piece, size_t to) const {
    const auto is = [&](size_t p, size_t device) {
      return p < device_of_.size() && device_of_[p] == device && handed_[p].round == 0;
    };
    const size_t before = piece - 1, behind = piece + 1;
    return handed_[piece].round == 0 && (is(before, to) || is(behind, to));
  }
  // One piece after the other, each from the round on that comes nearest to what is still to go.
  void hand(size_t from, size_t to, double ns) {
    while (ns > 0) {
      double nearest = ns;
      size_t piece = 0;
      Handed best;
      for (size_t p = 0; p < device_of_.size(); ++p) {
        if (device_of_[p] != from || !can_go(p, to)) continue;
        for (size_t r = 1; r < late_ns_[p].size(); ++r) {
          const double off = std::abs(ns - late_ns_[p][r]);
          if (off < nearest) nearest = off, piece = p, best = {int32_t(r), to};
        }
      }
      if (best.round == 0) return;
      handed_[piece] = best;
      ns -= late_ns_[piece][size_t(best.round)];
    }
  }

  std::vector<std::vector<double>> late_ns_;  // by piece and round: from that round on
  std::span<const size_t> device_of_;         // by piece
  std::vector<Handed> handed_;
};

}  // namespace

std::vector<size_t> ring_of(std::span<const double> piece_ns, std::span<const int32_t> layer_of_piece,
                            double beside_ns, std::span<const double> shares, const RingLayout& layout) {
  std::vector<double> part_ns = parts_of_layers(piece_ns, beside_ns, shares);
  std::vector<size_t> out = layout.turns > 0
                                ? dealt_in_turns(piece_ns, part_ns, layout.turns)
                                : dealt_alike(piece_ns, layer_of_piece, part_ns, layout.stage_layers);
  for (size_t p = 0; p < out.size(); ++p) part_ns[out[p]] -= piece_ns[p];
  Evening(piece_ns, std::move(part_ns), out).run();
  return out;
}

Placement ring(const Program& program, const Pieces& pieces, const TaskCosts& costs,
               std::span<const double> shares, const RingLayout& layout) {
  const std::vector<std::vector<double>> ns_by_round = times_by_round(program, pieces, costs);
  std::vector<double> piece_ns;
  for (const auto& ns : ns_by_round) piece_ns.push_back(std::accumulate(ns.begin(), ns.end(), 0.0));
  double beside_ns = 0;
  for (size_t t = 0; t < pieces.of.size(); ++t)
    if (pieces.of[t] == Pieces::kNone) beside_ns += costs.ns[t];
  const std::vector<size_t> device_of = ring_of(piece_ns, pieces.layer, beside_ns, shares, layout);
  std::vector<Handed> handed(device_of.size());
  if (layout.by_rounds) {
    std::vector<double> left_ns = parts_of_layers(piece_ns, beside_ns, shares);
    for (size_t p = 0; p < device_of.size(); ++p) left_ns[device_of[p]] -= piece_ns[p];
    handed = Handing(ns_by_round, device_of).run(left_ns);
  }
  Placement out;
  out.devices = shares.size();
  for (size_t t = 0; t < pieces.of.size(); ++t) {
    const int32_t piece = pieces.of[t], round = program.tasks()[t].round;
    if (piece == Pieces::kNone) {
      out.tasks.push_back(kDevice);
      continue;
    }
    const auto [from_round, to] = handed[size_t(piece)];
    const bool goes = from_round > 0 && (round < 0 || round >= from_round);
    out.tasks.push_back(Tier::device(goes ? to : device_of[size_t(piece)]));
  }
  out.how = fmt::format(
      "a ring of {} devices, {}{}", shares.size(),
      layout.turns > 0 ? counted(layout.turns, "turn") : "stages of " + counted(layout.stage_layers, "layer"),
      layout.by_rounds ? ", made even by rounds" : "");
  return out;
}

std::vector<RingLayout> ring_layouts(const Program& program, const Pieces& pieces, size_t devices) {
  const int part = std::max(1, pieces.layers() / int(devices));
  std::vector<RingLayout> out;
  for (int layers = 1; layers < part; layers += layers < 4 ? 1 : layers / 2)
    out.push_back({.stage_layers = layers});
  out.push_back({.stage_layers = part});
  for (const int turns : {2, 3, 4, 6}) {
    if (size_t(turns) * devices <= pieces.layer.size()) out.push_back({.turns = turns});
  }
  if (rounds_of(program) == 1) return out;
  for (size_t i = 0, n = out.size(); i < n; ++i) {
    out.push_back(out[i]);
    out.back().by_rounds = true;
  }
  return out;
}

Placement placed_at(const Program& program, std::span<const Home> homes, size_t devices) {
  Placement out;
  out.devices = devices;
  Tier device = kDevice;
  for (const Task& task : program.tasks()) {
    for (const Use& use : task.uses) {
      const uint32_t o = use.object.value;
      if (o >= homes.size() || program.object(use.object).layer < 0) continue;
      for (size_t d = 0; d < devices; ++d) {
        if (homes[o].on(Tier::device(d))) device = Tier::device(d);
      }
    }
    out.tasks.push_back(task.layer < 0 ? kDevice : device);
  }
  return out;
}

Placement random_placement(const Program& program, size_t devices, uint64_t seed) {
  uint64_t counter = 0;
  const auto below = [&](size_t n) {
    return size_t(double(uniform_open(philox(seed, counter++, 1).v[0])) * double(n)) % n;
  };
  // Every third seed moves whole layers. The next ones move each role of a layer by itself, the others in
  // each round, too.
  std::map<std::tuple<int32_t, int32_t, std::string>, Tier> devices_of;
  Placement out;
  out.devices = devices;
  out.how = "at random";
  for (const Task& task : program.tasks()) {
    const bool whole = seed % 3 == 0 && task.layer >= 0;
    const std::string role = whole ? "" : task.name.substr(0, task.name.find('.'));
    const auto [it, fresh] =
        devices_of.try_emplace({task.layer, seed % 3 == 2 ? task.round : -1, role}, kDevice);
    if (fresh) it->second = Tier::device(below(devices));
    out.tasks.push_back(it->second);
  }
  return out;
}

}  // namespace sluice::core
