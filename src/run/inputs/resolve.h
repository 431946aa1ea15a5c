// SPDX-License-Identifier: Apache-2.0
// A RunConfig made concrete: the model and its files, and the schedule; number formats and the optimizer are
// in setup/resolve.h.
#pragma once

#include "checkpoint/model_files.h"
#include "checkpoint/weights.h"
#include "config/config.h"
#include "setup/resolve.h"
#include "sluice/schedule.h"

namespace sluice::core {

// An error where one of the settings, each "key=value", is of a key that none of `read` is, or begins:
// `command` goes by no such key.
Status expect_read(const std::vector<std::string>& settings, std::string_view command,
                   const std::vector<std::string_view>& read);
// Keys that a command goes by which runs a model and trains none, and `more`.
std::vector<std::string_view> keys_read(std::vector<std::string_view> more);
// The same of one that plans steps on random tokens.
std::vector<std::string_view> keys_of_plans();

// Reads model.config, a file or a directory with a config.json, or takes model.preset; with the adapters that
// the configuration has.
Result<ModelSpec> resolve_model(const RunConfig& config);

// Where its values begin, of a model that is not made anew.
WeightsFrom weights_from(const RunConfig& config);

// The same model, trained as the configuration says (resolve_training()).
Result<ModelSpec> resolve_trained_model(const RunConfig& config);

// Files of the model beside its config.json and weights: from the folder of its tokenizer, or else of
// model.weights or model.config. Where none has anything any more, from the checkpoint that the run goes on
// from.
Result<ModelFiles> model_files_of(const RunConfig& config);

// The folder that a key of the model names, or the one of the file that it names; empty: the key is not set.
std::filesystem::path folder_of(const std::string& path);

// The tokenizer.json of the folder that model.weights names, or else of that of model.config, or else of the
// checkpoint that the run goes on from; nothing: text is bytes.
std::optional<std::filesystem::path> tokenizer_of(const RunConfig& config);

// That text is no tokens of a model whose tokenizer is not there; `key` says which text.
Error no_tokenizer(const RunConfig& config, int64_t vocab, std::string_view key);

// The most memory to read a tokenizer.json; 0: it cannot be read.
int64_t tokenizer_bytes(const std::filesystem::path& file);
// An error where the host cap has no room for one beside a process that holds so many bytes.
Status check_tokenizer_room(int64_t cap_bytes, int64_t held, const std::filesystem::path& file);

// REQUIRES: the learning rate is chosen.
sluice::Schedule schedule_of(const RunConfig& config);

}  // namespace sluice::core
