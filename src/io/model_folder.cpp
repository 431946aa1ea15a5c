// SPDX-License-Identifier: Apache-2.0
#include "io/model_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "io/file.h"
#include "io/pieces.h"
#include "io/shards.h"

#include "io/directory.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kLfs = "version https://git-lfs";

// In order; a folder that cannot be listed has none.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (fs::directory_iterator it(folder, ignored), end; !ignored && it != end; it.increment(ignored))
    names.push_back(it->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// Beside weights, those that are read of a model and that checkpoints carry along.
bool is_of_text(std::string_view name) {
  return name.ends_with(".json") || name.ends_with(".jinja") || name.starts_with("tokenizer.model") ||
         name == "vocab.txt" || name == "merges.txt";
}

bool is_weights(std::string_view name) {
  constexpr std::string_view kEndings[] = {".safetensors", ".index.json", ".bin", ".pt", ".pth"};
  return std::any_of(std::begin(kEndings), std::end(kEndings),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

// Files by which a folder of another kind is known, and what to do with it; {0} is the file, {1} the folder.
// The first that fits is taken, so those that tell the most come first.
struct OtherKind {
  std::string_view begins, ends, words;
};
constexpr OtherKind kOtherKinds[] = {
    {"adapter_config", ".json",
     "{0} is there: it is an adapter of another model, which train, generate, evaluate and export take where "
     "adapter_model.safetensors lies beside it; sluice export --merged {1} NEW_FOLDER makes one model of "
     "both"},
    {"", ".gguf", "{0} is there: scripts/gguf_to_folder {1}/{0} NEW_FOLDER makes a folder of it"},
    {"pytorch_model", ".bin",
     "{0} is there: these are weights of PyTorch, which are programs. Write them as safetensors: "
     "python -c \"from transformers import AutoModelForCausalLM as A; "
     "A.from_pretrained('{1}', dtype='auto').save_pretrained('{1}-safetensors')\", and copy the "
     "tokenizer's files beside them"},
    {"consolidated", "",
     "{0} is there: these are the weights in their maker's own layout; take the folder that transformers "
     "loads, with model.safetensors"},
    {"params", ".json",
     "{0} is there: this is a model in its maker's own layout; take the folder that transformers loads, with "
     "config.json and model.safetensors"},
    {"tf_model", ".h5",
     "{0} is there: these are weights of TensorFlow; load and save them with transformers 4 (from_tf=True)"},
    {"flax_model", ".msgpack",
     "{0} is there: these are weights of Flax; load and save them with transformers 4 (from_flax=True)"},
    {"model_index", ".json",
     "{0} is there: this is a pipeline of diffusers; name the folder of a text model"},
    {"", ".onnx", "{0} is there: this is a graph of ONNX; take the folder with model.safetensors"},
    {"model", ".incomplete", "{0} is there: the download is not whole; `hf download` goes on with it"},
    {"", ".pth", "{0} is there: these are weights of PyTorch; take the folder with model.safetensors"},
    {"", ".pt", "{0} is there: these are weights of PyTorch; take the folder with model.safetensors"},
    {"model-0", ".safetensors",
     "{0} is there without model.safetensors.index.json, which says what lies where: download it, too"},
    {"", ".safetensors", "{0} is there: if it has the whole model, name that file by model.weights"},
};

// Stand-ins for files that were not downloaded, by their first bytes.
struct Instead {
  std::string_view begins, words;
};
constexpr Instead kInstead[] = {
    {"<!doctype html",
     "it is a page of a web site, not the file; `hf download` brings the file, and logs in"},
    {"<!DOCTYPE html",
     "it is a page of a web site, not the file; `hf download` brings the file, and logs in"},
    {"<html", "it is a page of a web site, not the file; `hf download` brings the file, and logs in"},
    {"/annex/objects/", "it is a pointer of git-annex, not the file itself; `git annex get` brings it"},
    {"PK\x03\x04",
     "it is an archive of ZIP, as torch.save() writes them; take the file that safetensors wrote"},
};

Status check_downloaded_file(const fs::path& path) {
  constexpr int64_t kMostPointerBytes = 1024;
  constexpr size_t kLongest = 16;
  std::error_code code, ignored;
  const auto bytes = fs::file_size(path, code);
  if (code == std::errc::no_such_file_or_directory && fs::is_symlink(path, ignored))
    return error(ErrorKind::NotFound,
                 "{}: it is a link to {}, which is not there: the download is not whole, or was moved; `hf "
                 "download` brings it again",
                 path.string(), fs::read_symlink(path, ignored).string());
  if (code) return {};
  if (fs::exists(fs::path(path).concat(".aria2"), ignored))
    return error("{}: {}.aria2 lies beside it: aria2 has not brought all of it; the same command goes on",
                 path.string(), path.filename().string());
  std::string text;
  SLUICE_TRY(read_pieces(path, 0, int64_t(std::min(bytes, kLongest)), [&](std::string_view piece) -> Status {
    text += piece;
    return {};
  }));
  for (const auto& [begins, words] : kInstead) {
    if (text.starts_with(begins)) return error("{}: {}", path.string(), words);
  }
  if (bytes > kMostPointerBytes) return {};
  SLUICE_ASSIGN(text, read_file(path));
  if (is_lfs_pointer(std::as_bytes(std::span(text)))) return lfs_pointer(path);
  return {};
}

}  // namespace

fs::path model_folder(const fs::path& named) {
  std::error_code ignored;
  const fs::path folder = followed(named), newest = followed(folder / "checkpoints" / "latest");
  return fs::is_directory(newest, ignored) ? newest : folder;
}

bool is_adapter_folder(const fs::path& folder) {
  std::error_code ignored;
  const auto has = [&](std::string_view name) { return fs::exists(folder / name, ignored); };
  return has(kAdapterConfigName) && has(kAdapterName) && !has(kWeightsName) && !has(kWeightsIndexName);
}

bool is_config_file(const fs::path& path) {
  std::error_code ignored;
  const std::string name = path.filename().string();
  return name.ends_with(".json") && !name.ends_with(".index.json") && fs::is_regular_file(path, ignored);
}

bool is_lfs_pointer(std::span<const std::byte> bytes) {
  constexpr size_t kLeast = 8;  // as many as the length of a header has
  const size_t size = std::min(bytes.size(), kLfs.size());
  return size >= kLeast &&
         std::string_view(reinterpret_cast<const char*>(bytes.data()), size) == kLfs.substr(0, size);
}

Error lfs_pointer(const fs::path& path) {
  return error(
      "{}: it is a pointer of Git LFS, not the file itself; `git lfs pull` in its folder, or `hf "
      "download`, brings it",
      path.string());
}

Status check_downloaded(const fs::path& folder, FolderUse use) {
  for (const std::string& name : names_in(folder)) {
    if (is_of_text(name) || (use == FolderUse::Weights && is_weights_file(name)))
      SLUICE_TRY(check_downloaded_file(folder / name));
  }
  return {};
}

std::vector<std::string> weights_in(const fs::path& folder) {
  std::vector<std::string> names = names_in(folder);
  std::erase_if(names,
                [](const std::string& name) { return !is_weights_file(name) && name != kWeightsIndexName; });
  return names;
}

std::string found_instead(const fs::path& folder) {
  const std::vector<std::string> names = names_in(folder);
  for (const auto& [begins, ends, words] : kOtherKinds) {
    for (const std::string& name : names) {
      if (name.starts_with(begins) && name.ends_with(ends))
        return "; " + fmt::format(fmt::runtime(words), name, folder.string());
    }
  }
  // The folder above: of a Hugging Face cache, or of another program's checkpoints.
  std::error_code ignored;
  for (const fs::path& above : {folder / "snapshots", folder}) {
    for (const std::string& name : names_in(above)) {
      if (fs::exists(above / name / kConfigName, ignored))
        return fmt::format("; {} has one: name that folder", (above / name).string());
    }
  }
  return {};
}

Result<ConfigText> read_model_config(const fs::path& named) {
  std::error_code ignored;
  fs::path path = named;
  if (fs::is_directory(named, ignored)) {
    path /= kConfigName;
    SLUICE_TRY(check_downloaded_file(path));
    if (!fs::exists(path, ignored))
      return error(ErrorKind::NotFound, "{}: there is no config.json in this folder{}", named.string(),
                   found_instead(named));
  } else if (path.extension() == ".gguf") {
    return error("{}: a file of GGUF; scripts/gguf_to_folder {} NEW_FOLDER makes a folder of it",
                 path.string(), path.string());
  } else if (const std::string name = path.filename(); fs::exists(path, ignored) && is_weights(name)) {
    return error("{}: a model is named by its folder, or by a config.json; did you mean {}?", path.string(),
                 path.has_parent_path() ? path.parent_path().string() : ".");
  }
  SLUICE_ASSIGN(std::string text, read_file(path, kMostConfigBytes));
  if (is_lfs_pointer(std::as_bytes(std::span(text)))) return lfs_pointer(path);
  return ConfigText{std::move(path), std::move(text)};
}

}  // namespace sluice::core
