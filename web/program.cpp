// SPDX-License-Identifier: Apache-2.0
// The planner in a worker of a page: text in, text out. Progress goes to the page while the planner works.
#include <emscripten.h>
#include <emscripten/heap.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "plan_json/asked.h"
#include "plan_json/choices.h"
#include "report/report.h"

// clang-format off
EM_JS(void, sluice_progress, (const char* what, double done), {
  if (typeof postMessage === 'function') postMessage({progress: UTF8ToString(what), done: done});
});
// clang-format on

namespace {

using namespace sluice::core;
using nlohmann::json;

class Told final : public sluice::Observer {
 public:
  void progress(const sluice::Progress& progress) override {
    const double now = emscripten_get_now();
    constexpr double kEveryMs = 100;
    if (now - last_ms_ < kEveryMs && progress.what == what_) return;
    last_ms_ = now;
    what_ = progress.what;
    sluice_progress(what_.c_str(), double(progress.done));
  }

 private:
  double last_ms_ = 0;
  std::string what_;
};

json refusal(const sluice::Error& why) {
  json out = {{"error", why.message}, {"does_not_fit", why.kind == sluice::ErrorKind::DoesNotFit}};
  for (const auto& [name, value] : why.details) out["details"][name] = value;
  return out;
}

json answer(std::string_view question, std::string_view request) {
  if (question == "choices") return json::parse(choices_json());
  if (question == "memory") return {{"bytes", int64_t(emscripten_get_heap_size())}};
  auto asked = parse_asked(request);
  if (!asked.ok()) return refusal(asked.error());
  if (question == "machine") {
    const auto machine = machine_json(asked->machine_file, asked->machine_file_name);
    return machine.ok() ? json::parse(*machine) : refusal(machine.error());
  }
  if (question == "formula") {
    const auto counted = by_formula(*asked);
    if (!counted.ok()) return refusal(counted.error());
    return {{"formula",
             {{"tokens", counted->tokens},
              {"least_ns", counted->least_ns},
              {"compute_ns", counted->compute_ns},
              {"loading_ns", counted->loading_ns},
              {"device_bytes", counted->device_bytes},
              {"all_bytes", counted->all_bytes}}}};
  }
  Told told;
  const auto planned = plan_asked(*asked, told);
  if (!planned.ok()) return refusal(planned.error());
  const std::string plan = json_of(*planned);
  return {{"plan", plan}, {"page", to_html(plan)}, {"text", printed_of(*planned)}};
}

}  // namespace

// The answer to a question, as JSON that lives until the next one: "choices", what there is to choose from;
// "machine", what a machine file says; "formula", what counting says; "plan", the plan for a request
// (plan_json/asked.h), with its JSON, page and text; "memory", how much of it the program has taken.
extern "C" EMSCRIPTEN_KEEPALIVE const char* sluice_ask(const char* question, const char* request) {
  static std::string said;
  said = answer(question, request).dump();
  return said.c_str();
}
