// SPDX-License-Identifier: Apache-2.0
// The table of [adapter]: low-rank adapters (LoRA).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/row.h"
#include "config/values.h"

namespace sluice::core {

constexpr GoesOn kOtherAdapters = refused("other adapters");
constexpr GoesOn kOtherStrength = allowed_by("adapter", "other weights of what was learnt");

struct AdapterKeys {
  int64_t rank = 0;             // 0: none
  std::optional<double> alpha;  // none: twice the rank
  bool rslora = false, decay = false;
  std::vector<std::string> targets, exclude;             // see names_part() in model/weights.h
  std::vector<std::string> rank_pattern, alpha_pattern;  // "pattern=number"
  std::vector<std::string> modules_to_save;
  std::string path;  // an adapter's folder
  std::string base;  // the folder of its base, where its own file names another place
};
// Calls key(name, field, constraint, row) for every key.
template <class Keys, class F>
void visit_adapter_keys(Keys& c, F&& key) {
  key("adapter.rank", c.rank, Range{0, 4096},
      {"rank of low-rank adapters (LoRA), which are trained in place of the weights; 0: the weights are",
       kOtherAdapters, Recorded::Always, KeyOf::Step});
  key("adapter.alpha", c.alpha, Range{1e-3, 1e6},
      {"what LoRA adapters add is times this over the rank; auto: twice the rank", kOtherStrength,
       Recorded::Always, KeyOf::Step});
  key("adapter.rslora", c.rslora, nullptr,
      {"over the root of the rank instead (rank-stabilised LoRA)", kOtherStrength, Recorded::Always,
       KeyOf::Step});
  key("adapter.targets", c.targets, nullptr,
      {"patterns over names of tensors, or ends of them such as q_proj, that LoRA adapters are for; empty, "
       "or all-linear: every product of a layer, without experts and head",
       kOtherAdapters, Recorded::Changed, KeyOf::Step});
  key("adapter.exclude", c.exclude, nullptr,
      {"patterns of what of these has no LoRA adapter", kOtherAdapters, Recorded::Changed, KeyOf::Step});
  key("adapter.rank_pattern", c.rank_pattern, nullptr,
      {"other ranks of some LoRA adapters, as pattern=rank; the last that names a tensor decides",
       kOtherAdapters, Recorded::Changed, KeyOf::Step});
  key("adapter.alpha_pattern", c.alpha_pattern, nullptr,
      {"the same of alpha of LoRA adapters, as pattern=alpha", kOtherStrength, Recorded::Changed,
       KeyOf::Step});
  key("adapter.modules_to_save", c.modules_to_save, nullptr,
      {"patterns of weights that are trained as they are, beside LoRA adapters of others", kOtherAdapters,
       Recorded::Changed, KeyOf::Step});
  key("adapter.decay", c.decay, nullptr,
      {"whether train.weight_decay shrinks LoRA adapters, too", kOtherStrength, Recorded::Always,
       KeyOf::Step});
  key("adapter.path", c.path, InputPath(),
      {"folder of a LoRA adapter (PEFT) that a run starts from; it says rank, alpha and targets",
       refused("another beginning. The folder itself is not needed any more"), Recorded::Changed});
  key("adapter.base", c.base, InputPath(),
      {"folder of the model that a LoRA adapter was made for, where its adapter_config.json names another "
       "place",
       same_bits("the base of a run with adapters may be moved: its values are compared, not its path")});
}

}  // namespace sluice::core
