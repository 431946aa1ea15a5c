// SPDX-License-Identifier: Apache-2.0
// Records that say which answer is better, as objects of one answer each, which are read like any others.
#pragma once

#include <utility>

#include "records/record.h"

namespace sluice::core {

// A pair of answers as two objects that have the same prompt.
struct AnswerPair {
  ChatValue chosen, rejected;
  std::string form;  // "chosen and rejected, after prompt"
};

// TRL's, axolotl's and LLaMA-Factory's chosen and rejected, and OpenAI's preferred_output and
// non_preferred_output. Without a prompt the answers' common beginning is it. Errors: one of them is missing,
// they are of two kinds, or have nothing in common.
Result<AnswerPair> split_pair(ChatValue object);

// Takes the mark out of an object: TRL's label, or LLaMA-Factory's kto_tag. Errors: it has none, or another
// value than true and false.
Result<bool> take_mark(ChatValue& object);

}  // namespace sluice::core
