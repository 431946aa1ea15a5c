// SPDX-License-Identifier: Apache-2.0
#include "estimate/estimate.h"

#include <fmt/ranges.h>

#include "base/bytes.h"
#include "commands/outcome.h"
#include "commands/say.h"
#include "cost/card.h"
#include "io/file.h"

namespace sluice::core {
namespace {

Result<Device> device_of(const EstimateRequest& request) {
  SLUICE_ASSIGN(const Card card, find_card(request.machine));
  const auto [format, peak] = card.peak.bf16 > 0  ? std::pair("bf16", card.peak.bf16)
                              : card.peak.f16 > 0 ? std::pair("f16", card.peak.f16)
                                                  : std::pair("f32", card.peak.f32);
  Device device{.name = card.name,
                .memory_bytes = double(card.memory_bytes),
                .peak_flops = peak,
                .peak_format = format,
                .memory_rate = card.memory_rate,
                .multiprocessors = card.multiprocessors,
                .overhead_bytes = double(card.held_bytes[kDevice])};
  if (!(peak > 0 && card.memory_rate > 0)) {
    return error("--machine {}: arithmetic needs peak_flops and memory.bytes_per_s", request.machine);
  }
  if (!request.device_mem.empty()) {
    const auto bytes = parse_bytes(request.device_mem);
    if (!bytes.ok()) return error_at("--device-mem", bytes.error());
    device.memory_bytes = double(*bytes);
  }
  return device;
}

Result<EstimateInput> input_of(const EstimateRequest& request) {
  EstimateInput in;
  SLUICE_ASSIGN(in.subject, parse_subject(request.model));
  if (!request.machine.empty()) {
    SLUICE_ASSIGN(in.device, device_of(request));
  } else if (!request.device_mem.empty()) {
    return error("--device-mem {}: needs --machine", request.device_mem);
  }
  if (!request.optimizer.empty()) {
    in.recipe = find_recipe(request.optimizer);
    if (in.recipe == nullptr) {
      return error("--optimizer {}: allowed are {}", request.optimizer, fmt::join(names().recipes, ", "));
    }
  }
  in.batch = {request.seq_len, request.batch};
  in.accumulate = request.accumulate;
  in.devices = request.devices, in.tp = request.tp, in.pp = request.pp;
  if (!request.tokens.empty()) {
    SLUICE_ASSIGN(in.tokens, parse_amount("--tokens", request.tokens));
  }
  in.price = request.price;
  in.mfu = request.mfu;
  in.tokens_per_s = request.tokens_per_s;
  in.step_s = request.step_s;
  if (!request.mesh.empty()) {
    SLUICE_ASSIGN(in.mesh, parse_mesh(request.mesh));
  }
  return in;
}

Status run(const EstimateRequest& request) {
  SLUICE_ASSIGN(const EstimateInput in, input_of(request));
  SLUICE_ASSIGN(const Page page, estimate(in));
  if (!request.html.empty()) SLUICE_TRY(write_file(request.html, to_html(page)));
  say("{}", request.json ? to_json(page) : to_text(page));
  if (!request.html.empty() && !request.json) say("\nsaved: {}\n", request.html);
  return {};
}

}  // namespace

Outcome estimate(const EstimateRequest& request) {
  return outcome(run(request));
}

}  // namespace sluice::core
