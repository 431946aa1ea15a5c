// SPDX-License-Identifier: Apache-2.0
// The gradient rule of every op that has one: which backward tasks follow from a forward task.
//
// A rule is an overload of backward() in rules.cpp for the op's type. It asks Gradients for the gradient of
// what its task wrote, and for where to put those of what it read. It leaves out those that are not wanted
// where its op can.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "program/program.h"

namespace sluice::core {

class Gradients;

bool has_rule(const Op& op);

// Appends the backward tasks of a recorded node. REQUIRES: its first op has a rule.
void apply_rule(std::span<const Task> node, Gradients& gradients);

// The operand that the op writes and its rule makes again in passing, at no cost: it is not kept until then.
std::optional<size_t> remade_operand(const Op& op);

}  // namespace sluice::core
