// SPDX-License-Identifier: Apache-2.0
#include "run/directory/save_plan.h"

#include <filesystem>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "config/files/load_config.h"
#include "describe/describe.h"
#include "io/directory.h"
#include "io/file.h"
#include "trace/trace.h"

namespace sluice::core {

Status save_plan(const Prepared& p, const RunConfig& config) {
  return save_plan(p, config, to_json(report_of(p), p.stages.main.model.program, p.stages.main.plan), 1);
}

Status save_plan(const Prepared& p, const RunConfig& config, std::string_view json, int threads) {
  const std::filesystem::path dir = config.run.dir;
  const Program& program = p.stages.main.model.program;
  const Plan& plan = p.stages.main.plan;
  SLUICE_TRY(make_directories(dir));
  SLUICE_TRY(write_file(dir / "config.toml", to_toml(config)));
  const std::vector<Interval> predicted = predicted_timeline(plan);
  const std::pair<std::string_view, std::function<std::string()>> files[] = {
      {"plan.json", [&] { return std::string(json); }},
      {"predicted.json", [&] { return chrome_trace(program, plan, predicted); }},
      {"plan.txt", [&] { return describe(p) + "\n" + to_text(program, plan); }},
      {"timeline.svg", [&] { return timeline_svg(program, plan, predicted, title_of(p)); }},
  };
  std::vector<Status> written(std::size(files));
  for_each_parallel(std::ssize(files), threads, [&](int64_t i) {
    written[size_t(i)] = write_file(dir / files[i].first, files[i].second());
  });
  for (Status& status : written) SLUICE_TRY(std::move(status));
  return {};
}

}  // namespace sluice::core
