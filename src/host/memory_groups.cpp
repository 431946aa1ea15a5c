// SPDX-License-Identifier: Apache-2.0
#include "host/memory_groups.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

// Names in both versions. Limits from kNone on are none: version 1 writes a number even so.
struct Version {
  const char* limit;
  const char* used;
  std::array<std::string_view, 2> cached;  // in memory.stat, of a group and all below it
};
constexpr Version kFirst{
    "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_active_file", "total_inactive_file"}};
constexpr Version kSecond{"memory.max", "memory.current", {"active_file", "inactive_file"}};
constexpr int64_t kNone = int64_t{1} << 60;

// A hierarchy of groups as this process sees it.
struct Hierarchy {
  const Version* version;
  fs::path mount;    // where it can be seen
  fs::path mounted;  // which of its groups is seen there
  fs::path own;      // the process's group
};

bool has(std::string_view list, std::string_view word) {
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    if (list.substr(at, end - at) == word) return true;
    at = end + 1;
  }
  return false;
}

// Paths in mountinfo have blanks as \040.
std::string unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      out += char((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

// The group of this process in a hierarchy. Lines are "id:controllers:path"; version 2 has no controllers.
std::optional<std::string> own_group(const fs::path& root, bool second) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), next = line.find(':', first + 1);
    if (next == std::string::npos) continue;
    const std::string_view controllers = std::string_view(line).substr(first + 1, next - first - 1);
    if (second ? controllers.empty() : has(controllers, "memory")) return line.substr(next + 1);
  }
  return std::nullopt;
}

// Lines are "id parent device root mount options [optional...] - type source superoptions".
std::vector<Hierarchy> hierarchies(const fs::path& root) {
  std::vector<Hierarchy> found;
  std::ifstream file(root / "proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word, mounted, mount, type, source, options;
    words >> word >> word >> word >> mounted >> mount;
    while (words >> word && word != "-") continue;
    words >> type >> source >> options;
    const bool second = type == "cgroup2";
    if (!second && !(type == "cgroup" && has(options, "memory"))) continue;
    if (const auto own = own_group(root, second))
      found.push_back({second ? &kSecond : &kFirst, unescaped(mount), unescaped(mounted), *own});
  }
  return found;
}

// The first number in a file; nothing when there is none ("max").
std::optional<int64_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

std::optional<MemoryGroup> read_group(const fs::path& directory, std::string name, const Version& version) {
  const auto limit = number_in(directory / version.limit);
  if (!limit || *limit >= kNone) return std::nullopt;
  int64_t cached = 0;
  std::ifstream stat(directory / "memory.stat");
  std::string key;
  for (int64_t number = 0; stat >> key >> number;) {
    if (std::find(version.cached.begin(), version.cached.end(), key) != version.cached.end())
      cached += number;
  }
  const int64_t used = number_in(directory / version.used).value_or(0);
  return MemoryGroup{std::move(name), *limit, std::max<int64_t>(0, used - cached)};
}

}  // namespace

std::vector<MemoryGroup> memory_groups(const fs::path& root) {
  std::vector<MemoryGroup> groups;
  for (const Hierarchy& h : hierarchies(root)) {
    // In a container the group may have a path that is not below what is mounted there: then it is that.
    fs::path below = h.own.lexically_relative(h.mounted);
    if (below.empty() || *below.begin() == "..") below = ".";
    const fs::path top = root / h.mount.relative_path();
    for (;; below = below.parent_path()) {
      if (below.empty()) below = ".";
      const fs::path name = (h.mounted / below).lexically_normal();
      std::string text = name.string();
      if (text.size() > 1 && text.back() == '/') text.pop_back();
      if (auto group = read_group(top / below, std::move(text), *h.version))
        groups.push_back(std::move(*group));
      if (below == ".") break;
    }
  }
  return groups;
}

}  // namespace sluice::core
