// SPDX-License-Identifier: Apache-2.0
// Ops in the mix of a step, on a machine whose costs are known.
#include "measure/rehearsal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "backend/sim/sim_backend.h"
#include "backend/testing/forwarding.h"
#include "base/bytes.h"
#include "ops/op.h"
#include "support/one_device.h"

namespace sluice::core {
namespace {

const CountedOp kMany{Linear{64, 64, 64, DType::F32}, 90};
const CountedOp kFew{Cast{4096, DType::F32, DType::F32}, 9};
const CountedOp kOnce{AdamW{.elements = 4096}, 1};
const std::vector<CountedOp> kStep{kMany, kFew, kOnce};

double cost_alone(const Op& op) {
  if (std::holds_alternative<ClipScale>(op)) return 1e3;
  return std::holds_alternative<Linear>(op) ? 1e6 : 4e6;
}

// Products take twice as long where most of what ran last was a product: a clock that falls under their load.
class HotBackend final : public ForwardingBackend {
 public:
  HotBackend() : ForwardingBackend(std::make_unique<SimBackend>(SimOptions{})) {}

  int64_t workspace_bytes(const Op&) const override { return 640; }
  Status begin(uint32_t count, bool timed) override {
    runs.clear();
    copies.clear();
    most_copies_at_once = copies_at_once_ = 0;
    return ForwardingBackend::begin(count, timed);
  }
  Status submit(const Command& command) override {
    Command priced = command;
    if (const auto* launch = std::get_if<Launch>(&command.work)) {
      const bool product = std::holds_alternative<Linear>(*launch->op);
      constexpr double kForget = 0.95;
      heat_ = kForget * heat_ + (1 - kForget) * (product ? 1 : 0);
      priced.cost_ns = cost_alone(*launch->op) * (product && heat_ > 0.5 ? 2 : 1);
      ++runs[cost_key(*launch->op)];
      if (++launches_ == held_up) priced.cost_ns *= 1000;
      copies_at_once_ = 0;
    } else {
      ++copies[command.lane];
      most_copies_at_once = std::max(most_copies_at_once, ++copies_at_once_);
      waiting += !command.waits.empty();
    }
    return ForwardingBackend::submit(priced);
  }

  std::map<std::string, int64_t> runs;  // of the last batch
  std::map<Lane, int64_t> copies;       // the same
  int64_t waiting = 0;                  // copies that waited for something
  int64_t most_copies_at_once = 0;      // of the last batch, without a launch between them
  int64_t held_up = 0;                  // number of a launch that takes very long; 0: none

 private:
  double heat_ = 0;
  int64_t launches_ = 0, copies_at_once_ = 0;
};

std::vector<double> times(std::span<const CountedOp> ops, double ns, HotBackend& backend,
                          const Rehearsal::Traffic& traffic = {}) {
  Rehearsal rehearsal(ops, backend, BytesByTier(kGiB));
  const Arenas arenas = *backend.reserve(rehearsal.arena_bytes());
  EXPECT_TRUE(rehearsal.fill(backend, arenas, {}).ok());
  const auto found = rehearsal.time(backend, {ns, ns}, traffic, [](int64_t, int64_t) {});
  EXPECT_TRUE(found.ok()) << found.message();
  return found->ns;
}

TEST(Rehearsal, RunsOpsByTheirSharesOfAStep) {
  HotBackend backend;
  const double step_ns = 90 * 1e6 + 10 * 4e6;
  times(kStep, 10 * step_ns, backend);
  EXPECT_EQ(backend.runs.at(cost_key(kMany.op)), 900);
  EXPECT_EQ(backend.runs.at(cost_key(kFew.op)), 90);
  EXPECT_EQ(backend.runs.at(cost_key(kOnce.op)), 10);
}

// What is short three times, to have a median; what is long once.
TEST(Rehearsal, RunsEveryOp) {
  const CountedOp brief{ClipScale{.slots = 4, .max_norm = 1}, 1};
  const std::vector<CountedOp> step{{kMany.op, 1000}, kOnce, brief};
  HotBackend backend;
  times(step, 1e8, backend);
  EXPECT_EQ(backend.runs.at(cost_key(brief.op)), 3);
  EXPECT_EQ(backend.runs.at(cost_key(kOnce.op)), 1);
  EXPECT_NEAR(double(backend.runs.at(cost_key(kMany.op))), 250, 5)
      << "2.5 times as long, as a step is longer";
}

// As many copies as a step has for its time, each in its turn between the ops.
TEST(Rehearsal, CopiesBesideTheOps) {
  HotBackend backend;
  const Copy copy{{kHost, 0}, {kDevice, 0}, kMiB};
  const double step_ns = 90 * 1e6 + 10 * 4e6;
  times(kStep, 10 * step_ns, backend, {{{{kLoad, copy}, 20, 1e6}, {{kStore, copy}, 0.5, 1e6}}, 0});
  EXPECT_EQ(backend.copies[kLoad], 200);
  EXPECT_EQ(backend.copies[kStore], 5);
  EXPECT_EQ(backend.waiting, 205);
  EXPECT_EQ(backend.runs.at(cost_key(kMany.op)), 900);
}

// Ops that run equally often do not all come at once and leave the copies to follow in one go: a backend that
// queues only so many commands would have none to run.
TEST(Rehearsal, CopiesComeBetweenOps) {
  HotBackend backend;
  std::vector<CountedOp> layer;
  for (const int64_t width : {32, 64, 96, 128}) layer.push_back({Linear{64, 64, width, DType::F32}, 100});
  const double step_ns = 400 * 1e6;
  const Copy copy{{kHost, 0}, {kDevice, 0}, kMiB};
  times(layer, 2 * step_ns, backend, {{{{kLoad, copy}, 300, 1e5}, {{kStore, copy}, 300, 1e5}}, 0});
  EXPECT_EQ(backend.copies[kLoad], 600);
  EXPECT_LE(backend.most_copies_at_once, 2) << "one of each link is an op's share";
}

// A link that cannot keep up would make the ops wait, and cool.
TEST(Rehearsal, CopiesNoMoreThanALinkCan) {
  HotBackend backend;
  const Copy copy{{kHost, 0}, {kDevice, 0}, kMiB};
  const double step_ns = 90 * 1e6 + 10 * 4e6;
  times(kStep, 10 * step_ns, backend,
        {{{{kLoad, copy}, 1000, step_ns / 100}, {{kStore, copy}, 0, step_ns}}, 0});
  EXPECT_LE(backend.copies[kLoad], 1000);
  EXPECT_GE(backend.copies[kLoad], 800);
  EXPECT_EQ(backend.copies[kStore], 0);
}

// One run that was held up does not make the rehearsal a short one.
TEST(Rehearsal, LastsAsLongAsAskedFor) {
  HotBackend backend;
  backend.held_up = 2;  // the first op's second
  const double step_ns = 90 * 1e6 + 10 * 4e6;
  times(kStep, 10 * step_ns, backend);
  EXPECT_EQ(backend.runs.at(cost_key(kMany.op)), 900);
}

// What an op takes is what it takes beside the others, not alone.
TEST(Rehearsal, FindsWhatTheMixCosts) {
  HotBackend among_products, among_others;
  const double hot = times(kStep, 1e9, among_products)[0];
  EXPECT_DOUBLE_EQ(hot, 2 * cost_alone(kMany.op));
  const std::vector<CountedOp> mostly_other{{kMany.op, 9}, {kFew.op, 90}};
  const double cool = times(mostly_other, 1e9, among_others)[0];
  EXPECT_DOUBLE_EQ(cool, cost_alone(kMany.op));
}

const std::vector<CountedOp> kPlaced{
    kMany,
    kFew,
    kOnce,
    {Embed{.tokens = 32, .vocab = 61, .dim = 64, .dtype = DType::F32}, 1},
    {EmbedBwd{.tokens = 32, .vocab = 61, .dim = 64, .dtype = DType::F32, .grad_dtype = DType::F32}, 1},
    {HeadLoss{.tokens = 32,
              .dim = 64,
              .vocab = 61,
              .sub_tokens = 32,
              .dtype = DType::BF16,
              .grad_dtype = DType::F32},
     1}};

bool overlap(const Buffer& a, const Buffer& b) {
  return a.data < b.data + b.bytes && b.data < a.data + a.bytes;
}

bool overlap(const std::vector<Buffer>& some, const std::vector<Buffer>& others) {
  for (const Buffer& a : some) {
    for (const Buffer& b : others) {
      if (overlap(a, b)) return true;
    }
  }
  return false;
}

class Placed {
 public:
  explicit Placed(int64_t most_bytes) {
    HotBackend backend;
    Rehearsal rehearsal(kPlaced, backend, BytesByTier(most_bytes));
    bytes = rehearsal.arena_bytes()[kDevice];
    const Arenas arenas = *backend.reserve(rehearsal.arena_bytes());
    EXPECT_TRUE(rehearsal.fill(backend, arenas, {}).ok());
    for (size_t i = 0; i < kPlaced.size(); ++i) {
      const Launch launch = rehearsal.launch(i);
      const Operands of_op = operands(kPlaced[i].op);
      std::vector<Buffer> all{launch.workspace};
      exact.push_back(launch.workspace);
      for (size_t k = 0; k < of_op.size(); ++k) {
        const Buffer& at = launch.operands[k];
        for (const Buffer& other : all) EXPECT_FALSE(overlap(at, other)) << to_text(kPlaced[i].op);
        all.push_back(at);
        const bool floats = of_op[k].format == DType::F32 || of_op[k].format == DType::BF16;
        (!floats ? exact : of_op[k].access == Access::Read ? read : written).push_back(at);
      }
      for (const Buffer& b : all) EXPECT_LE(b.data + b.bytes - static_cast<std::byte*>(nullptr), bytes);
    }
  }

  int64_t bytes = 0;
  std::vector<Buffer> read, written;  // floats
  std::vector<Buffer> exact;          // ids, arguments and workspaces
};

TEST(Rehearsal, KeepsWhatIsReadApartFromWhatIsWritten) {
  const Placed placed(kGiB);
  EXPECT_FALSE(overlap(placed.read, placed.written));
  EXPECT_FALSE(overlap(placed.exact, placed.read));
  EXPECT_FALSE(overlap(placed.exact, placed.written));
}

// Keeps what is written to the device.
class Uploads final : public ForwardingBackend {
 public:
  Uploads() : ForwardingBackend(std::make_unique<SimBackend>(SimOptions{})) {}
  Status upload(Location to, const std::byte* from, int64_t bytes) override {
    if (to.tier == kDevice) at[to.offset].assign(from, from + bytes);
    return ForwardingBackend::upload(to, from, bytes);
  }
  std::map<int64_t, std::vector<std::byte>> at;  // by offset
};

// The one operand of an op that is no float from a block, in a rehearsal for these rows.
std::vector<int32_t> rehearsed_numbers(const Op& op, const RowSample& rows) {
  const CountedOp counted{op, 1};
  Uploads backend;
  Rehearsal rehearsal(std::span(&counted, 1), backend, BytesByTier(kGiB), rows);
  const Arenas arenas = *backend.reserve(rehearsal.arena_bytes());
  EXPECT_TRUE(rehearsal.fill(backend, arenas, {}).ok());
  EXPECT_EQ(backend.at.size(), 1u) << "all others are floats from blocks";
  const std::vector<std::byte>& bytes = backend.at.begin()->second;
  std::vector<int32_t> positions(bytes.size() / sizeof(int32_t));
  std::memcpy(positions.data(), bytes.data(), bytes.size());
  return positions;
}

TEST(Rehearsal, PackedAttentionMeetsDocumentsAsTheDataHasThem) {
  const RowSample rows{16, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5}};
  const auto attention = [](bool packed) {
    return AttnFwd{{1, 16, 16, 1, 1, 8, 0, packed, DType::F32}, DType::F32, false};
  };
  EXPECT_EQ(rehearsed_numbers(attention(true), rows), rows.positions);
  std::vector<int32_t> one_document(16);
  std::iota(one_document.begin(), one_document.end(), 0);
  EXPECT_EQ(rehearsed_numbers(attention(true), {}), one_document);
  EXPECT_EQ(rehearsed_numbers(attention(false), rows), one_document);
}

// A state begins anew with every row, of which a chunk has several, and with every document in it.
TEST(Rehearsal, StatesMeetRowsAndDocumentsAsTheDataHasThem) {
  const DeltaRule rule{8, {1, 1, 8, 8}, DType::F32};
  using Positions = std::vector<int32_t>;
  EXPECT_EQ(rehearsed_numbers(rule, {}), (Positions{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(rehearsed_numbers(rule, {4, {}}), (Positions{0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(rehearsed_numbers(rule, {4, {0, 1, 2, 0}}), (Positions{0, 1, 2, 0, 0, 1, 2, 0}));
}

// Even loads would fill the tiles of grouped products, which those of a step do not.
TEST(Rehearsal, ExpertsHaveUnequallyManyRows) {
  const Mixture mixture{64, 16, 4};
  const std::vector<int32_t> routing =
      rehearsed_numbers(CombineExperts{mixture, 8, DType::F32, false, false}, {});
  const RoutingLayout layout{mixture.experts, mixture.rows()};
  ASSERT_EQ(int64_t(routing.size()), layout.elements());
  std::set<int32_t> loads;
  std::set<std::pair<int32_t, int32_t>> chosen;  // experts of tokens
  for (int32_t e = 0; e < mixture.experts; ++e) {
    const int32_t begin = routing[size_t(e)], end = routing[size_t(e) + 1];
    loads.insert(end - begin);
    for (int32_t row = begin; row < end; ++row) {
      const int32_t choice = routing[size_t(layout.choice() + row)];
      EXPECT_EQ(routing[size_t(layout.row() + choice)], row);
      chosen.emplace(choice / int32_t(mixture.top_k), e);
    }
  }
  EXPECT_EQ(routing[size_t(mixture.experts)], mixture.rows());
  EXPECT_EQ(int64_t(chosen.size()), mixture.rows()) << "a token has an expert at most once";
  EXPECT_GT(loads.size(), 2u);
}

// Ops share what floats there are. Ids, and workspaces that may hold some, are never overwritten by them:
// kernels address memory by them.
// Commands that are on their way take memory, which a cap counts as any other.
TEST(Rehearsal, HasFewerCommandsWhereMemoryIsShort) {
  std::vector<CountedOp> ops;
  for (int64_t i = 1; i <= 12; ++i) ops.push_back({Cast{4096 * i, DType::F32, DType::F32}, 5000});
  const double half_a_step_ns = 12 * 5000 * 4e6 / 2;
  const auto commands = [&](int64_t host_bytes) {
    HotBackend backend;
    Rehearsal rehearsal(ops, backend, {{kDevice, kGiB}, {kHost, host_bytes}});
    const Arenas arenas = *backend.reserve(rehearsal.arena_bytes());
    EXPECT_TRUE(rehearsal.fill(backend, arenas, {}).ok());
    const auto found = rehearsal.time(backend, {half_a_step_ns, half_a_step_ns}, {}, [](int64_t, int64_t) {});
    EXPECT_TRUE(found.ok()) << found.message();
    for (const auto& [op, runs] : backend.runs) EXPECT_GE(runs, 3) << op;
    EXPECT_EQ(backend.runs.size(), ops.size());
    return std::accumulate(backend.runs.begin(), backend.runs.end(), int64_t{0},
                           [](int64_t sum, const auto& of) { return sum + of.second; });
  };
  EXPECT_EQ(commands(kGiB), 12 * 2000);
  EXPECT_EQ(commands(16 << 20), 12 * 1365);
  // So many take 8 MiB, which is what a process has beside everything else.
  EXPECT_EQ(commands(1 << 20), 12 * 683);
}

TEST(Rehearsal, TakesLessWhereMemoryIsShort) {
  const Placed wide(kGiB), narrow(wide.bytes - 1);
  EXPECT_LT(narrow.bytes, wide.bytes);
  EXPECT_TRUE(overlap(narrow.read, narrow.written));
  EXPECT_FALSE(overlap(narrow.exact, narrow.read));
  EXPECT_FALSE(overlap(narrow.exact, narrow.written));
}

}  // namespace
}  // namespace sluice::core
