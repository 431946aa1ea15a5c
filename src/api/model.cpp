// SPDX-License-Identifier: Apache-2.0
#include "sluice/model.h"

#include "base/status.h"
#include "io/model_folder.h"
#include "model/families/families.h"

namespace sluice {

Result<Model> Model::preset(std::string_view name) {
  SLUICE_ASSIGN(core::ModelSpec spec, core::model_preset(name));
  return Model(std::make_shared<core::ModelSpec>(std::move(spec)), {});
}

Result<Model> Model::from_config(std::string_view json) {
  SLUICE_ASSIGN(core::ModelSpec spec, core::parse_model_config(json));
  return Model(std::make_shared<core::ModelSpec>(std::move(spec)), {});
}

Result<Model> Model::from_pretrained(const std::filesystem::path& directory) {
  SLUICE_ASSIGN(const core::ConfigText config, core::read_model_config(directory));
  auto spec = core::parse_model_config(config.text);
  if (!spec.ok()) return core::error_at(config.path.string(), spec.error());
  return Model(std::make_shared<core::ModelSpec>(std::move(*spec)), directory);
}

std::string Model::family() const {
  return spec_->family;
}
int64_t Model::parameters() const {
  return spec_->params();
}
int64_t Model::vocabulary() const {
  return spec_->vocab;
}
int64_t Model::layers() const {
  return int64_t(spec_->layers.size());
}
int64_t Model::width() const {
  return spec_->dim;
}
std::vector<std::string> Model::notices() const {
  return spec_->notices;
}
std::string Model::config() const {
  return core::to_json(*spec_);
}

}  // namespace sluice
