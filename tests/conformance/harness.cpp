// SPDX-License-Identifier: Apache-2.0
#include "conformance/harness.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "conformance/compare.h"
#include "conformance/reference.h"
#include "ops/op.h"
#include "support/one_device.h"

namespace sluice::core::conformance {
namespace {

constexpr std::byte kGuard{0xa5};
constexpr std::byte kNan{0xff};      // NaN in every float type
constexpr std::byte kGarbage{0x55};  // a large finite number in every float type

struct Range {
  int64_t offset, bytes;
};

// Operands and workspace in an arena, each between guard zones of at least one alignment unit.
struct Layout {
  std::vector<Range> operands;
  Range workspace;
  int64_t bytes;
};

Layout place(const Operands& schema, int64_t workspace_bytes, int64_t alignment, int64_t shift) {
  Layout layout;
  int64_t offset = alignment + shift;
  const auto put = [&](int64_t bytes) {
    const Range range{offset, bytes};
    offset = align_up(offset + bytes, alignment) + alignment;
    return range;
  };
  for (const Operand& operand : schema) layout.operands.push_back(put(operand.bytes()));
  layout.workspace = put(workspace_bytes);
  layout.bytes = offset;
  return layout;
}

// The arena before the run.
std::vector<std::byte> compose(const Layout& layout, const Operands& schema,
                               const std::vector<Tensor>& operands, std::byte garbage) {
  std::vector<std::byte> image(static_cast<size_t>(layout.bytes), kGuard);
  const auto fill = [&](const Range& range) {
    std::fill_n(image.begin() + range.offset, range.bytes, garbage);
  };
  for (size_t i = 0; i < schema.size(); ++i) {
    const Range& range = layout.operands[i];
    if (schema[i].access == Access::Write) {
      fill(range);
    } else {
      std::copy(operands[i].bytes.begin(), operands[i].bytes.end(), image.begin() + range.offset);
    }
  }
  fill(layout.workspace);
  return image;
}

// What changed outside of written operands and the workspace.
std::vector<std::string> trespasses(const Layout& layout, const Operands& schema,
                                    const std::vector<std::byte>& before,
                                    const std::vector<std::byte>& after) {
  std::vector<std::string> found;
  const auto compare = [&](const Range& range, std::string_view what, std::string_view name) {
    const auto first = before.begin() + range.offset;
    const auto [was, is] = std::mismatch(first, first + range.bytes, after.begin() + range.offset);
    if (was == first + range.bytes) return;
    found.push_back(fmt::format("{} {} changed at byte {}", what, name, was - first));
  };
  int64_t end = 0;
  for (size_t i = 0; i < schema.size(); ++i) {
    const Range& range = layout.operands[i];
    compare({end, range.offset - end}, "guard before", schema[i].name);
    if (schema[i].access == Access::Read) compare(range, "read-only operand", schema[i].name);
    end = range.offset + range.bytes;
  }
  compare({end, layout.workspace.offset - end}, "guard before", "the workspace");
  end = layout.workspace.offset + layout.workspace.bytes;
  compare({end, layout.bytes - end}, "guard after", "the workspace");
  return found;
}

Status launch(Backend& backend, const Op& op, const Layout& layout, std::byte* device) {
  std::vector<Buffer> buffers;
  for (const Range& range : layout.operands) buffers.push_back({device + range.offset, range.bytes});
  const Buffer workspace{device + layout.workspace.offset, layout.workspace.bytes};
  const Command launch{0, kCompute, {}, Launch{&op, buffers, workspace}, 0};
  SLUICE_TRY(run_commands(backend, {&launch, 1}));
  return {};
}

// Operands whose bits differ.
void compare_bits(const Operands& schema, const std::vector<Tensor>& a, const std::vector<Tensor>& b,
                  std::string_view when, std::vector<std::string>& findings) {
  for (size_t i = 0; i < schema.size(); ++i) {
    if (a[i].bytes != b[i].bytes) findings.push_back(fmt::format("{}: other bits {}", schema[i].name, when));
  }
}

void append(std::vector<std::string>& all, const std::vector<std::string>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

}  // namespace

Result<Harness> Harness::create(Backend& backend, int64_t device_bytes, Demands demands) {
  SLUICE_ASSIGN(const Arenas arenas,
                backend.reserve({{kDevice, device_bytes}, {kHost, backend.alignment()}}));
  return Harness(backend, arenas[kDevice], device_bytes, demands);
}

Result<Harness::Outcome> Harness::run(const Op& op, const std::vector<Tensor>& operands, const Setup& setup) {
  const Operands schema = sluice::core::operands(op);
  const SharedOp shared = op;
  SLUICE_TRY(backend_->prepare({&shared, 1}));
  const Layout layout = place(schema, backend_->workspace_bytes(op), backend_->alignment(), setup.shift);
  if (layout.bytes > device_bytes_) {
    return error("the op needs {} with its operands and workspace, the arena has {}",
                 format_bytes(layout.bytes), format_bytes(device_bytes_));
  }
  const std::vector<std::byte> before = compose(layout, schema, operands, setup.garbage);
  std::vector<std::byte> after(before.size());
  SLUICE_TRY(backend_->upload({kDevice, 0}, before.data(), layout.bytes));
  SLUICE_TRY(launch(*backend_, op, layout, device_));
  SLUICE_TRY(backend_->download(after.data(), {kDevice, 0}, layout.bytes));

  Outcome outcome{{}, trespasses(layout, schema, before, after)};
  for (size_t i = 0; i < schema.size(); ++i) {
    const auto first = after.begin() + layout.operands[i].offset;
    outcome.operands.push_back({schema[i].format, {first, first + layout.operands[i].bytes}});
  }
  return outcome;
}

Result<std::vector<Tensor>> Harness::run(const Op& op, std::vector<Tensor> operands) {
  SLUICE_ASSIGN(Outcome outcome, run(op, operands, {kNan, 0}));
  return std::move(outcome.operands);
}

Verdict Harness::check(const Case& test) {
  const std::vector<Tensor> operands = make_operands(test.op, test.data);
  const Operands schema = sluice::core::operands(test.op);
  Verdict verdict;

  const Result<Outcome> first = run(test.op, operands, {kNan, 0});
  if (!first.ok()) return {{first.message()}};
  append(verdict.findings, first->trespasses);
  for (const Expected& expected : reference(test.op, operands)) {
    const auto i = static_cast<size_t>(expected.operand);
    const Comparison comparison =
        expected.residual < 0
            ? compare(schema[i].name, first->operands[i], expected)
            : compare_masters(schema[i].name, first->operands[i],
                              first->operands[static_cast<size_t>(expected.residual)], expected);
    append(verdict.findings, comparison.findings);
    verdict.elementwise = std::max(verdict.elementwise, comparison.elementwise);
    verdict.normwise = std::max(verdict.normwise, comparison.normwise);
  }

  const auto again = [&](const Setup& setup, std::string_view when) {
    const Result<Outcome> other = run(test.op, operands, setup);
    if (!other.ok()) return verdict.findings.push_back(fmt::format("{}: {}", when, other.message()));
    append(verdict.findings, other->trespasses);
    compare_bits(schema, first->operands, other->operands, when, verdict.findings);
  };
  again({kGarbage, 0}, "in a second run on other garbage");
  if (demands_.same_bits_when_shifted) again({kNan, backend_->alignment()}, "at other addresses");
  return verdict;
}

}  // namespace sluice::core::conformance
