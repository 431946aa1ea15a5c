// SPDX-License-Identifier: Apache-2.0
#include "pages/page.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace sluice::core {
namespace {

Page small() {
  Page page;
  page.title = "a <model>";
  page.legend = {"N parameters"};
  Section s{"part", "Part"};
  s.facts.push_back({"all", "all", 6'738'149'376, Form::Count, "V D", Rule{7e9, "about"}});
  s.facts.push_back({"share", "share", 0.25, Form::Share, "a / b"});
  s.tables.push_back({"rows",
                      "Rows",
                      "what",
                      {{"bytes", "bytes", Form::Bytes}, {"hours", "hours", Form::Hours}},
                      {{"one", {512.0 * 1024, 1.2}}, {"two", {std::nullopt, std::nullopt}, "none & nothing"}},
                      {"bytes x hours"}});
  s.plots.push_back({"Picture", "", "x", "y", {{"line", {{0, 1}, {1, 2}}}}});
  page.sections.push_back(std::move(s));
  return page;
}

TEST(Page, WritesNumbersInUnitsThatFit) {
  EXPECT_EQ(to_text(6'738'149'376, Form::Count), "6,738,149,376");
  EXPECT_EQ(to_text(524288, Form::Bytes), "512 KiB");
  EXPECT_EQ(to_text(80e9, Form::Bytes), "80 GB = 74.5 GiB");
  EXPECT_EQ(to_text(-80e9, Form::Bytes), "-80 GB = -74.5 GiB");
  EXPECT_EQ(to_text(7.0 * 1024 * 1024 * 1024, Form::Memory), "7.00 GiB");
  EXPECT_EQ(to_text(2.039e12, Form::BytesPerSecond), "2.039 TB/s");
  EXPECT_EQ(to_text(13.48e9, Form::Flops), "13.48 GFLOP");
  EXPECT_EQ(to_text(43.19e-6, Form::Seconds), "43.19 µs");
  EXPECT_EQ(to_text(5400, Form::Seconds), "1.5 h");
  EXPECT_EQ(to_text(50392.1, Form::Hours), "50,392 h");
  EXPECT_EQ(to_text(2.4, Form::Usd), "2.40 USD");
  EXPECT_EQ(to_text(0.01923, Form::Usd), "0.019 USD");
  EXPECT_EQ(to_text(0.413, Form::Share), "41.30 %");
  EXPECT_EQ(to_text(INFINITY, Form::Count), "no limit");
}

TEST(Page, AsTextHasEveryFormula) {
  EXPECT_EQ(to_text(small()),
            "a <model>\n"
            "  N parameters\n"
            "\n"
            "Part\n"
            "  all    6,738,149,376   V D\n"
            "         7,000,000,000   rule: about (+3.89 %)\n"
            "  share        25.00 %   a / b\n"
            "\n"
            "  Rows\n"
            "  what    bytes   hours\n"
            "  one   512 KiB  1.20 h\n"
            "  two         -       -  none & nothing\n"
            "  bytes x hours\n");
}

TEST(Page, BreaksLongFormulas) {
  Page page;
  page.sections.push_back(
      {"s", "S", {{"k", "what", 1, Form::Count, std::string(60, 'a') + " " + std::string(60, 'b')}}});
  EXPECT_NE(to_text(page).find("\n" + std::string(12, ' ') + "bbb"), std::string::npos) << to_text(page);
}

TEST(Page, AsJsonKeepsNumbersExact) {
  const auto json = nlohmann::json::parse(to_json(small()));
  EXPECT_EQ(json["part"]["all"]["value"].get<int64_t>(), 6'738'149'376);
  EXPECT_EQ(json["part"]["all"]["rule_formula"], "about");
  EXPECT_EQ(json["part"]["share"]["value"], 0.25);
  EXPECT_EQ(json["part"]["rows"][0]["bytes"], 524288);
  EXPECT_TRUE(json["part"]["rows"][1]["hours"].is_null());
}

TEST(Page, NotesHaveANameOfTheirOwn) {
  Page page = small();
  Table& table = page.sections[0].tables[0];
  table.note_key = "binds", table.note_title = "what binds";
  EXPECT_NE(to_text(page).find("  what    bytes   hours  what binds\n"), std::string::npos) << to_text(page);
  const auto json = nlohmann::json::parse(to_json(page));
  EXPECT_EQ(json["part"]["rows"][1]["binds"], "none & nothing");
  EXPECT_NE(to_html(page).find("<th>what binds</th>"), std::string::npos);
}

TEST(Page, BarsArePicturesOfAPage) {
  Page page = small();
  page.sections[0].bars.push_back({"Speeds", "", {{"a", 1, "1"}}});
  const std::string html = to_html(page);
  EXPECT_NE(html.find("<img alt=\"Speeds\""), std::string::npos);
  // A phone's picture is narrower, and a URL in a list has no space or comma.
  const size_t narrow = html.find("<source media=\"(max-width: 520px)\" srcset=\"data:image/svg+xml,");
  ASSERT_NE(narrow, std::string::npos);
  const size_t url = html.find("svg+xml,", narrow) + 8;
  EXPECT_EQ(html.substr(url, html.find('"', url) - url).find_first_of(" ,"), std::string::npos);
}

TEST(Page, AsHtmlIsOneFileThatAsksForNothing) {
  const std::string html = to_html(small());
  EXPECT_NE(html.find("<h1>a &lt;model&gt;</h1>"), std::string::npos);
  EXPECT_NE(html.find("none &amp; nothing"), std::string::npos);
  EXPECT_NE(html.find("src=\"data:image/svg+xml,%3Csvg"), std::string::npos);
  EXPECT_NE(html.find("default-src 'none'"), std::string::npos);
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_EQ(html.find("<model>"), std::string::npos);
}

}  // namespace
}  // namespace sluice::core
