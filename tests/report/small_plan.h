// SPDX-License-Identifier: Apache-2.0
// Plans of a tiny training program, small enough to check a report by hand and tight enough that everything
// happens in them: loads, stores, recomputation and stalls.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "lowering/build.h"
#include "report/report.h"
#include "search/planner.h"

namespace sluice::core {

struct SmallPlan {
  Program program;
  Plan plan;
  ReportContext context;

  PlanReport report() const { return make_report(program, plan, predicted_timeline(plan), context); }
  std::string json() const { return to_json(report(), program, plan); }
};

inline Profile small_profile() {
  Profile profile;
  profile.name = "test";
  profile.set_bytes_per_s(2e9);
  profile.copy_slowdown = 0.1;
  return profile;
}

inline Program small_program(int64_t processes = 1) {
  const ModelSpec model = model_of({32, 3, 4, 2, 8, 48, 61});
  OptimizerConfig optimizer;
  optimizer.part_elements = 1000;
  optimizer.deferred = true;
  StepShape shape{16, 8, 4, 2, 8};
  shape.processes = processes;
  return build_training(model, shape, {}, optimizer).program;
}

// `share` of the way from the least memory that works to one and a half times as much; 1.5 and more: no cap.
inline SmallPlan small_plan(double share) {
  SmallPlan out{small_program(), {}, {}};
  const Profile profile = small_profile();
  PlanRequest request;
  request.quick = true;  // which plan it is does not matter
  if (share < 1.5) {
    auto least = minimal_device_bytes(out.program, profile, request);
    EXPECT_TRUE(least.ok());
    request.caps[kDevice] = static_cast<int64_t>(double(*least) * (1 + share / 2));
  }
  auto plan = make_plan(out.program, profile, request);
  EXPECT_TRUE(plan.ok()) << (plan.ok() ? "" : plan.message());
  out.plan = std::move(*plan);
  out.context.facts = {{"machine", "a test"}, {"model", "tiny <script>"}};
  out.context.model = "tiny, 1 K parameters";
  out.context.caps[kDevice] = request.caps[kDevice];
  out.context.overhead_bytes[kDevice] = 100;
  return out;
}

// Of one of two processes that train together.
inline SmallPlan small_plan_of_processes() {
  SmallPlan out{small_program(2), {}, {}};
  Profile profile = small_profile();
  profile.network.bytes_per_s = 1e9;
  auto plan = make_plan(out.program, profile, {});
  EXPECT_TRUE(plan.ok()) << (plan.ok() ? "" : plan.message());
  out.plan = std::move(*plan);
  return out;
}

// The plan of some random decisions that fit.
inline SmallPlan random_small_plan(uint64_t seed) {
  SmallPlan out{small_program(), {}, {}};
  for (;; ++seed) {
    if (auto plan = random_plan(out.program, small_profile(), {}, seed * 1000)) {
      out.plan = std::move(*plan);
      return out;
    }
  }
}

}  // namespace sluice::core
