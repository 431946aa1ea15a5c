// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "draw/palette.h"
#include "report/page/page.h"
#include "report/report.h"

namespace sluice::core {
namespace {

void put_in_place(std::string& page, std::string_view mark, std::string_view content) {
  const size_t at = page.find(mark);
  SLUICE_CHECK(at != std::string::npos, "the page has no {}", mark);
  page.replace(at, mark.size(), content);
}

// JSON that may stand inside a script element: nothing in it can end the element.
std::string for_script(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string to_html(std::string_view json) {
  std::string page(page::kHtml);
  // The plan comes last, so that its words are never taken for a mark.
  put_in_place(page, "{{common.css}}", page_style());
  put_in_place(page, "{{page.css}}", page::kCss);
  put_in_place(page, "{{page.js}}", page::kJs);
  put_in_place(page, "{{plan.json}}", for_script(json));
  return page;
}

}  // namespace sluice::core
