// SPDX-License-Identifier: Apache-2.0
// What is trained: an architecture, and where its weights come from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/status.h"

namespace sluice {

namespace core {
struct ModelSpec;
}

// A value: copies share what they hold and never change.
class Model {
 public:
  // Shapes by name, "llama3-8b"; weights are random. The error of an unknown name lists them.
  static Result<Model> preset(std::string_view name);
  // From the text of a Hugging Face config.json; weights are random.
  static Result<Model> from_config(std::string_view json);
  // From a folder with config.json and model.safetensors, or shards of it with an index.
  static Result<Model> from_pretrained(const std::filesystem::path& directory);

  std::string family() const;  // "llama": model_type of a config.json
  int64_t parameters() const;
  int64_t vocabulary() const;
  int64_t layers() const;
  int64_t width() const;
  // Notices for the author of its config.json, such as sizes that it leaves out; a sentence each.
  std::vector<std::string> notices() const;
  // As the text of a config.json.
  std::string config() const;
  // Where the weights are; empty: random ones.
  const std::filesystem::path& weights() const { return weights_; }

  const core::ModelSpec& spec() const { return *spec_; }

 private:
  Model(std::shared_ptr<const core::ModelSpec> spec, std::filesystem::path weights)
      : spec_(std::move(spec)), weights_(std::move(weights)) {}

  std::shared_ptr<const core::ModelSpec> spec_;
  std::filesystem::path weights_;
};

}  // namespace sluice
