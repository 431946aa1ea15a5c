// SPDX-License-Identifier: Apache-2.0
#include "fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

namespace sluice::core::fuzz {

std::span<const Target> targets() {
  static constexpr Target kTargets[] = {
      {"safetensors", safetensors_header, seed_safetensors_header},
      {"index", safetensors_index, seed_safetensors_index},
      {"config", model_config, seed_model_config},
      {"generation", generation_config, seed_generation_config},
      {"toml", toml, seed_toml},
      {"tokens", token_file, seed_token_file},
      {"template", chat_template, seed_chat_template},
      {"record", record, seed_record},
      {"jsonl", jsonl, seed_jsonl},
      {"json", json_file, seed_json_file},
      {"csv", csv_file, seed_csv_file},
      {"metrics", metrics, seed_metrics},
      {"checkpoint", checkpoint, seed_checkpoint},
      {"sealed", sealed, seed_sealed},
      {"plan", plan, seed_plan},
      {"fields", plan_fields, seed_plan_fields},
      {"plans", kept_plans, seed_kept_plans},
      {"shape", kept_shape, seed_kept_shape},
      {"costs", costs, seed_costs},
      {"libraries", libraries, seed_libraries},
  };
  return kTargets;
}

MemoryFile::MemoryFile(Bytes content) : fd_(::memfd_create("input", 0)) {
  const ssize_t written = ::write(fd_, content.data(), content.size());
  require(written == ssize_t(content.size()), "a file in memory could not be made");
}

MemoryFile::~MemoryFile() {
  ::close(fd_);
}

std::filesystem::path MemoryFile::path() const {
  return fmt::format("/proc/self/fd/{}", fd_);
}

NamedFile::NamedFile(Bytes content, const char* name)
    : file_(content),
      folder_(std::filesystem::temp_directory_path() / fmt::format("sluice-fuzz-{}", ::getpid())) {
  std::filesystem::create_directories(folder_);
  path_ = folder_ / name;
  std::filesystem::create_symlink(file_.path(), path_);
}

NamedFile::~NamedFile() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

}  // namespace sluice::core::fuzz

namespace {

const sluice::core::fuzz::Target* chosen = nullptr;

}  // namespace

// libFuzzer's: the target is named by the environment, because its own arguments are all it takes.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* name = std::getenv("SLUICE_FUZZ_TARGET");
  for (const auto& target : sluice::core::fuzz::targets()) {
    if (name != nullptr && target.name == name) chosen = &target;
  }
  if (chosen == nullptr) {
    std::fprintf(stderr, "SLUICE_FUZZ_TARGET names none of:");
    for (const auto& target : sluice::core::fuzz::targets()) std::fprintf(stderr, " %s", target.name.data());
    std::fprintf(stderr, "\n");
    std::exit(2);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  chosen->run({data, size});
  return 0;
}
