// SPDX-License-Identifier: Apache-2.0
#include "pages/fit.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace sluice::core {
namespace {

constexpr size_t kGap = 2;         // spaces, at least, between two columns of a table
constexpr size_t kLeastText = 20;  // columns in which text is wrapped

// A line as its characters, one a column.
using Characters = std::vector<std::string_view>;

Characters characters_of(std::string_view line) {
  Characters out;
  for (size_t at = 0; at < line.size();) {
    size_t end = at + 1;
    while (end < line.size() && (uint8_t(line[end]) & 0xc0) == 0x80) ++end;
    out.push_back(line.substr(at, end - at));
    at = end;
  }
  return out;
}

bool is_blank(const Characters& line, size_t at) {
  return at >= line.size() || line[at] == " ";
}

std::string slice(const Characters& line, size_t begin, size_t end) {
  std::string out;
  for (size_t at = begin; at < std::min(end, line.size()); ++at) out += line[at];
  return out;
}

// Where something stands.
struct Span {
  size_t begin, end;
  size_t width() const { return end - begin; }
};

// The columns of lines: what lies between stretches of blanks that all of them have.
std::vector<Span> columns_of(const std::vector<Characters>& lines) {
  size_t width = 0;
  for (const Characters& line : lines) width = std::max(width, line.size());
  std::vector<Span> out;
  size_t blanks = kGap;
  for (size_t at = 0; at < width; ++at) {
    if (std::all_of(lines.begin(), lines.end(), [&](const Characters& line) { return is_blank(line, at); })) {
      ++blanks;
      continue;
    }
    if (blanks >= kGap) {
      out.push_back({at, at + 1});
    } else {
      out.back().end = at + 1;
    }
    out.back().end = at + 1;
    blanks = 0;
  }
  return out;
}

// Words in lines of at most so many columns; a longer word is cut where `cuts`.
std::vector<std::string> wrap(const std::string& text, size_t columns, bool cuts) {
  std::vector<std::string> out(1);
  size_t width = 0;
  const Characters all = characters_of(text);
  for (size_t at = 0; at < all.size();) {
    if (all[at] == " ") {
      ++at;
      continue;
    }
    size_t end = at;
    while (end < all.size() && all[end] != " ") ++end;
    if (width > 0 && width + 1 + (end - at) > columns) {
      out.emplace_back();
      width = 0;
    }
    if (cuts) end = std::min(end, at + columns);
    if (width > 0) out.back() += ' ', ++width;
    out.back() += slice(all, at, end);
    width += end - at;
    at = end;
  }
  return out;
}

std::string filled(std::string text, size_t width) {
  const size_t now = characters_of(text).size();
  return text + std::string(width > now ? width - now : 0, ' ');
}

std::string trimmed(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + '\n';
}

// One line of text: words behind its indent or, where it has one, behind its first cell.
std::string prose(const Characters& line, size_t columns) {
  const std::vector<Span> cells = columns_of({line});
  if (cells.empty()) return "\n";
  const bool labelled = cells.size() > 1 && cells[1].begin + kLeastText <= columns;
  const size_t indent = labelled ? cells[1].begin : cells[0].begin;
  std::string out = slice(line, 0, indent);
  const auto lines = wrap(slice(line, indent, line.size()),
                          std::max(columns - std::min(indent, columns), kLeastText), false);
  for (size_t l = 0; l < lines.size(); ++l) out += (l == 0 ? "" : std::string(indent, ' ')) + lines[l] + '\n';
  return out;
}

// A column of a table that is made narrower.
struct Narrowed {
  Span from;
  size_t width;
};

// Rows of the first column and some others.
std::string rows_of(const std::vector<Characters>& lines, size_t indent,
                    const std::vector<Narrowed>& columns) {
  std::string out;
  for (const Characters& line : lines) {
    std::vector<std::vector<std::string>> cells;
    size_t height = 1;
    for (const Narrowed& c : columns) {
      const std::string cell = slice(line, c.from.begin, c.from.end);
      cells.push_back(c.width < c.from.width() ? wrap(cell, c.width, true) : std::vector{cell});
      height = std::max(height, cells.back().size());
    }
    const auto is_empty = [](const auto& cell) {
      return cell.size() == 1 && cell[0].find_first_not_of(' ') == std::string::npos;
    };
    if (std::all_of(cells.begin(), cells.end(), is_empty)) continue;
    for (size_t l = 0; l < height; ++l) {
      std::string row(indent, ' ');
      for (size_t c = 0; c < columns.size(); ++c) {
        if (c > 0) row += std::string(kGap, ' ');
        row += filled(l < cells[c].size() ? cells[c][l] : "", columns[c].width);
      }
      out += trimmed(std::move(row));
    }
  }
  return out;
}

std::string narrowed(const std::vector<Characters>& lines, size_t width) {
  const std::vector<Span> columns = columns_of(lines);
  if (columns.size() < 2) {
    std::string out;
    for (const Characters& line : lines) out += prose(line, width);
    return out;
  }
  const size_t indent = columns[0].begin;
  const size_t names =
      std::min(columns[0].width(), std::max(kLeastText, width / 2) - std::min(indent, kLeastText / 2));
  const size_t room = width - std::min(width - 1, indent + names + kGap);  // for the others
  std::string out;
  std::vector<Narrowed> group{{columns[0], names}};
  size_t used = 0;
  const auto flush = [&] {
    if (group.size() > 1) out += (out.empty() ? "" : "\n") + rows_of(lines, indent, group);
    group.resize(1);
    used = 0;
  };
  for (size_t c = 1; c < columns.size(); ++c) {
    const size_t gap = used > 0 ? kGap : 0, left = room > used + gap ? room - used - gap : 0;
    const bool last = c + 1 == columns.size();
    size_t wanted = columns[c].width();
    if (wanted > left && !(last && left >= kLeastText)) flush();
    const size_t free = used > 0 ? left : room;
    wanted = std::min(wanted, std::max<size_t>(1, free));
    used += (used > 0 ? kGap : 0) + wanted;
    group.push_back({columns[c], wanted});
  }
  flush();
  return out;
}

// With several cells, or far from the margin: the rest of a text in the last column of the row before.
bool is_row(const Characters& line) {
  const std::vector<Span> cells = columns_of({line});
  return cells.size() > 1 || (cells.size() == 1 && cells[0].begin >= kLeastText);
}

}  // namespace

std::string fit(std::string_view text, size_t columns) {
  if (columns == 0) return std::string(text);
  std::vector<Characters> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(characters_of(text.substr(at, end - at)));
    at = end + 1;
  }
  const auto is_wide = [&](const Characters& line) { return line.size() > columns; };
  std::string out;
  for (size_t first = 0, last = 0; first < lines.size(); first = last) {
    last = first + 1;
    while (is_row(lines[first]) && last < lines.size() && is_row(lines[last])) ++last;
    const std::vector<Characters> block(lines.begin() + long(first), lines.begin() + long(last));
    if (std::none_of(block.begin(), block.end(), is_wide)) {
      for (const Characters& line : block) out += slice(line, 0, line.size()) + '\n';
    } else {
      out += block.size() > 1 ? narrowed(block, columns) : prose(block.front(), columns);
    }
  }
  if (!text.ends_with('\n') && out.ends_with('\n')) out.pop_back();
  return out;
}

}  // namespace sluice::core
