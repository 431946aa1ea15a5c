// SPDX-License-Identifier: Apache-2.0
// Plans Llama-3 8B for a card that need not be there, and writes the page of the plan: plan PAGE.html
#include <cstdio>
#include <fstream>

#include <sluice/sluice.h>

sluice::Status run(const char* page) {
  const auto model = sluice::Model::preset("llama3-8b");
  if (!model.ok()) return model.error();
  const auto machine = sluice::Machine::preset("rtx4090");
  if (!machine.ok()) return machine.error();

  sluice::StepOptions options;
  options.seq_len = 8192;
  options.tokens_per_step = 131072;
  sluice::Caps caps;
  caps.device_bytes = int64_t{22} << 30;
  caps.host_bytes = int64_t{110} << 30;

  const auto plan = sluice::plan(*model, options, caps, *machine);
  if (!plan.ok() && plan.error().kind == sluice::ErrorKind::DoesNotFit) {
    std::fprintf(stderr, "too little memory: %s\n", plan.message().c_str());
    return plan.error();
  }
  if (!plan.ok()) return plan.error();
  std::printf("%s: %.0f tokens/s, MFU %.0f %%, %.1f GiB of device and %.1f GiB of host memory\n",
              machine->description().c_str(), plan->tokens_per_second(), 100 * plan->mfu(),
              double(plan->device_bytes()) / (1 << 30), double(plan->host_bytes()) / (1 << 30));
  std::ofstream(page) << plan->html();
  return {};
}

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "plan PAGE.html\n"), 2;
  const sluice::Status status = run(argv[1]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
