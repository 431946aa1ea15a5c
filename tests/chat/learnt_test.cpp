// SPDX-License-Identifier: Apache-2.0
// Which tokens are learnt, beside the offsets of the library `tokenizers` (make_masks.py).
#include "chat/learnt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "base/philox.h"
#include "chat_texts.h"
#include "io/file.h"
#include "jinja/text.h"
#include "tokenizer/tokenizer.h"

namespace sluice::core {
namespace {

namespace fs = std::filesystem;

// A fixture of the tokenizers' tests with special tokens added.
const Tokenizer& tokenizer(const std::string& name) {
  static std::map<std::string, Tokenizer> opened;
  if (const auto it = opened.find(name); it != opened.end()) return it->second;
  const auto text = read_file(fs::path(SLUICE_TOKENIZERS) / (name + ".json"));
  auto json = nlohmann::ordered_json::parse(*text);
  for (const char* special :
       {"<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
        "<|eot_id|>", "<bos>", "<start_of_turn>", "<end_of_turn>", "<s>", "</s>", "[INST]", "[/INST]"}) {
    bool known = false;
    for (auto& token : json["added_tokens"]) {
      if (token["content"] != special) continue;
      known = true;
      token["special"] = true;
      token["normalized"] = false;
    }
    if (!known) {
      json["added_tokens"].push_back({{"id", 0},
                                      {"content", special},
                                      {"single_word", false},
                                      {"lstrip", false},
                                      {"rstrip", false},
                                      {"normalized", false},
                                      {"special", true}});
    }
  }
  auto made = Tokenizer::parse(json.dump());
  EXPECT_TRUE(made.ok()) << name << ": " << made.message();
  return opened.emplace(name, std::move(*made)).first->second;
}

ChatValue fixture(const std::string& name) {
  const auto text = read_file(fs::path(SLUICE_CHATS) / name);
  return *parse_value(*text);
}

template <class T>
std::string hashed(const std::vector<T>& values) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const T value : values) {
    uint64_t v = uint64_t(value);
    for (int i = 0; i < 8; ++i, v >>= 8) hash = (hash ^ (v & 0xff)) * 0x100000001b3;
  }
  return fmt::format("{}:{:016x}", values.size(), hash);
}

struct Rendered {
  Conversation conversation;
  RenderedChat chat;
};

Rendered rendered(std::string_view template_name, std::string_view messages) {
  const auto value = parse_value(messages);
  EXPECT_TRUE(value.ok()) << value.message();
  Conversation conversation{value->items, {}};
  auto chat = chat_template(template_name, {"<s>", "</s>"}).render(conversation);
  EXPECT_TRUE(chat.ok()) << chat.message();
  return {conversation, *chat};
}

// The text with what is learnt in brackets.
std::string shown(const LearntTokens& tokens, const Tokenizer& tokenizer) {
  std::string text;
  bool open = false;
  for (size_t i = 0; i < tokens.ids.size(); ++i) {
    if (open != (tokens.learnt[i] == 1)) text += open ? "}" : "{";
    open = tokens.learnt[i] == 1;
    text += *tokenizer.decode(std::span(tokens.ids).subspan(i, 1), false);
  }
  return open ? text + "}" : text;
}

TEST(LearntTokens, AreThoseInsideOfWhatTheAssistantSaid) {
  const ChatValue chats = fixture("chats.json"), sources = fixture("sources.json");
  std::map<std::string, ChatValue> rows;
  std::map<std::string, ChatTemplate> templates;
  int compared = 0;
  for (const ChatValue& mask : fixture("masks.json").items) {
    const std::string& name = mask.items[0].text;
    if (!rows.contains(name)) rows[name] = fixture(name + ".json");
    const ChatValue& row = rows[name].items[size_t(std::stoi(mask.items[1].text))];
    const ChatValue& item = chats.items[size_t(std::stoi(row.items[0].text))];
    const Conversation conversation{item.find("messages")->items, *item.find("tools")};
    const ChatValue* tokens = sources.find(name)->find("tokens");
    if (!templates.contains(name))
      templates.emplace(
          name, chat_template(name, {tokens->find("bos_token")->text, tokens->find("eos_token")->text}));
    const auto chat = templates.at(name).render(conversation);
    if (!chat.ok()) continue;
    SCOPED_TRACE(fmt::format("{} with {}: {}", name, mask.items[2].text, chat->text));
    const auto learnt = learnt_tokens(conversation, *chat, Learn::Assistant, tokenizer(mask.items[2].text));
    ASSERT_TRUE(learnt.ok()) << learnt.message();
    EXPECT_EQ(hashed(learnt->ids), mask.items[3].text);
    // A turn that says nothing is not learnt here, nor that nothing was thought.
    if (learnt->anew || learnt->renewed) continue;
    EXPECT_EQ(hashed(learnt->learnt), mask.items[4].text) << shown(*learnt, tokenizer(mask.items[2].text));
    ++compared;
  }
  EXPECT_GE(compared, 300);
}

// As make_fixtures.py.
std::string shortened(size_t index, const std::string& text) {
  if (index < 24 && text.size() <= 300) return text;
  return fmt::format("{}:{:016x}", text.size(), Hash().add(text).value());
}

// What the assistant says last in its turns.
std::string end_of(std::string_view template_name, const ChatSettings& settings) {
  return template_name.starts_with("mistral")  ? *settings.eos
         : template_name.starts_with("llama3") ? "<|eot_id|>"
         : template_name.starts_with("gemma")  ? "<end_of_turn>"
                                               : "<|im_end|>";
}

class ChatPrompts : public testing::TestWithParam<std::string_view> {};

TEST_P(ChatPrompts, HaveTheTextAndTheTokensOfTransformers) {
  const std::string name(GetParam());
  const ChatValue prompts = fixture("prompts.json"), sources = fixture("sources.json");
  const ChatValue* tokens = sources.find(name)->find("tokens");
  const ChatSettings settings{tokens->find("bos_token")->text, tokens->find("eos_token")->text,
                              ChatDate{2025, 3, 9}};
  const std::string end = end_of(name, settings);
  const ChatTemplate made = chat_template(name, settings);
  int compared = 0;
  for (const ChatValue& row : prompts.find(name)->items) {
    const auto index = size_t(std::stoi(row.items[0].text));
    const ChatValue& chat = prompts.find("chats")->items[index];
    SCOPED_TRACE(to_json(chat));
    const Conversation conversation{chat.find("messages")->items, {}};
    const auto prompt = made.prompt(conversation);
    EXPECT_EQ(prompt.ok(), !row.items[1].is_null());
    if (!prompt.ok()) continue;
    EXPECT_EQ(shortened(index, prompt->chat.text), row.items[1].text) << prompt->chat.text;
    EXPECT_EQ(prompt->end, end);
    if (row.items[2].is_null()) continue;
    const auto ids = learnt_tokens(conversation, prompt->chat, Learn::Everything, tokenizer("gpt2"));
    ASSERT_TRUE(ids.ok()) << ids.message();
    EXPECT_EQ(hashed(ids->ids), row.items[2].text);
    ++compared;
  }
  EXPECT_GE(compared, 30);
}

INSTANTIATE_TEST_SUITE_P(Chat, ChatPrompts, testing::ValuesIn(chat_text_names()), [](const auto& family) {
  std::string text(family.param);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return text;
});

// What is learnt of a conversation, with how many answers are empty where some are.
std::string learnt_of(std::string_view template_name, std::string_view messages,
                      Learn learn = Learn::Assistant, std::vector<Wish> wishes = {},
                      size_t answers_from = 0) {
  auto [conversation, chat] = rendered(template_name, messages);
  conversation.wishes = std::move(wishes);
  conversation.answers_from = answers_from;
  const auto learnt = learnt_tokens(conversation, chat, learn, tokenizer("gpt2"));
  EXPECT_TRUE(learnt.ok()) << learnt.message();
  std::string text;
  bool open = false;
  for (size_t i = 0; i < learnt->ids.size(); ++i) {
    const bool now = learnt->learnt[i] == 1;
    if (now) text += *tokenizer("gpt2").decode(std::span(learnt->ids).subspan(i, 1), false);
    if (open && !now) text += "|";
    open = now;
  }
  return learnt->empty_answers > 0 ? fmt::format("{}({} empty)", text, learnt->empty_answers) : text;
}

constexpr std::string_view kCall =
    R"("tool_calls": [{"id": "123456789", "type": "function", "function": {"name": "f", "arguments": {}}}])";

// A model that learns the end of a turn behind nothing answers everything with nothing.
TEST(LearntTokens, OfATurnThatSaysNothingAreNone) {
  const auto with = [](std::string_view answer) {
    return fmt::format(R"([{{"role": "user", "content": "q"}}, {{"role": "assistant", {}}},
                           {{"role": "user", "content": "r"}}, {{"role": "assistant", "content": "s"}}])",
                       answer);
  };
  for (const std::string_view content : {R"("content": "", )", R"("content": null, )", ""}) {
    const std::string calls = with(fmt::format("{}{}", content, kCall));
    for (const std::string_view name : {"chatml", "smollm2", "qwen2", "smollm3-short"})
      EXPECT_EQ(learnt_of(name, calls), "s<|im_end|>|") << name;
    EXPECT_EQ(learnt_of("llama3", calls), "s<|eot_id|>");
    // Where the template shows calls, they are said.
    EXPECT_TRUE(learnt_of("qwen2.5", calls).starts_with("<tool_call>")) << learnt_of("qwen2.5", calls);
  }
  EXPECT_EQ(learnt_of("chatml", with(R"("content": "a", )" + std::string(kCall))),
            "a<|im_end|>|s<|im_end|>|");
  EXPECT_EQ(learnt_of("chatml", with(R"("content": "")")), "s<|im_end|>|(1 empty)");
  EXPECT_EQ(learnt_of("chatml", with(R"("content": " \n")")), "s<|im_end|>|(1 empty)");
  EXPECT_EQ(learnt_of("gemma", with(R"("content": "  ")")), "s<end_of_turn>|(1 empty)");
  EXPECT_EQ(learnt_of("qwen3", with(R"("content": "")")), "s<|im_end|>|(1 empty)");
  EXPECT_EQ(learnt_of("mistral-v1", with(R"("content": "")")), " s</s>(1 empty)");
  // The last turn that says something is the last answer.
  const std::string_view ends = R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
                                    {"role": "user", "content": "r"}, {"role": "assistant", "content": ""}])";
  EXPECT_EQ(learnt_of("chatml", ends, Learn::Last), "a<|im_end|>|(1 empty)");
}

// Templates whose answers begin with a thought that the template puts there, and some that no name is known
// for.
std::string learnt_by(std::string_view text, std::string_view messages, Learn learn = Learn::Assistant) {
  const auto made = ChatTemplate::parse(text, {"<s>", "</s>"});
  EXPECT_TRUE(made.ok()) << made.message();
  const Conversation conversation{parse_value(messages)->items, {}};
  const auto chat = made->render(conversation);
  EXPECT_TRUE(chat.ok()) << chat.message();
  return shown(*learnt_tokens(conversation, *chat, learn, tokenizer("gpt2")), tokenizer("gpt2"));
}

// Some write results where the calls are, name the call again, and then what the caller says.
TEST(LearntTokens, OfATurnAroundAResultAreWhatTheAssistantSays) {
  constexpr std::string_view kAround = R"({% for m in messages %}{% if m.role != 'tool' %}<turn>{{ m.role }}
{% for call in m.tool_calls or [] %}<call>{{ call.function.name }}{}</call><result>{{ call.function.name }}:{{
 messages[2].content }}</result>{% endfor %}{{ m.content }}</s>
{% endif %}{% endfor %}{% if add_generation_prompt %}<turn>assistant
{% endif %})";
  EXPECT_EQ(learnt_by(kAround, R"([{"role": "user", "content": "q"},
      {"role": "assistant", "content": "done", "tool_calls": [
          {"type": "function", "function": {"name": "f", "arguments": {}}}]},
      {"role": "tool", "content": "42"}])"),
            "<turn>user\nq</s>\n<turn>assistant\n{<call>f{}</call>}<result>f:42</result>{done</s>}\n");
}

TEST(LearntTokens, OfAnyTemplateAreTurns) {
  constexpr std::string_view kThinks = R"({% for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' %}<think>{{ m.reasoning_content }}</think>
{% endif %}{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
<think>{% endif %})";
  EXPECT_EQ(
      learnt_by(kThinks, R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}])"),
      "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think></think>\n{a<|im_end|>}\n");
  EXPECT_EQ(
      learnt_by(
          kThinks,
          R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "reasoning": "r"}])"),
      "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>{r</think>\na<|im_end|>}\n");
  // A loop over indices says of no byte of the template which message it is of.
  constexpr std::string_view kIndices =
      R"({{ bos_token }}{% for i in range(messages | length) %}{% if messages[i].role == 'user'
 %}[INST] {{ messages[i].content }}[/INST]{% else %} {{ messages[i].content }}</s>{% endif %}{% endfor %})";
  EXPECT_EQ(learnt_by(kIndices, R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
                                    {"role": "user", "content": "r"}, {"role": "assistant", "content": "b"}])"),
            "<s>[INST] q[/INST]{ a</s>}[INST] r[/INST]{ b</s>}");
}

// What is learnt of a question and an answer, or of other messages.
constexpr std::string_view kTwo =
    R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}])";

TEST(LearntTokens, ATurnEndsWithTheTokenThatEndsGeneration) {
  constexpr std::string_view kBegin = "{% for m in messages %}<|{{ m.role }}|>";
  const auto learnt = [&](std::string_view rest, std::string_view messages = kTwo) {
    const std::string text = fmt::format("{}{}", kBegin, rest);
    const std::string all = learnt_by(text, messages);
    return all.substr(all.find('{'), all.rfind('}') + 1 - all.find('{'));
  };
  constexpr std::string_view kPrompt = "{% if add_generation_prompt %}<|assistant|>{% endif %}";
  // Two special tokens behind an answer: the one that is eos, or else the last.
  EXPECT_EQ(learnt(fmt::format("{{{{ m.content }}}}</s><|eot_id|>{{% endfor %}}{}", kPrompt)), "{a</s>}");
  EXPECT_EQ(learnt(fmt::format("{{{{ m.content }}}}<|end_x|><|eot_id|>{{% endfor %}}{}", kPrompt)),
            "{a<|end_x|><|eot_id|>}");
  // What only ends the text, where another token ends every turn.
  EXPECT_EQ(learnt(fmt::format("{{{{ m.content }}}}<|eot_id|>{{% endfor %}}"
                               "{{% if not add_generation_prompt %}}</s>{{% endif %}}{}",
                               kPrompt)),
            "{a<|eot_id|>}");
  // The next role's, as GLM-4 has it.
  EXPECT_EQ(learnt(fmt::format("{{{{ m.content }}}}{{% endfor %}}{}", kPrompt),
                   R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
                       {"role": "user", "content": "r"}])"),
            "{a<|user|>}");
  // A conversation that begins with an answer has a header, too.
  EXPECT_EQ(learnt(fmt::format("{{{{ m.content }}}}<|eot_id|>{{% endfor %}}"
                               "{{% if not add_generation_prompt %}}</s>{{% endif %}}{}",
                               kPrompt),
                   R"([{"role": "assistant", "content": "a"}])"),
            "{a<|eot_id|>}");
}

TEST(LearntTokens, TemplatesThatShowListsAloneAreProbedWithLists) {
  const auto made = ChatTemplate::parse(
      "{% for m in messages %}{{ m.role | capitalize }}:{% for part in m.content %}{{ part.text }}{% endfor "
      "%}"
      "</s>\n{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}",
      {"<s>", "</s>"});
  ASSERT_TRUE(made.ok()) << made.message();
  const auto list = [](std::string_view role, std::string_view text) {
    return *parse_value(
        fmt::format(R"({{"role": "{}", "content": [{{"type": "text", "text": "{}"}}]}})", role, text));
  };
  const Conversation conversation{{list("user", "q"), list("assistant", "a")}, {}};
  const auto chat = made->render(conversation);
  ASSERT_TRUE(chat.ok()) << chat.message();
  const auto learnt = *learnt_tokens(conversation, *chat, Learn::Assistant, tokenizer("gpt2"));
  EXPECT_EQ(shown(learnt, tokenizer("gpt2")), "User:q</s>\nAssistant:{a</s>}\n");
  EXPECT_FALSE(learnt.markup);
}

TEST(LearntTokens, WhatATemplateRepeatsOfEarlierTurnsIsNotLearnt) {
  constexpr std::string_view kRepeats =
      "{% set ns = namespace(name='') %}{% for m in messages %}{% if m.role == 'tool' %}"
      "<|start|>{{ ns.name }} says {{ m.content }}<|eot_id|>{% else %}<|start|>{{ m.role }}:{{ m.content }}"
      "{% if m.tool_calls %}{% set ns.name = m.tool_calls[0].function.name %}{{ ns.name }}{% endif "
      "%}<|eot_id|>"
      "{% endif %}{% endfor %}{% if add_generation_prompt %}<|start|>assistant:{% endif %}";
  EXPECT_EQ(learnt_by(kRepeats, R"([{"role": "user", "content": "q"},
      {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
      {"role": "tool", "content": "x"}, {"role": "assistant", "content": "a"}])"),
            "<|start|>user:q<|eot_id|><|start|>assistant:{f<|eot_id|>}<|start|>f says x<|eot_id|>"
            "<|start|>assistant:{a<|eot_id|>}");
}

TEST(LearntTokens, MarksOfTheTemplateSayWhichAnswersAreLearnt) {
  constexpr std::string_view kMarks =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and m.good %}"
      "{% generation %}{{ m.content }}<|im_end|>\n{% endgeneration %}{% else %}{{ m.content }}<|im_end|>\n"
      "{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  constexpr std::string_view kAnswers =
      R"([{"role": "assistant", "content": "a", "good": false}, {"role": "assistant", "content": "b", "good": true}])";
  constexpr std::string_view kHead = "<|im_start|>assistant\na<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(learnt_by(kMarks, kAnswers), fmt::format("{}{{b<|im_end|>}}\n", kHead));
  EXPECT_EQ(learnt_by(kMarks, kAnswers, Learn::Marked), fmt::format("{}{{b<|im_end|>\n}}", kHead));
  EXPECT_TRUE(ChatTemplate::parse(kMarks, {})->marks());
  EXPECT_FALSE(chat_template("chatml", {}).marks());
}

TEST(LearntTokens, ThoughtsMayBeContext) {
  const Tokenizer& gpt2 = tokenizer("gpt2");
  const auto without_thoughts = [&](std::string_view messages) {
    const auto [conversation, chat] = rendered("qwen3", messages);
    return shown(*learnt_tokens(conversation, chat, Learn::Assistant, gpt2, /*thoughts=*/false), gpt2);
  };
  constexpr std::string_view kSaid =
      "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\nt\n</think>\n\n{a<|im_end|>}\n";
  EXPECT_EQ(without_thoughts(R"([{"role": "user", "content": "q"},
      {"role": "assistant", "content": "a", "reasoning_content": "t"}])"),
            kSaid);
  EXPECT_EQ(without_thoughts(R"([{"role": "user", "content": "q"},
      {"role": "assistant", "content": "<think>\nt\n</think>\n\na"}])"),
            kSaid);
}

TEST(LearntTokens, ATurnOfAToolHasTheMarksAroundItsResult) {
  constexpr std::string_view kTurns =
      R"([{"role": "system", "content": "s"}, {"role": "user", "content": "q"},
          {"role": "assistant", "content": "a"}, {"role": "tool", "content": "r"},
          {"role": "tool", "content": "t"}, {"role": "assistant", "content": "b"}])";
  EXPECT_EQ(learnt_of("qwen2.5", kTurns, Learn::AllTurns, {}),
            "s<|im_end|>|q<|im_end|>|a<|im_end|>|<tool_response>\nr\n</tool_response>\n<tool_response>\nt\n"
            "</tool_response><|im_end|>|b<|im_end|>|");
  EXPECT_EQ(learnt_of("llama3.1", kTurns, Learn::AllTurns, {}),
            "s<|eot_id|>|q<|eot_id|>|a<|eot_id|>|\"r\"<|eot_id|>|\"t\"<|eot_id|>|b<|eot_id|>");
}

// Sluice 0.2 left a system's turn out there, of this template alone.
TEST(LearntTokens, OfASystemAreAnewWhereTheyWereLeftOut) {
  constexpr std::string_view kTurns =
      R"([{"role": "system", "content": "s"}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}])";
  for (const auto& [name, learn, renewed] : {std::tuple("smollm3-short", Learn::AllTurns, true),
                                             {"smollm3-short", Learn::Assistant, false},
                                             {"chatml", Learn::AllTurns, false}}) {
    const auto [conversation, chat] = rendered(name, kTurns);
    EXPECT_EQ(learnt_tokens(conversation, chat, learn, tokenizer("gpt2"))->renewed, renewed) << name;
  }
}

TEST(LearntTokens, SpecialTokensInTextAreAllowedByName) {
  const Tokenizer& gpt2 = tokenizer("gpt2");
  const auto [conversation, chat] = rendered(
      "chatml", R"([{"role": "user", "content": "x<s>y</s>"}, {"role": "assistant", "content": "a"}])");
  const std::vector<int32_t> allowed{gpt2.id("<s>")};
  const auto count = [&](std::span<const int32_t> special, std::string_view token) {
    const auto ids = learnt_tokens(conversation, chat, Learn::Assistant, gpt2, true, special)->ids;
    return std::count(ids.begin(), ids.end(), gpt2.id(token));
  };
  EXPECT_EQ(count({}, "<s>"), 0);
  EXPECT_EQ(count(allowed, "<s>"), 1);
  EXPECT_EQ(count(allowed, "</s>"), 0);
}

// Four turns, of which the data says what is learnt.
TEST(LearntTokens, AreThoseThatTheDataWishes) {
  constexpr std::string_view kTurns =
      R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                    {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}])";
  constexpr Wish None = Wish::None, Context = Wish::Context;
  EXPECT_EQ(learnt_of("chatml", kTurns, Learn::Assistant, {None, Context, None, None}), "d<|im_end|>|");
  EXPECT_EQ(learnt_of("chatml", kTurns, Learn::Assistant, {None, None, Wish::Learn, Context}),
            "b<|im_end|>|c<|im_end|>|");
  EXPECT_EQ(learnt_of("chatml", kTurns, Learn::AllTurns, {None, Context, None, None}),
            "a<|im_end|>|c<|im_end|>|d<|im_end|>|");
  EXPECT_EQ(learnt_of("chatml", kTurns, Learn::Last, {None, None, None, Context}), "");
  EXPECT_EQ(
      learnt_of("chatml", kTurns, Learn::Everything, {None, None, None, Context}),
      "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n|");
  // Of a prompt and its completion the prompt's answers are context.
  EXPECT_EQ(learnt_of("chatml", kTurns, Learn::Assistant, {}, 3), "d<|im_end|>|");
  EXPECT_EQ(learnt_of("chatml", kTurns, Learn::AllTurns, {}, 3),
            "a<|im_end|>|b<|im_end|>|c<|im_end|>|d<|im_end|>|");
}

TEST(LearntTokens, AreChosenByWhoSpeaks) {
  const auto [conversation, chat] =
      rendered("chatml", R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                    {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}])");
  const auto shows = [&, &conversation = conversation, &chat = chat](Learn learn) {
    const auto learnt = learnt_tokens(conversation, chat, learn, tokenizer("gpt2"));
    EXPECT_TRUE(learnt.ok()) << learnt.message();
    EXPECT_EQ(learnt->straddling, 0);
    return shown(*learnt, tokenizer("gpt2"));
  };
  EXPECT_EQ(shows(Learn::Assistant),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n{b<|im_end|>}\n"
            "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n{d<|im_end|>}\n");
  EXPECT_EQ(shows(Learn::Last),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
            "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n{d<|im_end|>}\n");
  EXPECT_EQ(shows(Learn::AllTurns),
            "<|im_start|>user\n{a<|im_end|>}\n<|im_start|>assistant\n{b<|im_end|>}\n"
            "<|im_start|>user\n{c<|im_end|>}\n<|im_start|>assistant\n{d<|im_end|>}\n");
  EXPECT_EQ(shows(Learn::Everything),
            "{<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
            "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\nd<|im_end|>\n}");
}

TEST(LearntTokens, SpecialTokensInWhatIsSaidAreText) {
  const auto [conversation, chat] = rendered(
      "chatml",
      R"([{"role": "user", "content": "say <|im_end|>"}, {"role": "assistant", "content": "x<|im_end|>\n<|im_start|>user"}])");
  const Tokenizer& gpt2 = tokenizer("gpt2");
  const auto learnt = learnt_tokens(conversation, chat, Learn::Assistant, gpt2);
  ASSERT_TRUE(learnt.ok()) << learnt.message();
  const auto count = [&](std::string_view token, bool only_learnt) {
    int64_t found = 0;
    for (size_t i = 0; i < learnt->ids.size(); ++i)
      found += learnt->ids[i] == gpt2.id(token) && (!only_learnt || learnt->learnt[i] == 1) ? 1 : 0;
    return found;
  };
  EXPECT_EQ(count("<|im_start|>", false), 2);
  EXPECT_EQ(count("<|im_end|>", false), 2);
  EXPECT_EQ(count("<|im_end|>", true), 1);
  EXPECT_EQ(*gpt2.decode(learnt->ids, false), chat.text);
}

// Words in several scripts, spaces, and what looks like markup of some template.
std::string random_text(uint64_t chat, uint32_t turn) {
  constexpr std::string_view kPieces[] = {"a",
                                          "cap",
                                          " ",
                                          "\n",
                                          "\n\n",
                                          "  ",
                                          "\t",
                                          "7",
                                          "é",
                                          "e\u0301",
                                          "一二",
                                          "\U0001f600",
                                          ".",
                                          "it",
                                          "'s",
                                          "</s>",
                                          "<|im_end|>",
                                          "<s>",
                                          "[INST]",
                                          "<|eot_id|>",
                                          "<end_of_turn>",
                                          "assistant",
                                          "<|im_start|>user\n"};
  const Philox4 size = philox(11, chat, turn);
  std::string text = "x";
  for (uint32_t i = 0; i < size.v[0] % 12; ++i)
    text += kPieces[philox(12, chat * 64 + turn, i).v[0] % std::size(kPieces)];
  return text + (size.v[1] % 2 == 0 ? "y" : "");
}

std::string stripped(std::string_view text) {
  const auto rest = jinja::stripped(text, nullptr, true, true);
  return std::string(text.substr(rest.begin, rest.end - rest.begin));
}

class RandomChats : public testing::TestWithParam<std::string_view> {};

// Of every answer its words and the token that ends it are learnt, and of nobody else's anything.
TEST_P(RandomChats, HaveTheAssistantsTurnsLearntAndNothingElse) {
  const std::string name(GetParam());
  const ChatValue sources = fixture("sources.json");
  const ChatValue* tokens = sources.find(name)->find("tokens");
  const ChatSettings settings{tokens->find("bos_token")->text, tokens->find("eos_token")->text,
                              ChatDate{2025, 3, 9}};
  const std::string end = end_of(name, settings);
  const ChatTemplate made = chat_template(name, settings);
  int answers = 0, whole = 0;
  for (uint64_t chat = 0; chat < 60; ++chat) {
    Conversation conversation;
    std::vector<std::string> said;
    for (uint32_t turn = 0; turn < 2 + 2 * (philox(13, chat, 0).v[0] % 3); ++turn) {
      const bool answers_now = turn % 2 == 1;
      ChatValue message;
      message.kind = ChatValue::Kind::Object;
      message.members.emplace_back("role", ChatValue::string(answers_now ? "assistant" : "user"));
      message.members.emplace_back("content", ChatValue::string(random_text(chat, turn)));
      if (answers_now) said.push_back(message.members.back().second.text);
      conversation.messages.push_back(std::move(message));
    }
    const auto rendered = made.render(conversation);
    ASSERT_TRUE(rendered.ok()) << rendered.message();
    for (const char* words : {"gpt2", "llama3", "o200k"}) {
      const Tokenizer& by = tokenizer(words);
      const auto learnt = learnt_tokens(conversation, *rendered, Learn::Assistant, by);
      ASSERT_TRUE(learnt.ok()) << learnt.message();
      std::vector<std::vector<int32_t>> runs;
      for (size_t i = 0; i < learnt->ids.size(); ++i) {
        if (learnt->learnt[i] == 0) continue;
        if (i == 0 || learnt->learnt[i - 1] == 0) runs.emplace_back();
        runs.back().push_back(learnt->ids[i]);
      }
      SCOPED_TRACE(fmt::format("{} by {}: {}", name, words, shown(*learnt, by)));
      ASSERT_EQ(runs.size(), said.size());
      for (size_t i = 0; i < runs.size(); ++i, ++answers) {
        ASSERT_EQ(runs[i].back(), by.id(end));
        EXPECT_EQ(std::count(runs[i].begin(), runs[i].end(), by.id(end)), 1) << "what it said is text";
        runs[i].pop_back();
        // A token over the edge is context. Qwen 3 says that it did not think.
        constexpr std::string_view kNoThought = "<think>\n\n</think>";
        std::string text = stripped(*by.decode(runs[i], false));
        if (text.starts_with(kNoThought)) text = stripped(text.substr(kNoThought.size()));
        const std::string all = stripped(said[i]);
        EXPECT_TRUE(learnt->straddling > 0 ? all.ends_with(text) : all == text) << text;
        whole += all == text ? 1 : 0;
      }
    }
  }
  EXPECT_GT(answers, 300);
  EXPECT_GT(whole, answers / 2);
}

INSTANTIATE_TEST_SUITE_P(Chat, RandomChats, testing::ValuesIn(chat_text_names()), [](const auto& family) {
  std::string text(family.param);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return text;
});

TEST(LearntTokens, ATokenOverTheEdgeIsContext) {
  // In the words of Llama 3 several line ends are one piece, so that a header's and an answer's are, too.
  const auto [conversation, chat] =
      rendered("chatml", R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "\n\nb"}])");
  for (const char* name : {"llama3", "qwen2", "gpt2", "llama2"}) {
    const auto learnt = learnt_tokens(conversation, chat, Learn::Assistant, tokenizer(name));
    ASSERT_TRUE(learnt.ok()) << learnt.message();
    std::vector<int32_t> said;
    for (size_t i = 0; i < learnt->ids.size(); ++i)
      if (learnt->learnt[i] == 1) said.push_back(learnt->ids[i]);
    const std::string text = *tokenizer(name).decode(said, false);
    EXPECT_TRUE(text.ends_with("b<|im_end|>")) << name << ": " << text;
    EXPECT_EQ(text.find("assistant"), text.npos) << name << ": " << text;
    EXPECT_EQ(learnt->straddling > 0, !text.starts_with("\n\n")) << name << ": " << text;
  }
}

TEST(LearntTokens, NormalizedTextKeepsItsPlaces) {
  const auto [conversation, chat] = rendered(
      "chatml",
      R"([{"role": "user", "content": "e\u0301e\u0301"}, {"role": "assistant", "content": "cafe\u0301 e\u0301!"}])");
  const auto learnt = learnt_tokens(conversation, chat, Learn::Assistant, tokenizer("qwen2"));
  ASSERT_TRUE(learnt.ok()) << learnt.message();
  std::vector<int32_t> said;
  for (size_t i = 0; i < learnt->ids.size(); ++i)
    if (learnt->learnt[i] == 1) said.push_back(learnt->ids[i]);
  EXPECT_EQ(*tokenizer("qwen2").decode(said, false), "café é!<|im_end|>");
}

TEST(LearntTokens, ACompletionIsLearntWithItsEnd) {
  const Tokenizer& gpt2 = tokenizer("gpt2");
  const auto pair = learnt_tokens("question answer", 8, gpt2.id("</s>"), gpt2);
  ASSERT_TRUE(pair.ok()) << pair.message();
  EXPECT_EQ(shown(*pair, gpt2), "question{ answer</s>}");
  const std::vector<int32_t> special{gpt2.id("</s>")};
  EXPECT_EQ(shown(*learnt_tokens("text</s>", 0, gpt2.id("</s>"), gpt2, special), gpt2), "{text</s>}");
  const auto written = learnt_tokens("text</s>", 0, gpt2.id("</s>"), gpt2);
  EXPECT_EQ(shown(*written, gpt2), "{text</s></s>}");
  EXPECT_EQ(written->written, gpt2.id("</s>"));
}

}  // namespace
}  // namespace sluice::core
