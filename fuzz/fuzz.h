// SPDX-License-Identifier: Apache-2.0
// What is fuzzed: functions that take bytes which anybody may have written. Each reads them as the program
// would and uses what comes out; a target finds something when it crashes, when a sanitizer does, or when it
// says so itself.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace sluice::core::fuzz {

using Bytes = std::span<const uint8_t>;

struct Target {
  std::string_view name;
  void (*run)(Bytes input);
  // An input that is taken, to begin with.
  std::string (*seed)();
};
std::span<const Target> targets();

void safetensors_header(Bytes input);
void safetensors_index(Bytes input);
void model_config(Bytes input);
void generation_config(Bytes input);
void toml(Bytes input);
void token_file(Bytes input);
void chat_template(Bytes input);
void record(Bytes input);
void jsonl(Bytes input);
void json_file(Bytes input);
void csv_file(Bytes input);
void metrics(Bytes input);
void checkpoint(Bytes input);
void sealed(Bytes input);
void plan(Bytes input);
void plan_fields(Bytes input);
void kept_plans(Bytes input);
void kept_shape(Bytes input);
void costs(Bytes input);
void libraries(Bytes input);

std::string seed_safetensors_header();
std::string seed_safetensors_index();
std::string seed_model_config();
std::string seed_generation_config();
std::string seed_toml();
std::string seed_token_file();
std::string seed_chat_template();
std::string seed_record();
std::string seed_jsonl();
std::string seed_json_file();
std::string seed_csv_file();
std::string seed_metrics();
std::string seed_checkpoint();
std::string seed_sealed();
std::string seed_plan();
std::string seed_plan_fields();
std::string seed_kept_plans();
std::string seed_kept_shape();
std::string seed_costs();
std::string seed_libraries();

inline std::string_view text_in(Bytes input) {
  return {reinterpret_cast<const char*>(input.data()), input.size()};
}

// A file in memory with this content, by a path that opens like any other.
class MemoryFile {
 public:
  explicit MemoryFile(Bytes content);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::filesystem::path path() const;

 private:
  int fd_;
};

// The same under a name, by which some readers go.
class NamedFile {
 public:
  NamedFile(Bytes content, const char* name);
  ~NamedFile();
  NamedFile(const NamedFile&) = delete;
  NamedFile& operator=(const NamedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  MemoryFile file_;
  std::filesystem::path folder_, path_;
};

// Ends the process as a finding when what must hold does not.
void require(bool holds, const char* what);

}  // namespace sluice::core::fuzz
