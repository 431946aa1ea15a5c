// SPDX-License-Identifier: Apache-2.0
#include "bench/results.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "io/directory.h"
#include "io/file.h"
#include "version/version.h"

namespace sluice::core {
namespace {

using Json = nlohmann::ordered_json;

std::string line_of(Json what, const Stamp& stamp) {
  what["machine"] = stamp.machine;
  what["sluice"] = stamp.sluice;
  return what.dump() + "\n";
}

}  // namespace

Stamp stamp_on(const std::string& machine) {
  return {machine, fmt::format("{} {}", version(), commit())};
}

std::string to_jsonl(const Page& page, const Stamp& stamp) {
  std::string out;
  for (const Section& s : page.sections) {
    for (const Fact& f : s.facts) {
      out +=
          line_of({{"section", s.key}, {"fact", f.key}, {"value", f.value}, {"formula", f.formula}}, stamp);
    }
    for (const Table& t : s.tables) {
      for (const Row& r : t.rows) {
        Json row{{"section", s.key}, {"table", t.key}, {"name", r.name}};
        for (size_t c = 0; c < t.columns.size(); ++c) {
          row[t.columns[c].key] = c < r.values.size() && r.values[c] ? Json(*r.values[c]) : Json(nullptr);
        }
        if (!r.note.empty()) row[t.note_key] = r.note;
        out += line_of(std::move(row), stamp);
      }
    }
    for (const Plot& plot : s.plots) {
      for (const Series& series : plot.series) {
        Json points = Json::array();
        for (const Point& p : series.points) points.push_back({p.x, p.y});
        out += line_of({{"section", s.key},
                        {"picture", plot.title},
                        {"line", series.name},
                        {"points", std::move(points)}},
                       stamp);
      }
    }
    for (const Bars& bars : s.bars) {
      for (const Bar& b : bars.bars) {
        out += line_of({{"section", s.key}, {"picture", bars.title}, {"bar", b.name}, {"value", b.value}},
                       stamp);
      }
    }
  }
  return out;
}

Result<std::vector<std::filesystem::path>> write_page(Page page, const Stamp& stamp,
                                                      const std::filesystem::path& dir,
                                                      const std::string& name) {
  SLUICE_TRY(make_directories(dir));
  const std::string made = fmt::format("{}; Sluice {}", stamp.machine, stamp.sluice);
  page.legend.push_back(made);
  std::vector<std::pair<std::string, std::string>> files{{name + ".md", to_markdown(page)},
                                                         {name + ".html", to_html(page)}};
  int pictures = 0;
  const auto add_picture = [&](auto picture) {
    picture.subtitle += (picture.subtitle.empty() ? "" : "; ") + made;
    ++pictures;
    files.emplace_back(pictures == 1 ? name + ".svg" : fmt::format("{}-{}.svg", name, pictures),
                       render(picture));
  };
  for (const Section& s : page.sections) {
    for (const Plot& plot : s.plots) add_picture(plot);
    for (const Bars& bars : s.bars) add_picture(bars);
  }
  std::vector<std::filesystem::path> paths;
  for (const auto& [file, content] : files) {
    SLUICE_TRY(write_file(dir / file, content));
    paths.push_back(dir / file);
  }
  return paths;
}

}  // namespace sluice::core
