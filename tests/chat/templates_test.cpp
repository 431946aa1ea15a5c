// SPDX-License-Identifier: Apache-2.0
// What templates make of conversations, beside what transformers made of them (make_fixtures.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/hash.h"
#include "chat/chat_template.h"
#include "chat/families.h"
#include "chat/normal_form.h"
#include "io/file.h"

namespace sluice::core {
namespace {

namespace fs = std::filesystem;

ChatValue fixture(const std::string& name) {
  const auto text = read_file(fs::path(SLUICE_CHATS) / name);
  EXPECT_TRUE(text.ok()) << text.message();
  auto value = parse_value(*text);
  EXPECT_TRUE(value.ok()) << value.message();
  return *value;
}

ChatSettings settings_of(const ChatValue& source) {
  const ChatValue* tokens = source.find("tokens");
  return {tokens->find("bos_token")->text, tokens->find("eos_token")->text, ChatDate{2025, 3, 9}};
}

Conversation conversation_of(const ChatValue& item) {
  return {item.find("messages")->items, *item.find("tools")};
}

// What a template would print as a Python object.
bool has_odd_content(const Conversation& conversation) {
  for (const ChatValue& message : conversation.messages) {
    const ChatValue* content = message.find("content");
    if (content != nullptr && !content->is_string()) return true;
  }
  return false;
}

bool lacks_content(const Conversation& conversation) {
  const auto& messages = conversation.messages;
  return std::any_of(messages.begin(), messages.end(),
                     [](const ChatValue& message) { return message.find("content") == nullptr; });
}

// As make_fixtures.py.
std::string shortened(int64_t index, const std::string& text) {
  if (index < 24 && text.size() <= 300) return text;
  return fmt::format("{}:{:016x}", text.size(), Hash().add(text).value());
}

// The stretches that the assistant said.
std::string own_spans(const RenderedChat& chat, const Conversation& conversation) {
  std::vector<std::pair<size_t, size_t>> spans;
  int32_t last = -1;
  for (const ChatPiece& piece : chat.pieces) {
    if (!piece.own || conversation.messages[size_t(piece.message)].find("role")->text != "assistant")
      continue;
    if (!spans.empty() && spans.back().second == piece.begin && last == piece.message) {
      spans.back().second = piece.end;
    } else {
      spans.emplace_back(piece.begin, piece.end);
    }
    last = piece.message;
  }
  std::string text;
  for (const auto& [begin, end] : spans) text += fmt::format("[{}, {}]", begin, end);
  return text;
}

class Templates : public testing::TestWithParam<std::string_view> {};

TEST_P(Templates, TextAndWhatTheAssistantSaidAreThoseOfTransformers) {
  const ChatValue sources = fixture("sources.json"), chats = fixture("chats.json");
  const std::string name(GetParam());
  const ChatValue* source = sources.find(name);
  if (source == nullptr) GTEST_SKIP() << "no package has the text of this template";
  const ChatSettings settings = settings_of(*source);
  const auto families = chat_families();
  const auto family =
      std::find_if(families.begin(), families.end(), [&](const ChatFamily& f) { return f.name == name; });
  int compared = 0;
  for (const ChatValue& row : fixture(name + ".json").items) {
    const int64_t index = std::stoll(row.items[0].text);
    const Conversation conversation = conversation_of(chats.items[size_t(index)]);
    SCOPED_TRACE(fmt::format("{} {} {}", name, index, to_json(chats.items[size_t(index)])));
    const auto chat = render_chat(*family, settings, conversation);
    if (row.items[1].is_null()) {
      EXPECT_TRUE(!chat.ok() || has_odd_content(conversation) || lacks_content(conversation)) << chat->text;
      continue;
    }
    if (!chat.ok()) {
      EXPECT_TRUE(has_odd_content(conversation) || lacks_content(conversation)) << chat.message();
      continue;
    }
    if (has_odd_content(conversation) && shortened(index, chat->text) != row.items[1].text) continue;
    EXPECT_EQ(shortened(index, chat->text), row.items[1].text) << chat->text;
    std::string spans;
    for (const ChatValue& span : row.items[2].items) spans += to_json(span);
    EXPECT_EQ(own_spans(*chat, conversation), spans) << chat->text;
    ++compared;
    size_t end = 0;
    for (const ChatPiece& piece : chat->pieces) {
      EXPECT_EQ(piece.begin, end);
      EXPECT_LT(piece.begin, piece.end);
      end = piece.end;
    }
    EXPECT_EQ(end, chat->text.size());
  }
  EXPECT_GE(compared, 50);
}

INSTANTIATE_TEST_SUITE_P(Chat, Templates, testing::ValuesIn(chat_template_names()), [](const auto& family) {
  std::string name(family.param);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

TEST(ChatTemplates, AreRecognisedByTheirText) {
  const ChatValue sources = fixture("sources.json");
  int recognised = 0;
  for (const auto& [name, source] : sources.members) {
    const std::string& text = source.find("text")->text;
    if (!text.starts_with("inline:")) continue;
    const auto found = ChatTemplate::recognise(std::string_view(text).substr(7), {});
    ASSERT_TRUE(found.ok()) << name << ": " << found.message();
    EXPECT_EQ(found->name(), name);
    ++recognised;
  }
  EXPECT_EQ(recognised, 3);
}

// As trl spells Llama 3's to learn what the assistant says: it makes the same text.
TEST(ChatTemplates, AreRecognisedWhereTheyMarkWhatIsLearnt) {
  const auto found = ChatTemplate::recognise(R"({#- For training. -#}
{%- for message in messages %}
    {%- if loop.index0 == 0 %}{{- bos_token }}{%- endif %}
    {%- if message['role'] == 'assistant' %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
        {%- generation %}
        {{- message['content'] | trim + '<|eot_id|>' }}
        {%- endgeneration %}
    {%- else %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
)",
                                             {});
  ASSERT_TRUE(found.ok()) << found.message();
  EXPECT_EQ(found->name(), "llama3");
}

TEST(ChatTemplates, AreRecognisedInTheModelsOwnFiles) {
  const char* folder = std::getenv("SLUICE_CHAT_TEMPLATES");
  if (folder == nullptr) GTEST_SKIP() << "SLUICE_CHAT_TEMPLATES names no directory of NAME[.VARIANT].jinja";
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string file = entry.path().filename().string();
    const auto text = read_file(entry.path());
    const auto found = ChatTemplate::recognise(*text, {});
    if (!found.ok()) {
      ADD_FAILURE() << file << ": " << found.message();
      continue;
    }
    EXPECT_TRUE(file.starts_with(std::string(found->name()) + ".")) << file << " " << found->name();
  }
}

TEST(ChatTemplates, WhatTheyDoNotShowIsSaid) {
  const auto families = chat_families();
  const auto render = [&](std::string_view name, std::string_view json) {
    const auto family =
        std::find_if(families.begin(), families.end(), [&](const ChatFamily& f) { return f.name == name; });
    const auto value = parse_value(json);
    const auto chat = render_chat(*family, {"<s>", "</s>", {}}, conversation_of(*value));
    EXPECT_TRUE(chat.ok()) << chat.message();
    return fmt::format("{} {} {}{}", chat->lacks_tools, chat->lacks_tool_calls, chat->lacks_messages,
                       chat->lacks_reasoning ? " no reasoning" : "");
  };
  const char* thinks =
      R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "reasoning_content": "t"}],
          "tools": null})";
  EXPECT_EQ(render("chatml", thinks), "false false 0 no reasoning");
  EXPECT_EQ(render("qwen3", thinks), "false false 0");
  const char* calls =
      R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls":
          [{"id": "123456789", "function": {"name": "f", "arguments": "{}"}}]}], "tools": [{"function": {"name": "f"}}]})";
  EXPECT_EQ(render("chatml", calls), "true true 0");
  EXPECT_EQ(render("qwen2.5", calls), "false false 0");
  // Mistral's template shows a system message only where a user has the last word.
  EXPECT_EQ(render("mistral-v3",
                   R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"},
      {"role": "assistant", "content": "a"}], "tools": null})"),
            "false false 1");
}

TEST(ChatTemplates, ContentThatIsNoTextIsRefusedWithAWayOut) {
  const auto refused = [](std::string_view content) {
    const auto value = parse_value(fmt::format(R"({{"role": "user", "content": {}}})", content));
    return ChatMessage(*value, 0).content().message();
  };
  EXPECT_EQ(
      refused(R"([{"type": "text", "text": "q"}, {"type": "image_url", "image_url": {"url": "a.png"}}])"),
      "messages[0]: content has a part of the type image_url, and models of text read texts only; leave the "
      "part out, or "
      "such records with data.malformed = skip");
  EXPECT_EQ(
      refused(R"(["q"])"),
      R"(messages[0]: content has a part that is no text: "q"; allowed are {"type": "text", "text": "..."})");
}

TEST(ChatTemplates, ArgumentsOfCallsAreAnObjectOrAStringThatHoldsOne) {
  const auto families = chat_families();
  for (const ChatFamily& family : families) {
    if (!family.shows_calls) continue;
    const auto render = [&](std::string_view arguments) {
      const auto value = parse_value(fmt::format(
          R"({{"messages": [{{"role": "user", "content": "q"}}, {{"role": "assistant", "content": "", "tool_calls":
              [{{"id": "123456789", "function": {{"name": "f", "arguments": {}}}}}]}}], "tools": null}})",
          arguments));
      const auto chat = render_chat(family, {"<s>", "</s>", ChatDate{2025, 3, 9}}, conversation_of(*value));
      return chat.ok() ? chat->text : chat.message();
    };
    EXPECT_EQ(render(R"("{\"a\": [1, null]}")"), render(R"({"a": [1, null]})")) << family.name;
    const bool verbatim = family.name.starts_with("qwen3");
    EXPECT_EQ(render(R"("no json")").find("a string that holds no JSON object") == std::string::npos,
              verbatim)
        << family.name;
  }
}

TEST(ChatTemplates, NormalFormLeavesOutWhatDoesNotMatter) {
  const auto form = [](std::string_view text) {
    const auto result = normal_form_of_template(text);
    EXPECT_TRUE(result.ok()) << result.message();
    return result.ok() ? *result : std::string();
  };
  const std::string plain = form("{% for m in messages %}{{ 'a\\n' + m['role'] + 'b' }}{% endfor %}c");
  EXPECT_EQ(form("{%for m in messages%}{#x#}{{ \"a\n\" }}{{m.role}}b{% endfor %}c"), plain);
  EXPECT_EQ(
      form("{%- for m in messages -%}\n  {{- 'a\\n' -}} {{- m[\"role\"] + \"b\" -}}\n{%- endfor -%}\nc\n"),
      plain);
  EXPECT_EQ(form("  {% for m in messages %}\n{{ 'a' + '\\n' + m.role + 'b' }}{% endfor %}\nc"), plain);
  EXPECT_NE(form("{% for m in messages %}{{ 'a\\n' + m['role'] + 'B' }}{% endfor %}c"), plain);
  EXPECT_NE(form("{% for m in messages %}\n {{ 'a\\n' + m['role'] + 'b' }}{% endfor %}c"), plain);
  EXPECT_EQ(form("{% for m in messages %}{{ 'a\\n' }}{%- generation %}{{ m['role'] + 'b' }}{% endgeneration "
                 "%}{% endfor %}c"),
            plain);
  EXPECT_NE(form("{{ 'a' if x else 'b' + 'c' }}"), form("{{ 'a' if x else 'b' }}c"));
  EXPECT_FALSE(normal_form_of_template("{% for").ok());
  EXPECT_FALSE(normal_form_of_template("{{ 'a }}").ok());
}

}  // namespace
}  // namespace sluice::core
