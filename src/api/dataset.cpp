// SPDX-License-Identifier: Apache-2.0
#include "sluice/dataset.h"

#include "run/data/data.h"
#include "run/prepare/prepare.h"

namespace sluice {

Result<Dataset> Dataset::text(const Plan& plan, const TextOptions& options) {
  if (options.paths.empty()) return core::error("paths: there are none");
  if (options.cache.empty()) return core::error("cache: a folder to keep the tokens in is needed");
  if (!(options.heldout >= 0 && options.heldout <= 0.9))
    return core::error("heldout = {}: allowed are numbers from 0 to 0.9", options.heldout);
  core::RunConfig config = plan.prepared()->config;
  for (const std::filesystem::path& path : options.paths) config.data.paths.push_back(path.string());
  config.data.include = options.include;
  config.data.exclude = options.exclude;
  config.data.heldout = options.heldout;
  config.data.cache = options.cache.string();
  config.data.mode = plan.packed() ? "packed" : "contiguous";
  config.data.respect_documents = plan.packed();
  SLUICE_ASSIGN(config, core::typed_config(options.settings, std::move(config), core::KeyOf::Data));
  SLUICE_ASSIGN(core::RunData data, core::open_data(config, plan.prepared()->model.vocab));
  return Dataset(std::make_shared<const core::RunData>(std::move(data)), plan.tokens_per_step());
}

Dataset Dataset::random(const Plan& plan) {
  // Random tokens open no file.
  return Dataset(std::make_shared<const core::RunData>(
                     *core::open_data(plan.prepared()->config, plan.prepared()->model.vocab)),
                 plan.tokens_per_step());
}

bool Dataset::has_heldout() const {
  return data_->heldout != nullptr;
}

std::vector<std::string> Dataset::notices() const {
  std::vector<std::string> out = data_->heldout_notices;
  out.insert(out.end(), data_->notices.begin(), data_->notices.end());
  if (!data_->unlearnt.empty()) out.push_back(data_->unlearnt);
  return out;
}

BatchRows Dataset::batch(int64_t steps_done) const {
  core::Rows rows(core::kPlainBatch, tokens_per_step_);
  core::fill_rows(*data_->train, steps_done, 0, rows.part(0, rows.tokens()));
  const auto column = [&](core::BatchColumn c) {
    const std::span<const int32_t> all = rows.column(c);
    return std::vector<int32_t>(all.begin(), all.end());
  };
  return {column(core::BatchColumn::Tokens), column(core::BatchColumn::Targets),
          column(core::BatchColumn::Positions)};
}

}  // namespace sluice
