// SPDX-License-Identifier: Apache-2.0
// Plans of small programs on every machine under many caps, against committed makespans: none may get worse.
// Alone it compares a cell of every group, prints what got better and fails for what got worse.
//
// --all: compare all cells; some minutes.
//
// --update: plan everything, say what changed, rewrite plans.csv.
//
// --whole-models: full-size models and whole_models.csv instead; minutes. With --update, too.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "io/file.h"
#include "table.h"

namespace sluice::core::corpus {
namespace {

bool& whole_models() {
  static bool whole = false;
  return whole;
}

bool& all_groups() {
  static bool all = false;
  return all;
}

// What the tests plan by default takes a minute of a core: one cell of every group, another in the next.
std::vector<Group> tested_groups() {
  std::vector<Group> out = groups(whole_models());
  if (all_groups() || whole_models()) return out;
  for (size_t i = 0; i < out.size(); ++i) out[i].caps = {out[i].caps[i % out[i].caps.size()]};
  return out;
}

std::filesystem::path table_path() {
  return std::filesystem::path(SLUICE_CORPUS) / (whole_models() ? "whole_models.csv" : "plans.csv");
}

Table plan_group(const Group& group) {
  const Program program = build_training(group.config, group.step, group.numerics, group.optimizer).program;
  const Profile profile = profile_of(group);
  Table out;
  for (const Caps& caps : group.caps) out[name_of(group, caps)] = plan_cell(program, profile, caps);
  return out;
}

class Plans : public testing::TestWithParam<Group> {};

TEST_P(Plans, AreNotWorseThanTheCommittedOnes) {
  const auto text = read_file(table_path());
  ASSERT_TRUE(text.ok()) << text.message();
  const auto committed = parse_table(*text);
  ASSERT_TRUE(committed.ok()) << committed.message();
  int better = 0;
  for (const auto& [cell, row] : plan_group(GetParam())) {
    const auto it = committed->find(cell);
    if (it == committed->end()) {
      ADD_FAILURE() << cell << ": not in " << table_path() << "; run sluice_test_corpus --update";
      continue;
    }
    const Comparison c = compare(cell, it->second, row);
    if (c.verdict == Verdict::Worse) ADD_FAILURE() << c.words;
    if (c.verdict != Verdict::Better) continue;
    ++better;
    fmt::print("better: {}\n", c.words);
  }
  if (better > 0) fmt::print("{} cells are better than committed: run sluice_test_corpus --update\n", better);
}

std::string test_name(const testing::TestParamInfo<Group>& info) {
  std::string name = info.param.name();
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Corpus, Plans, testing::ValuesIn(tested_groups()), test_name);

int update() {
  const std::vector<Group> all = groups(whole_models());
  Table table;
  std::mutex mutex;
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < all.size(); i = next++) {
      Table rows = plan_group(all[i]);
      const std::lock_guard lock(mutex);
      table.merge(rows);
    }
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
      threads.emplace_back(work);
  }
  const auto text = read_file(table_path());
  const auto committed = text.ok() ? parse_table(*text) : Result<Table>(Table());
  for (const auto& [cell, row] : committed.ok() ? *committed : Table()) {
    const auto it = table.find(cell);
    if (it == table.end()) continue;
    const Comparison c = compare(cell, row, it->second);
    if (c.verdict != Verdict::Same)
      fmt::print("{}: {}\n", c.verdict == Verdict::Better ? "better" : "WORSE", c.words);
  }
  const Status written = write_file(table_path(), to_csv(all, table));
  fmt::print("{}\n", written.ok() ? fmt::format("{}: {} cells", table_path().string(), table.size())
                                  : written.message());
  return written.ok() ? 0 : 1;
}

}  // namespace
}  // namespace sluice::core::corpus

int main(int argc, char** argv) {
  bool rewrite = false;
  for (int i = 1; i < argc; ++i) {
    sluice::core::corpus::whole_models() |= argv[i] == std::string_view("--whole-models");
    sluice::core::corpus::all_groups() |= argv[i] == std::string_view("--all");
    rewrite |= argv[i] == std::string_view("--update");
  }
  if (rewrite) return sluice::core::corpus::update();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
