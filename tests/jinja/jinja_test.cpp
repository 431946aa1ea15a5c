// SPDX-License-Identifier: Apache-2.0
// Templates beside what transformers made of them (make_language.py), and who wrote each byte.
#include <gtest/gtest.h>

#include <filesystem>

#include "chat/chat_template.h"
#include "chat/origins.h"
#include "io/file.h"
#include "jinja/template.h"

namespace sluice::core {
namespace {

ChatValue fixture(const std::string& name) {
  const auto text = read_file(std::filesystem::path(SLUICE_JINJA) / name);
  EXPECT_TRUE(text.ok()) << text.message();
  auto value = parse_value(*text);
  EXPECT_TRUE(value.ok()) << value.message();
  return *value;
}

std::string rendered(std::string_view text, const jinja::Inputs& inputs = {}) {
  const auto made = jinja::Template::parse(text);
  if (!made.ok()) return "refused: " + made.message();
  const auto rendering = made->render(inputs);
  return rendering.ok() ? rendering->text.bytes() : "refused: " + rendering.message();
}

TEST(Jinja, PiecesRenderAsInTransformers) {
  const ChatValue language = fixture("language.json");
  jinja::Inputs inputs;
  inputs.today = jinja::Day{2024, 2, 9};
  for (const auto& [name, value] : language.find("variables")->members)
    inputs.variables.emplace_back(name, to_jinja(value, {}));
  for (const ChatValue& row : language.find("rows")->items) {
    const std::string text = rendered(row.items[0].text, inputs);
    if (row.items[1].is_null()) {
      EXPECT_TRUE(text.starts_with("refused: ")) << row.items[0].text << " gave " << text;
    } else {
      EXPECT_EQ(text, row.items[1].text) << row.items[0].text;
    }
  }
}

}  // namespace
}  // namespace sluice::core
