// SPDX-License-Identifier: Apache-2.0
// Answers of planning on machines that are only simulated: a search takes up to minutes, and a study
// of many that was stopped goes on with what it had. Found by content: everything that the search sees, and
// the program that searches. Numbers of whoever wrote to the folder are shown, and nothing else is done with
// them.
#pragma once

#include <filesystem>
#include <optional>

#include "io/sealed.h"
#include "what_if/outlook.h"

namespace sluice::core {

// Text of what is kept, and back; nothing: it is none.
std::string to_kept(const Outlook& found);
std::string to_kept(bool found);
std::optional<Outlook> kept_outlook(std::string_view text);
std::optional<bool> kept_bool(std::string_view text);

// The answer to one question of that kind. Without a folder, on a machine that is here, and of a run that
// goes on nothing is kept.
template <class Answer>
class KeptAnswer {
 public:
  KeptAnswer(std::string kind, const RunConfig& config, const Machine& machine, const StepSpec& step,
             const std::filesystem::path& folder);

  std::optional<Answer> find() const;
  void keep(const Answer& found) const;

 private:
  SealedRequest request_;
  std::optional<PlanCache> cache_;
};
extern template class KeptAnswer<Outlook>;
extern template class KeptAnswer<bool>;

}  // namespace sluice::core
