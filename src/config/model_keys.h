// SPDX-License-Identifier: Apache-2.0
// The table of [model]: what is trained, and where it begins.
#pragma once

#include <string>

#include "config/row.h"
#include "config/values.h"

namespace sluice::core {

constexpr GoesOn kOtherModel = refused("another model; only what is in the file counts, not where it is");

struct ModelKeys {
  std::string preset = "tiny";  // ignored when `config` is given
  std::string path;             // of a Hugging Face folder: `config` and `weights`, where these are not given
  std::string config;           // path of a Hugging Face config.json
  std::string weights;          // path of a checkpoint to start from
  std::string unread = "refuse";
};
// Calls key(name, field, constraint, row) for every key.
template <class Keys, class F>
void visit_model_keys(Keys& c, F&& key) {
  key("model.preset", c.preset, ModelPresets(), {"shapes by name", kOtherModel});
  key("model.path", c.path, InputPath(),
      {"folder of a Hugging Face model: config.json, weights, tokenizer; or a run's directory", kOtherModel});
  key("model.config", c.config, InputPath(),
      {"path of a Hugging Face config.json, instead of a preset", kOtherModel});
  key("model.weights", c.weights, InputPath(),
      {"checkpoint to start from; empty: random weights",
       refused("another beginning. The file itself is not needed any more")});
  key("model.unread", c.unread, Choices{"refuse", "drop"},
      {"tensors of model.weights that the model does not read: an error, or they are left out"});
}

}  // namespace sluice::core
