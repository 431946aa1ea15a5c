// SPDX-License-Identifier: Apache-2.0
// Measured cells as pages: each benchmark of whole steps is a view of the same results.
#pragma once

#include <span>
#include <vector>

#include "bench/cell.h"
#include "pages/page.h"

namespace sluice::core {

// Times of forward pass, backward pass, optimizer and whole step, speed and MFU.
Page model_page(std::span<const CellResult> cells);
// Shares of the step, and of its forward pass, by class of ops; the ops that take longest.
Page kernels_page(std::span<const CellResult> cells);
// Bytes by phase, predicted beside measured, and a picture of each cell over its step.
Page memory_page(std::span<const CellResult> cells);

}  // namespace sluice::core
