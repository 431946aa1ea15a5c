// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <filesystem>

#include "base/checksum.h"
#include "checkpoint/checkpoint.h"
#include "fuzz.h"
#include "run/directory/history.h"

namespace sluice::core::fuzz {

void metrics(Bytes input) {
  const MemoryFile file(input);
  const std::filesystem::path taken =
      std::filesystem::temp_directory_path() / fmt::format("sluice-fuzz-{}.jsonl", ::getpid());
  for (const int64_t last_step : {int64_t{0}, int64_t{3}, INT64_MAX})
    (void)take_history(file.path(), taken, last_step);
  std::error_code ignored;
  std::filesystem::remove(taken, ignored);
}

std::string seed_metrics() {
  return R"({"step":1,"loss":5.5,"gradient_norm":1.25,"tokens":64}
{"step":2,"loss":5.25,"gradient_norm":null}
{"step":2,"heldout_loss":5.125}
{"step":3,"lo)";
}

// As it is, and with the right checksum behind it, of which the seed has none.
void checkpoint(Bytes input) {
  const std::string text(text_in(input));
  const std::string sealed = fmt::format("{}  \"checksum\": \"{}\"\n}}\n", text, checksum_of(text).to_text());
  for (const std::string& each : {text, sealed}) {
    const auto info = parse_checkpoint_info(each, "checkpoint.json");
    if (!info.ok()) continue;
    require(info->step >= 0, "a step below 0");
    for (const auto& [name, sum] : info->files) require(sum.bytes >= 0, "a file of less than nothing");
  }
}

std::string seed_checkpoint() {
  return R"({
  "format": 3,
  "step": 7,
  "weights": "own",
  "manifest": {"train.seed": "1", "shape.seq_len": "16"},
  "files": {"model.safetensors": {"bytes": 8, "xxh128": "06b05ab6733a618578af5f94892f3950"},
            "optimizer.safetensors": {"bytes": 9, "xxh128": "06b05ab6733a618578af5f94892f3950"}},
)";
}

}  // namespace sluice::core::fuzz
