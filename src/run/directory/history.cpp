// SPDX-License-Identifier: Apache-2.0
#include "run/directory/history.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "io/file.h"

namespace sluice::core {
namespace {

// Collects what is appended to a file under construction.
class Lines {
 public:
  explicit Lines(AtomicFile& file) : file_(file) {}

  Status add(const std::string& line) {
    buffer_ += line + '\n';
    return buffer_.size() < (1 << 16) ? Status() : flush();
  }
  Status flush() {
    SLUICE_TRY(file_.write_at(written_, buffer_));
    written_ += int64_t(buffer_.size());
    buffer_.clear();
    return {};
  }

 private:
  AtomicFile& file_;
  std::string buffer_;
  int64_t written_ = 0;
};

}  // namespace

std::optional<Point> lowest(const Series& heldout) {
  const auto at = std::min_element(heldout.points.begin(), heldout.points.end(),
                                   [](const Point& a, const Point& b) { return a.y < b.y; });
  return at == heldout.points.end() ? std::nullopt : std::optional(*at);
}

Result<History> take_history(const std::filesystem::path& from, const std::filesystem::path& to,
                             int64_t last_step) {
  History history;
  SLUICE_ASSIGN(AtomicFile file, AtomicFile::create(to));
  Lines lines(file);
  std::error_code unreadable;
  const bool there = std::filesystem::exists(from, unreadable);
  // A pipe of that name would be waited for.
  if (there) SLUICE_TRY(Descriptor::open_to_read(from));
  std::ifstream in(from, std::ios::binary);
  if ((there || unreadable) && !in) return file_error("open", from);
  int64_t step_before = -1;
  for (std::string line; std::getline(in, line);) {
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object() || !object.contains("step") || !object["step"].is_number_integer()) continue;
    const auto step = object["step"].get<int64_t>();
    if (step > last_step || step <= step_before) continue;
    step_before = step;
    SLUICE_TRY(lines.add(line));
    history.last = line;
    const auto add = [&](const nlohmann::json& record, const char* key, Series& series) {
      if (record.is_object() && record.contains(key) && record[key].is_number())
        series.points.push_back({double(step), record[key].get<double>()});
    };
    add(object, "loss", history.training);
    add(object, "heldout_loss", history.heldout);
    const nlohmann::json router = object.value("router", nlohmann::json());
    for (const RouterNumber& number : kRouterNumbers) {
      if (number.over_steps != nullptr) add(router, number.key, history.router.*number.over_steps);
    }
  }
  if (in.bad()) return file_error("read", from);
  SLUICE_TRY(lines.flush());
  SLUICE_TRY(file.commit());
  return history;
}

}  // namespace sluice::core
