// SPDX-License-Identifier: Apache-2.0
// A step of six tasks on which every pass can be followed by hand.
//
//     position   0         1         2         3          4          5
//     task       a = f(x)  b = f(a)  c = f(b)  gc = f(c)  gb = f(b)  ga = f(a)
//     phase      forward   forward   forward   backward   backward   backward
//
// All objects are of one size, all tasks take 10 ns. x is a weight, which survives the step; the gradients
// die at once. Held when nothing leaves: x a | x a b | x a b c | x a b c gc | x a b gb | x a ga, and x at the
// boundary. What can leave the device: a during positions 2 to 4, b during 3, x from 1 to the boundary.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "ops/op.h"
#include "plan/plan.h"
#include "search/passes/passes.h"

namespace sluice::core {

struct SixTasks {
  static constexpr int64_t kBytes = 1024;  // of every object

  Program program;
  TaskCosts costs{std::vector<double>(6, 10), std::vector<int64_t>(6, 0)};

  SixTasks() {
    const ObjectId x = object("x", ObjectKind::Param), a = object("a", ObjectKind::Activation),
                   b = object("b", ObjectKind::Activation), c = object("c", ObjectKind::Activation);
    task("fa", x, a, Phase::Forward);
    task("fb", a, b, Phase::Forward);
    task("fc", b, c, Phase::Forward);
    task("bc", c, object("gc", ObjectKind::ActGrad), Phase::Backward);
    task("bb", b, object("gb", ObjectKind::ActGrad), Phase::Backward);
    task("ba", a, object("ga", ObjectKind::ActGrad), Phase::Backward);
  }

  // In the program's order, on one device. `again`: names of what is computed again, "a b".
  StepSchedule step(std::string_view again = "", const Limits& limits = {}) const {
    return unroll(program, {}, task_order(program, costs, false), costs, link(1), saves(again, Save::Again),
                  limits);
  }
  DeviceSchedule schedule(std::string_view again = "", const Limits& limits = {}) const {
    return step(again, limits).devices.front();
  }
  // Of the objects named, "a b"; the others are kept.
  Saves saves(std::string_view names, Save how) const {
    Saves out(program.objects().size(), Save::Keep);
    for (size_t o = 0; o < out.size(); ++o) {
      if (has(names, program.objects()[o].name)) out[o] = how;
    }
    return out;
  }
  // The names of the objects that are saved in this way, in the order of the program.
  std::string named(const Saves& saves, Save how) const {
    std::string out;
    for (size_t o = 0; o < saves.size(); ++o) {
      if (saves[o] == how) out += (out.empty() ? "" : " ") + program.objects()[o].name;
    }
    return out;
  }
  const std::string& name(const DeviceSchedule& s, uint32_t value) const {
    return program.object(s.values[value].object).name;
  }
  // The names of what is away in some gap, in the order of the program.
  std::string away(const DeviceSchedule& s, const std::vector<Gap>& gaps) const {
    std::string out;
    for (const Gap& g : gaps) {
      if (g.cut) out += (out.empty() ? "" : " ") + name(s, g.value);
    }
    return out;
  }
  // With the gaps of the values named cut.
  std::vector<Gap> gaps(const DeviceSchedule& s, std::string_view names) const {
    std::vector<Gap> out = gaps_of(s, link(1), Limits());
    for (Gap& g : out) g.cut = has(names, name(s, g.value));
    return out;
  }

  // The actions in the order of submission, each with what it waits for: "fa; store a (fa); fb".
  std::string words(const Plan& plan) const {
    std::string out;
    for (const Action& action : plan.actions) {
      out += (out.empty() ? "" : "; ") + describe(program, action);
      std::string waits;
      for (const uint32_t w : plan.waits_of(action)) {
        waits += (waits.empty() ? "" : ", ") + describe(program, plan.actions[w]);
      }
      if (!waits.empty()) out += " (" + waits + ")";
    }
    return out;
  }

  static bool has(std::string_view names, std::string_view name) {
    return fmt::format(" {} ", names).find(fmt::format(" {} ", name)) != std::string::npos;
  }
  // Room for this many objects.
  static Limits room(int64_t device, int64_t host = 100) {
    Limits limits;
    limits.bytes[kDevice] = device * kBytes;
    limits.bytes[kHost] = host * kBytes;
    return limits;
  }
  // Both directions take this long for an object.
  static Profile link(double ns) {
    Profile profile;
    profile.name = "test";
    profile.transfer_latency_ns = 0;
    profile.set_bytes_per_s(double(kBytes) / (ns * 1e-9));
    return profile;
  }

  ObjectId object(const std::string& name, ObjectKind kind, int layer = 0) {
    Object o{name, name, kind, DType::F32, kBytes, layer};
    if (name == "x") o.role = "weight";
    o.persistent = kind == ObjectKind::Param;
    o.round = o.persistent ? -1 : 0;
    return program.add(std::move(o));
  }
  void task(const std::string& name, ObjectId from, ObjectId to, Phase phase, int layer = 0, int round = 0) {
    const ObjectId bound[]{from, to};
    program.add(name, Cast{kBytes / 4, DType::F32, DType::F32}, bound, phase, layer, round, 0);
  }
};

}  // namespace sluice::core
