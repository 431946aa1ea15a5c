// SPDX-License-Identifier: Apache-2.0
#include "commands/bench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "bench/precision.h"
#include "bench/results.h"
#include "commands/outcome.h"
#include "commands/say.h"
#include "estimate/subject.h"
#include "io/directory.h"
#include "io/file.h"

namespace sluice::core {
namespace {

Result<ModelSpec> shapes_of(const std::string& model) {
  SLUICE_ASSIGN(Subject subject, parse_subject(model));
  if (!subject.spec)
    return error("model '{}': no steps are made of it; it needs layers with attention", model);
  return std::move(*subject.spec);
}

// Prints the page and writes its files.
Status publish(const Page& page, const Stamp& stamp, const BenchRequest& r) {
  SLUICE_ASSIGN(const auto paths, write_page(page, stamp, r.out_dir, r.what));
  say("{}", to_text(page));
  say("\nsaved: {}", (std::filesystem::path(r.out_dir) / (r.what + ".jsonl")).string());
  for (const auto& path : paths) say(", {}", path.filename().string());
  say("\n");
  return {};
}

Result<Ending> precision(const BenchRequest& r) {
  if (r.models.size() > 1) return error("bench precision: takes one model, got {}", r.models.size());
  const std::string model = r.models.empty() ? "tiny" : r.models.front();
  SLUICE_ASSIGN(const ModelSpec spec, shapes_of(model));
  const Page page = precision_page(model, spec);
  const Stamp stamp = stamp_on("any machine");
  SLUICE_TRY(make_directories(r.out_dir));
  SLUICE_TRY(write_file(std::filesystem::path(r.out_dir) / "precision.jsonl", to_jsonl(page, stamp)));
  SLUICE_TRY(publish(page, stamp, r));
  return Ending::Done;
}

struct Bench {
  std::string_view name;
  Result<Ending> (*run)(const BenchRequest& request);
};
constexpr Bench kBenches[] = {{"precision", precision}};

}  // namespace

std::vector<std::string> bench_names() {
  std::vector<std::string> out;
  for (const Bench& b : kBenches) out.emplace_back(b.name);
  return out;
}

Outcome bench(const BenchRequest& request) {
  for (const Bench& b : kBenches) {
    if (b.name == request.what) return outcome(b.run(request));
  }
  return {Ending::Failed,
          fmt::format("bench {}: allowed are {}", request.what, fmt::join(bench_names(), ", "))};
}

}  // namespace sluice::core
