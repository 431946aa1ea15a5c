// SPDX-License-Identifier: Apache-2.0
// Texts on standard output while they are made: the first that is not whole yet as it comes, the others when
// those before them are.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "generate/generator.h"
#include "generate/text_stream.h"

namespace sluice::core {

struct GeneratedTextOptions {
  Decode decode;
  std::vector<std::string> stop_strings;
  bool json = false;       // a line of JSON per text
  bool log_probs = false;  // with log p of each token
  int64_t samples = 1;     // of each prompt
  bool raw = false;        // as it is, also on a terminal
};

class GeneratedText : public TextSink {
 public:
  // `prompts` as they were given, to print. Borrows tasks and `asked`.
  GeneratedText(GeneratedTextOptions options, std::vector<std::string> prompts,
                std::span<const GenerationTask> tasks, const std::atomic<bool>& asked);

  Result<bool> token(size_t text, const ChosenToken& chosen) override;
  Status ended(size_t text, TextEnd end) override;
  bool stop() override { return asked_; }

  // Ends the line of a text that was left unfinished.
  void leave();

 private:
  struct Text {
    TextStream stream;
    std::vector<int32_t> tokens;
    std::vector<float> log_probs;
    std::string end;  // why; empty: it goes on
  };
  const std::string& prompt() const { return prompts_[shown_ / size_t(options_.samples)]; }
  void show_head();
  void show_whole();
  void show_json() const;

  const GeneratedTextOptions options_;
  const std::vector<std::string> prompts_;
  const std::atomic<bool>& asked_;
  std::vector<Text> texts_;
  size_t shown_ = 0;        // the first text that is not whole on standard output
  size_t shown_bytes_ = 0;  // of it, there already
  bool begun_ = false;      // its head is there
};

}  // namespace sluice::core
