// SPDX-License-Identifier: Apache-2.0
// Checkpoints that somebody changed who knows how they are sealed.
#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/checksum.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "run/small_session.h"

namespace sluice::core {

// Writes checkpoint.json anew, with the checksums that the files have now.
inline void seal_again(const std::filesystem::path& dir) {
  nlohmann::ordered_json root = nlohmann::ordered_json::parse(file_bytes(dir / "checkpoint.json"));
  root.erase("checksum");
  for (auto& [name, sum] : root["files"].items()) {
    sum["bytes"] = std::filesystem::file_size(dir / name);
    sum["xxh128"] = must(checksum_of_file(dir / name)).to_text();
  }
  std::string text = root.dump(2);
  text.resize(text.size() - 2);
  text += ",\n";
  std::ofstream(dir / "checkpoint.json")
      << text << "  \"checksum\": \"" << checksum_of(text).to_text() << "\"\n}\n";
}

struct ForgedTensor {
  TensorInfo info;
  std::vector<std::byte> bytes;
};
// A tensor of one of its files becomes others.
inline void forge(const std::filesystem::path& dir, const char* file, const std::string& name,
                  const std::vector<ForgedTensor>& others) {
  std::vector<ForgedTensor> all;
  std::map<std::string, std::string> metadata;
  {
    const auto from = must(SafeTensorsFile::open(dir / file));
    metadata = from.metadata();
    for (const SafeTensor& t : from.tensors()) {
      if (t.info.name != name) all.push_back({t.info, {t.bytes.begin(), t.bytes.end()}});
    }
    ASSERT_LT(all.size(), from.tensors().size()) << "no tensor " << name;
  }
  all.insert(all.end(), others.begin(), others.end());
  std::vector<TensorInfo> infos;
  for (const ForgedTensor& t : all) infos.push_back(t.info);
  auto writer = must(SafeTensorsWriter::create(dir / file, infos, metadata));
  for (const ForgedTensor& t : all) ASSERT_TRUE(writer.write(t.info.name, 0, t.bytes).ok());
  ASSERT_TRUE(writer.commit().ok());
  seal_again(dir);
}

// An element of a tensor of the optimizer's state, in f32, becomes another number.
inline void forge(const std::filesystem::path& dir, const std::string& tensor, int64_t element, float value) {
  const std::filesystem::path path = dir / "optimizer.safetensors";
  std::string bytes = file_bytes(path);
  size_t at = 0;
  {
    const auto file = must(SafeTensorsFile::open(path));
    size_t tensors = 0;
    const std::byte* first = nullptr;
    for (const SafeTensor& t : file.tensors()) {
      tensors += t.bytes.size();
      if (first == nullptr || t.bytes.data() < first) first = t.bytes.data();
    }
    for (const SafeTensor& t : file.tensors()) {
      if (t.info.name == tensor)
        at = bytes.size() - tensors + size_t(t.bytes.data() - first) + size_t(4 * element);
    }
  }
  ASSERT_GT(at, 0u) << "no tensor " << tensor;
  std::memcpy(bytes.data() + at, &value, sizeof value);
  std::ofstream(path) << bytes;
  seal_again(dir);
}

// The text of checkpoint.json with a change, and a checksum that fits it.
inline std::string resealed(std::string text, std::string_view part, std::string_view instead) {
  const size_t at = text.find(part);
  if (at == text.npos) return "";
  text.replace(at, part.size(), instead);
  text.resize(text.rfind("  \"checksum\""));
  return text + fmt::format("  \"checksum\": \"{}\"\n}}\n", checksum_of(text).to_text());
}

}  // namespace sluice::core
