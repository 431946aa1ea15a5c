// SPDX-License-Identifier: Apache-2.0
// A Python function that rewards answers, in a process of its own.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/descriptor.h"

namespace sluice::core {

// It is called with keyword arguments and returns a number for each answer, or None for those that it does
// not judge. What it prints, and what it dies of, goes to a log.
class RewardFunction {
 public:
  // `function`: as rollout.rewards has it, of a file that is there. The process runs until this ends.
  static Result<std::unique_ptr<RewardFunction>> start(std::string function, std::filesystem::path log);
  ~RewardFunction();
  RewardFunction(const RewardFunction&) = delete;
  RewardFunction& operator=(const RewardFunction&) = delete;

  // The rewards of `count` answers; NaN: None. `arguments`: a JSON object on one line. Errors, after which it
  // is asked no more: the process ended, with its last words, takes longer, or says anything else.
  Result<std::vector<double>> ask(std::string_view arguments, size_t count, double timeout_s);

 private:
  RewardFunction(std::string function, std::filesystem::path log, Descriptor pipe, pid_t process)
      : function_(std::move(function)), log_(std::move(log)), pipe_(std::move(pipe)), process_(process) {}
  // The error of a process that ended or is late.
  Error failed(const std::string& how) const;

  const std::string function_;
  const std::filesystem::path log_;
  Descriptor pipe_;
  const pid_t process_;
};

}  // namespace sluice::core
