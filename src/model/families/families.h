// SPDX-License-Identifier: Apache-2.0
// Hugging Face's config.json to ModelSpec and back, and named shapes. A family is a row of a table: its model
// type, its class of transformers, and what of the architecture it fixes or reads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/spec.h"

namespace sluice::core {

// Reads the text of a config.json of one of the families, as transformers 4 and 5 write it. What it leaves
// out is as in transformers' class of the family. Sizes are so only where it says its model_type, and a
// notice of the model names them. Keys that say nothing about the arithmetic are passed over, as checkpoints
// carry many. A value that would change it in a way Sluice does not do (another activation, another kind of
// rotary embedding, experts) is an error. So is a key that is one letter off one that is read.
//
// A model that wraps a text model (gemma3, qwen3_5) is that one, whose tensors have kTextPart
// (io/safetensors.h) in front of their names.
Result<ModelSpec> parse_model_config(std::string_view json);
// Whether a config.json is of such a model.
bool wraps_text(std::string_view json);
// "gemma3, mistral3, ...": the types of such models.
std::string wrapper_names();
// The same text with the names that its model_type has for keys which most families have by one name, such as
// gpt2's n_inner for intermediate_size. REQUIRES: a JSON object, of a family.
std::string with_own_keys(std::string_view json);
// The keys that decide the arithmetic: parse_model_config() and transformers read it back to the same model.
// REQUIRES: layers that differ in windows and rotation only, as parse_model_config() makes them.
std::string to_json(const ModelSpec& spec);
// The text of a config.json beside weights of a type, "float32", "bfloat16" or "float16". Of a model that was
// read from one, that text, in which at most the type is another. Of others what transformers writes for
// their family: `context` is the longest sequence, and no token is special.
std::string config_beside_weights(const ModelSpec& spec, std::string_view type, int64_t context);

// The model_type of each family.
std::vector<std::string> model_families();

// Facts of a family for `sluice models` and the table of docs/models.md: its models, and the keys of
// config.json that it has for itself, in Markdown; and what llama.cpp does with its exports.
enum class LlamaCpp { NotTried, PassesWindowsOver, HeedsWindows };  // those of layers that have them usually
struct AboutFamily {
  std::string_view models, keys;
  LlamaCpp llama_cpp = LlamaCpp::NotTried;
};
struct FamilyFacts {
  std::string_view model_type;
  AboutFamily about;
};
std::vector<FamilyFacts> family_facts();

// Shapes by name: "tiny" (10 M parameters, byte vocabulary) and Llama-3's, "llama3-1b", "llama3-8b",
// "llama3-15b", "llama3-32b". Case, spaces and hyphens do not matter, and "8" or "8B" will do.
Result<ModelSpec> model_preset(std::string_view name);
// The name itself of what is written in one of those ways; empty: there is no such preset.
std::string preset_meant_by(std::string_view name);
// The end of an error for a text that is no preset: "; did you mean llama3-8b?", or how else a model is
// named.
std::string other_models(std::string_view text);
// Their names, from small to large.
std::vector<std::string> model_presets();

}  // namespace sluice::core
