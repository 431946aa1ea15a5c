// SPDX-License-Identifier: Apache-2.0
// What templates make of conversations, beside what transformers made of them (make_fixtures.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <regex>

#include "base/hash.h"
#include "chat/chat_template.h"
#include "chat_texts.h"
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
  const ChatSettings settings = settings_of(*source);
  const ChatTemplate made = chat_template(name, settings);
  int compared = 0;
  for (const ChatValue& row : fixture(name + ".json").items) {
    const int64_t index = std::stoll(row.items[0].text);
    const Conversation conversation = conversation_of(chats.items[size_t(index)]);
    SCOPED_TRACE(fmt::format("{} {} {}", name, index, to_json(chats.items[size_t(index)])));
    const auto chat = made.render(conversation);
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
    constexpr std::string_view kUnthought = "<think>\n\n</think>\n\n";  // is not learnt
    for (const ChatValue& span : row.items[2].items) {
      const auto begin = size_t(std::stoll(span.items[0].text));
      const bool unthought = name == "qwen3" && chat->text.substr(begin).starts_with(kUnthought);
      const size_t skipped = unthought ? kUnthought.size() : 0;
      spans += fmt::format("[{}, {}]", begin + skipped, span.items[1].text);
    }
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

INSTANTIATE_TEST_SUITE_P(Chat, Templates, testing::ValuesIn(chat_text_names()), [](const auto& family) {
  std::string name(family.param);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

TEST(ChatTemplates, AreKnownByTheirText) {
  int known = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(SLUICE_CHATS) / "../templates")) {
    if (entry.path().extension() != ".jinja") continue;
    const std::string file = entry.path().filename().string();
    const auto text = read_file(entry.path());
    const auto found = ChatTemplate::parse(*text, {});
    ASSERT_TRUE(found.ok()) << file << ": " << found.message();
    EXPECT_TRUE(file.starts_with(std::string(found->name()) + ".")) << file << " " << found->name();
    ++known;
  }
  EXPECT_EQ(known, 27);
}

// Texts of one name render the same.
TEST(ChatTemplates, EveryTextRendersAsInTransformers) {
  const ChatValue sources = fixture("sources.json"), chats = fixture("chats.json");
  for (const auto& entry : fs::directory_iterator(fs::path(SLUICE_CHATS) / "../templates")) {
    if (entry.path().extension() != ".jinja") continue;
    const std::string stem = entry.path().stem().string();
    const auto text = read_file(entry.path());
    const std::string name(ChatTemplate::parse(*text, {})->name());
    const ChatTemplate made = chat_template(stem, settings_of(*sources.find(name)));
    int compared = 0;
    for (const ChatValue& row : fixture(name + ".json").items) {
      const int64_t index = std::stoll(row.items[0].text);
      const Conversation conversation = conversation_of(chats.items[size_t(index)]);
      const auto chat = made.render(conversation);
      if (row.items[1].is_null() || has_odd_content(conversation) || lacks_content(conversation)) continue;
      ASSERT_TRUE(chat.ok()) << stem << ": " << chat.message();
      EXPECT_EQ(shortened(index, chat->text), row.items[1].text) << stem << " " << index;
      ++compared;
    }
    EXPECT_GE(compared, 50) << stem;
  }
}

// A record's variables come before those of all, and both travel with the text.
TEST(ChatTemplates, AreToldVariables) {
  ChatSettings settings;
  settings.kwargs = *parse_value(R"({"style": "plain", "deep": [1, null]})");
  const auto made = ChatTemplate::parse(
      "{{ style }} {{ deep[0] }} {{ documents[0].title }}{% for m in messages %}{{ m.content }}{% endfor %}",
      settings);
  ASSERT_TRUE(made.ok()) << made.message();
  Conversation conversation{{*parse_value(R"({"role": "user", "content": "q"})")}, {}};
  conversation.documents = *parse_value(R"([{"title": "t"}])");
  EXPECT_EQ(made->render(conversation)->text, "plain 1 tq");
  const auto alone = ChatTemplate::parse(made->text(), {});
  ASSERT_TRUE(alone.ok()) << alone.message();
  EXPECT_EQ(alone->render(conversation)->text, "plain 1 tq");
  conversation.kwargs = *parse_value(R"({"style": "bold"})");
  EXPECT_EQ(made->render(conversation)->text, "bold 1 tq");
  EXPECT_EQ(alone->render(conversation)->text, "bold 1 tq");
  conversation.kwargs = *parse_value(R"({"messages": []})");
  EXPECT_EQ(made->render(conversation).message(),
            "chat_template_kwargs has messages, which a record says by itself; leave it out");
}

TEST(ChatTemplates, WhatTheyDoNotShowIsSaid) {
  const auto render = [&](std::string_view name, std::string_view json) {
    const auto value = parse_value(json);
    const auto chat = chat_template(name, {"<s>", "</s>"}).render(conversation_of(*value));
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
  // Arguments may be anything where the call is not shown.
  for (const std::string_view name : {"chatml", "llama3", "gemma3"}) {
    for (const std::string_view arguments : {"", "no json"}) {
      const std::string odd =
          std::regex_replace(calls, std::regex("\\{\\}\""), std::string(arguments) + "\"");
      EXPECT_EQ(render(name, odd), "true true 0") << name << arguments;
    }
  }
  // Mistral's template shows a system message only where a user has the last word.
  EXPECT_EQ(render("mistral-v3",
                   R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"},
      {"role": "assistant", "content": "a"}], "tools": null})"),
            "false false 1");
}

TEST(ChatTemplates, ContentThatIsNoTextIsRefusedWithAWayOut) {
  const auto refused = [](std::string_view content) {
    const auto value = parse_value(fmt::format(R"({{"role": "user", "content": {}}})", content));
    return chat_template("chatml", {}).render({{*value}, {}}).message();
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

// Where a template fails at lists, prints them or passes them over, their texts are one.
TEST(ChatTemplates, ListsOfTextsAreNeverLost) {
  const auto value = parse_value(
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": " one "}, {"type": "text", "text": "two"}]},
          {"role": "assistant", "content": "a"}], "tools": null})");
  for (const std::string_view name : {"chatml", "qwen3", "qwen3-2507", "llama3", "smollm3-short"}) {
    const auto chat = chat_template(name, {"<s>", "</s>"}).render(conversation_of(*value));
    ASSERT_TRUE(chat.ok()) << name << ": " << chat.message();
    EXPECT_NE(chat->text.find(name == "llama3" ? "one two" : " one two"), std::string::npos) << chat->text;
    EXPECT_EQ(chat->lacks_messages, 0) << name;
  }
  // Gemma's trims each part.
  EXPECT_NE(chat_template("gemma3", {"<s>", "</s>"}).render(conversation_of(*value))->text.find("onetwo"),
            std::string::npos);
}

TEST(ChatTemplates, ArgumentsOfCallsAreAnObjectOrAStringThatHoldsOne) {
  for (const std::string_view name :
       {"qwen2.5", "qwen3", "qwen3-2507", "llama3.1", "llama3.2", "mistral-v3", "mistral-nemo"}) {
    const ChatTemplate made = chat_template(name, {"<s>", "</s>", ChatDate{2025, 3, 9}});
    const auto render = [&](std::string_view arguments) {
      const auto value = parse_value(fmt::format(
          R"({{"messages": [{{"role": "user", "content": "q"}}, {{"role": "assistant", "content": "", "tool_calls":
              [{{"id": "123456789", "function": {{"name": "f", "arguments": {}}}}}]}}], "tools": null}})",
          arguments));
      const auto chat = made.render(conversation_of(*value));
      return chat.ok() ? chat->text : chat.message();
    };
    EXPECT_EQ(render(R"("{\"a\": [1, null]}")"), render(R"({"a": [1, null]})")) << name;
    const bool verbatim = name.starts_with("qwen3");
    EXPECT_EQ(render(R"(" ")") == render("{}"), !verbatim) << name;
    EXPECT_EQ(render(R"("no json")").find("a string that holds no JSON object") == std::string::npos,
              verbatim)
        << name;
  }
}

}  // namespace
}  // namespace sluice::core
