// SPDX-License-Identifier: Apache-2.0
// The formats that people have: what is read of each, and what is refused with its way out.
#include <gtest/gtest.h>

#include <filesystem>

#include "io/file.h"
#include "records/keys.h"
#include "records/recognise.h"
#include "records/record.h"
#include "records/table_reader.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

// A record in short: "prompt|answer" with what belongs to them, messages with their roles and wishes.
std::string in_short(const Record& record) {
  if (record.kind == Record::Kind::Pair) {
    std::string text = record.text;
    text.insert(record.completion, "|");
    if (!record.context.empty()) text = fmt::format("{} ({})", text, record.context);
    if (!record.system.empty()) text = fmt::format("[{}] {}", record.system, text);
    return record.asks ? "? " + text : text;
  }
  if (record.kind != Record::Kind::Chat) return record.text;
  std::string text;
  for (size_t i = 0; i < record.chat.messages.size(); ++i) {
    if (i == record.chat.answers_from && i > 0) text += "=> ";
    const ChatValue& message = record.chat.messages[i];
    const ChatValue* content = message.find("content");
    constexpr std::string_view kWishes[] = {"", "+", "-"};
    text += fmt::format("{}{}:{} ", kWishes[size_t(record.chat.wishes[i])], message.find("role")->text,
                        content == nullptr ? "" : content->text);
    if (const ChatValue* calls = message.find("tool_calls")) text += to_json(*calls) + " ";
  }
  return text;
}

std::string read(std::string_view json, const RecordOptions& options = {}) {
  const auto record = parse_record(json, options);
  return record.ok() ? in_short(*record) : record.message();
}

bool says(const std::string& text, std::string_view what) {
  return text.find(what) != text.npos;
}

TEST(Forms, QuestionsAndAnswersAreFoundUnderTheirUsualNames) {
  EXPECT_EQ(read(R"({"prompt": "q", "completion": "a"})"), "q|a");
  EXPECT_EQ(read(R"({"instruction": "q", "input": "c", "output": "a"})"), "? q|a (c)");
  EXPECT_EQ(read(R"({"instruction": "q", "input": "", "output": "a"})"), "? q|a");
  EXPECT_EQ(read(R"({"instruction": "q", "context": "c", "response": "a", "category": "x"})"), "? q|a (c)");
  EXPECT_EQ(read(R"({"prompt": "q", "response": "a"})"), "? q|a");
  EXPECT_EQ(read(R"({"question": "q", "answer": "a"})"), "? q|a");
  EXPECT_EQ(read(R"({"query": "q", "response": "a"})"), "? q|a");
  EXPECT_EQ(read(R"({"system_prompt": "s", "question": "q", "response": "a"})"), "? [s] q|a");
  EXPECT_EQ(read(R"({"input": "q", "output": "a"})"), "? q|a");
  EXPECT_EQ(read(R"({"INSTRUCTION": "q", "RESPONSE": "a"})"), "? q|a");
  EXPECT_EQ(read(R"({"question": "q", "answer": "a", "response": null, "prompt": ""})"), "? q|a");
  EXPECT_EQ(read(R"({"question": "q", "answer": "a", "response": "b"})"),
            "both response and answer may be the completion: data.fields.completion says which is");
  EXPECT_EQ(read(R"({"question": "q", "answer": 3})"), "answer is a number, no string");
}

TEST(Forms, PromptsAndCompletionsMayBeMessages) {
  EXPECT_EQ(read(R"({"prompt": [{"role": "user", "content": "q"}],
                     "completion": [{"role": "assistant", "content": "a"}]})"),
            "user:q => assistant:a ");
  EXPECT_EQ(read(R"({"prompt": [{"role": "user", "content": "q"}], "completion": "a"})"),
            "prompt is a list, and completion a string: both are texts, or both lists of messages");
  EXPECT_TRUE(says(read(R"({"prompt": [{"role": "user", "content": "q"}]})"), "prompt without an answer"));
}

TEST(Forms, OtherNamesAreGivenByTheConfiguration) {
  RecordOptions options;
  options.fields = {.prompt = "Frage", .completion = "Antwort"};
  EXPECT_EQ(read(R"({"Frage": "q", "Antwort": "a", "text": "t"})", options), "? q|a");
  EXPECT_EQ(read(R"({"text": "t"})", options), "t") << "a record without them is what it is";
  EXPECT_TRUE(says(read(R"({"Frage": "q"})", options), "data.fields.prompt = Frage"));
  options.fields = {.text = "content"};
  EXPECT_EQ(read(R"({"content": "t"})", options), "t");
  options.fields = {.messages = "dialog"};
  EXPECT_EQ(read(R"({"dialog": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]})", options),
            "user:q assistant:a ");
}

// Both answers of a pair, or a marked one with its mark.
std::string compared(std::string_view json, Compares compares = Compares::Pairs) {
  RecordOptions options;
  options.compares = compares;
  const auto record = parse_record(json, options);
  if (!record.ok()) return record.message();
  if (compares == Compares::Marks) return (record->bad ? "bad " : "good ") + in_short(*record);
  return in_short(*record) + " < " + in_short(record->worse.front());
}

TEST(Forms, PairsAreReadAsTrlAxolotlAndLlamaFactoryWriteThem) {
  EXPECT_EQ(compared(R"({"prompt": "q ", "chosen": "a", "rejected": "b"})"), "q |a < q |b");
  EXPECT_EQ(compared(R"({"chosen": "q is a", "rejected": "q is b"})"), "q is| a < q is| b");
  const std::string turns = "user:q => assistant:a  < user:q => assistant:b ";
  const std::string q = R"({"role": "user", "content": "q"})", a = R"({"role": "assistant", "content": "a"})",
                    b = R"({"role": "assistant", "content": "b"})";
  const auto with = [&](std::string_view text, auto... parts) {
    return fmt::format(fmt::runtime(text), parts...);
  };
  EXPECT_EQ(compared(with(R"({{"prompt": [{}], "chosen": [{}], "rejected": [{}]}})", q, a, b)), turns);
  EXPECT_EQ(compared(with(R"({{"chosen": [{}, {}], "rejected": [{}, {}]}})", q, a, q, b)), turns);
  // HuggingFaceH4/ultrafeedback_binarized has the prompt beside whole conversations.
  EXPECT_EQ(compared(with(R"({{"prompt": "q", "chosen": [{}, {}], "rejected": [{}, {}]}})", q, a, q, b)),
            turns);
  EXPECT_EQ(compared(with(R"({{"prompt": "q", "chosen": [{}], "rejected": [{}]}})", a, b)), turns);
  // axolotl
  EXPECT_EQ(compared(with(R"({{"messages": [{}], "chosen": {}, "rejected": {}}})", q, a, b)), turns);
  EXPECT_EQ(compared(R"({"system": "s", "question": "q", "chosen": "a", "rejected": "b"})"),
            "? [s] q|a < ? [s] q|b");
  EXPECT_EQ(compared(R"({"instruction": "q", "chosen_response": "a", "rejected_response": "b"})"),
            "? q|a < ? q|b");
  // LLaMA-Factory
  EXPECT_EQ(compared(R"({"instruction": "q", "input": "c", "chosen": "a", "rejected": "b"})"),
            "? q|a (c) < ? q|b (c)");
  EXPECT_EQ(compared(R"({"conversations": [{"from": "human", "value": "q"}], "system": "s",
                         "chosen": {"from": "gpt", "value": "a"}, "rejected": {"from": "gpt", "value": "b"}})"),
            "system:s user:q => assistant:a  < system:s user:q => assistant:b ");
  // OpenAI
  EXPECT_EQ(compared(with(R"({{"input": {{"messages": [{}]}}, "preferred_output": [{}],
                              "non_preferred_output": [{}]}})",
                          q, a, b)),
            turns);
}

TEST(Forms, PairsThatAreNoneAreRefused) {
  EXPECT_EQ(compared(R"({"prompt": "q", "completion": "a"})"),
            "no chosen and rejected: the objective compares two answers to a prompt");
  EXPECT_EQ(compared(R"({"prompt": "q", "chosen": "a"})"), "rejected is missing beside chosen");
  EXPECT_EQ(compared(R"({"prompt": "q", "rejected": "a", "chosen": null})"),
            "chosen is missing beside rejected");
  EXPECT_EQ(compared(R"({"prompt": "q", "chosen": "a", "rejected": []})"),
            "chosen is a string, and rejected a list: both are texts, or both messages");
  EXPECT_TRUE(says(compared(R"({"chosen": "a", "rejected": "b"})"), "none is common"));
  EXPECT_TRUE(says(compared(R"({"prompt": "q", "chosen": "a", "rejected": "b", "score_chosen": 3})"),
                   R"(data.ignore = ["score_chosen"])"));
  EXPECT_EQ(
      compared(R"({"prompt": [{"role": "user", "content": "q"}], "chosen": [{"role": "user", "content": "a"}],
                         "rejected": [{"role": "assistant", "content": "b"}]})"),
      "chosen: the last message is by user; an answer is by the assistant");
}

TEST(Forms, MarksSayWhetherAnAnswerIsGood) {
  const auto marked = [](std::string_view json) { return compared(json, Compares::Marks); };
  EXPECT_EQ(marked(R"({"prompt": "q", "completion": "a", "label": true})"), "good q|a");
  EXPECT_EQ(marked(R"({"prompt": "q", "completion": "a", "label": 0})"), "bad q|a");
  EXPECT_EQ(marked(R"({"instruction": "q", "input": "", "output": "a", "kto_tag": false})"), "bad ? q|a");
  EXPECT_EQ(marked(R"({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}],
                       "kto_tag": true})"),
            "good user:q => assistant:a ");
  EXPECT_EQ(marked(R"({"prompt": "q", "completion": "a", "label": 3})"),
            "label is 3; allowed are true and false");
  EXPECT_TRUE(
      says(marked(R"({"prompt": "q", "chosen": "a", "rejected": "b"})"), "are for dpo, simpo and orpo"));
  EXPECT_TRUE(says(marked(R"({"text": "t", "label": true})"), "here none is told from its prompt"));
}

TEST(Keys, WhatSaysThatSomethingIsNotLearntIsFollowed) {
  const auto message = [](std::string_view more) {
    return read(fmt::format(R"({{"messages": [{{"role": "assistant", "content": "a", {}}}]}})", more));
  };
  EXPECT_EQ(message(R"("weight": 0)"), "-assistant:a ");
  EXPECT_EQ(message(R"("weight": 0.0)"), "-assistant:a ");
  EXPECT_EQ(message(R"("weight": 1)"), "assistant:a ");
  EXPECT_EQ(message(R"("weight": null)"), "assistant:a ");
  EXPECT_EQ(message(R"("weight": 0.5)"), "messages[0]: weight is 0.5; allowed are 0 and 1");
  EXPECT_EQ(message(R"("train": false)"), "-assistant:a ");
  EXPECT_EQ(message(R"("training": true)"), "+assistant:a ");
  EXPECT_EQ(message(R"("trainable": false)"), "-assistant:a ");
  EXPECT_EQ(message(R"("loss": false)"), "-assistant:a ");
  EXPECT_EQ(message(R"("loss": "no")"), "messages[0]: loss is a string; allowed are true and false");
  EXPECT_EQ(message(R"("weight": 0, "train": true)"),
            "messages[0]: train says that it is learnt, and weight does not");
  EXPECT_EQ(read(R"({"conversations": [{"from": "gpt", "value": "a", "weight": 0}]})"), "-assistant:a ");
  const auto segments =
      parse_record(R"({"segments": [{"label": false, "text": "q"}, {"label": true, "text": "a</s>"}]})");
  ASSERT_TRUE(segments.ok()) << segments.message();
  EXPECT_EQ(segments->text, "qa</s>");
  EXPECT_EQ(segments->learnt, (std::vector<std::pair<size_t, size_t>>{{1, 6}}));
}

TEST(Keys, CallsOfFunctionsAreCallsOfTools) {
  EXPECT_EQ(
      read(
          R"({"messages": [{"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}},
                                  {"role": "function", "name": "f", "content": "1"}],
                     "functions": [{"name": "f"}]})"),
      R"(assistant: [{"type": "function", "function": {"name": "f", "arguments": "{}"}}] tool:1 )");
}

TEST(Keys, AnEmptyListOfCallsIsNone) {
  EXPECT_EQ(read(R"({"messages": [{"role": "assistant", "content": null, "tool_calls": [],
                                   "function_call": {"name": "f", "arguments": "{}"}}]})"),
            R"(assistant: [{"type": "function", "function": {"name": "f", "arguments": "{}"}}] )");
}

// What another program goes by, and this one does not: never passed over in silence.
TEST(Keys, WhatCannotBeFollowedIsRefusedWithTheWayOut) {
  const auto refused = [](std::string_view json, std::string_view what) {
    const auto record = parse_record(json);
    EXPECT_FALSE(record.ok()) << json;
    if (record.ok()) return;
    EXPECT_TRUE(says(record.message(), what)) << record.message();
    EXPECT_FALSE(record.error().detail("key").empty());
  };
  refused(R"({"prompt": "q", "completion": "a", "label": false})", "data.ignore = [\"label\"]");
  refused(R"({"prompt": "q", "chosen": "a", "rejected": "b"})", "data.fields.completion = \"chosen\"");
  refused(R"({"messages": [{"role": "user", "content": "q"}], "score": 3.5})",
          "score, how good an answer is");
  refused(R"({"instruction": "q", "output": "a", "weight": 0.5})", "data.weights");
  refused(R"({"input": {"messages": []}, "preferred_output": [1], "non_preferred_output": [2]})",
          "write each as messages");
  refused(R"({"prompt": "q", "completions": ["a"], "labels": [true]})", "PRM");
  refused(R"({"input_ids": [1, 2]})", "token file");
  refused(R"({"messages": [{"role": "user", "content": "q"}], "images": ["x.png"]})", "models of text");
  refused(R"({"messages": [{"role": "assistant", "content": "a", "train_detail": [{"begin_offset": 0}]}]})",
          "messages[0]: train_detail");
  refused(R"({"messages": [{"role": "assistant", "content": null, "refusal": "no"}]})",
          "Write it as the content");
  refused(
      R"({"messages": [{"role": "assistant", "content": [{"type": "text", "text": "a", "train": false}]}]})",
      "train of a part of the content");
  // A value without that meaning is somebody's own.
  EXPECT_EQ(read(R"({"question": "q", "answer": "a", "label": "maths", "score": null, "images": []})"),
            "? q|a");
  RecordOptions options;
  options.ignore = {"label", "score", "train_detail"};
  EXPECT_EQ(read(R"({"question": "q", "answer": "a", "label": true, "score": 1})", options), "? q|a");
  EXPECT_EQ(read(R"({"messages": [{"role": "assistant", "content": "a", "train_detail": [1]}]})", options),
            "assistant:a ");
  EXPECT_EQ(read(R"({"messages": [{"role": "user", "content": [{"text": "q", "train": false}]}]})",
                 {.ignore = {"train"}}),
            "user: ");
  options = {};
  options.fields = {.prompt = "prompt", .completion = "chosen"};
  options.ignore = {"rejected"};
  EXPECT_EQ(read(R"({"prompt": "q", "chosen": "a", "rejected": "b"})", options), "? q|a");
}

std::vector<std::string> unused_of(std::string_view json) {
  const auto record = parse_record(json);
  EXPECT_TRUE(record.ok()) << record.message();
  return record.ok() ? record->unused : std::vector<std::string>();
}
using Names = std::vector<std::string>;

TEST(Keys, OfPlainTextAreNamedAsUnused) {
  EXPECT_EQ(unused_of(R"({"text": "t", "label": 1, "instruction": "i", "source": "x", "score": "good"})"),
            (Names{"label", "instruction"}));
  EXPECT_EQ(unused_of(R"({"text": "t", "id": 3, "language_score": 0.9, "meta": {}, "quality_rating": 2})"),
            Names{"quality_rating"});
}

// Ids and sources are nobody's business; of others it is said that nothing is read of them.
TEST(Keys, ThatNothingIsReadOfAreNamed) {
  const std::string chat = R"("messages": [{"role": "user", "content": "q", "id": 7, "mood": "x"}])";
  EXPECT_EQ(unused_of("{" + chat + R"(, "id": 1, "Source": "x", "metadata": {}, "prompt_id": "y", "": 0})"),
            Names{"mood"});
  EXPECT_EQ(unused_of("{" + chat + R"(, "prompt": "q", "persona": "a nurse"})"),
            (Names{"prompt", "persona", "mood"}));
  EXPECT_EQ(unused_of(R"({"question": "q", "answer": "a", "rationale": "r", "label": "maths"})"),
            Names{"rationale"});
  EXPECT_EQ(unused_of(R"({"messages": [{"role": "system", "content": "s"}], "system": "another"})"),
            Names{"system"});
  EXPECT_EQ(unused_of(R"({"messages": [{"role": "system", "content": "s"}], "system": "s"})"), Names{});
  EXPECT_EQ(unused_of(R"({"messages": [{"role": "system", "tool_calls": [{}]}], "system": "s"})"),
            Names{"system"});
}

// Marks that could change what is learnt are refused by name, whatever programs call them.
TEST(Keys, ThatMayChangeWhatIsLearntAreRefused) {
  const auto refused = [](std::string_view json, std::string_view key, std::string_view what) {
    const auto record = parse_record(json);
    ASSERT_FALSE(record.ok()) << json;
    EXPECT_TRUE(says(record.message(), what)) << record.message();
    EXPECT_EQ(record.error().detail("key"), key);
    EXPECT_EQ(record.error().detail("later"), "yes");
    RecordOptions ignoring;
    ignoring.ignore = {std::string(key)};
    EXPECT_TRUE(parse_record(json, ignoring).ok()) << json;
  };
  for (const std::string_view mark : {R"("loss_scale": 0.5)",
                                      R"("is_rejected": true)",
                                      R"("doNotTrain": true)",
                                      R"("response_quality": 3)",
                                      R"("rejected_response": "b")",
                                      R"("is-good": false)",
                                      R"("human_score": [1, 2])",
                                      R"("supervised": 0)",
                                      R"("instruct_reward": 1.5)",
                                      R"("chat_history": [["q", "a"]])",
                                      R"("system_message": "s")",
                                      R"("sys_prompt": "s")",
                                      R"("instructions": "s")",
                                      R"("advantage": -1.5)",
                                      R"("hidden": true)",
                                      R"("deleted": false)",
                                      R"("is_valid": 0)",
                                      R"("passed": false)",
                                      R"("tool_definitions": [{"name": "f"}])",
                                      R"("available_functions": [1])"}) {
    const std::string key(mark.substr(1, mark.find('"', 1) - 1));
    refused(fmt::format(R"({{"question": "q", "answer": "a", {}}})", mark), key,
            fmt::format("data.ignore = [\"{}\"]", key));
  }
  refused(R"({"messages": [{"role": "user", "content": "q", "no_loss": true}]})", "no_loss",
          "messages[0]: no_loss");
  refused(R"({"text": "t", "loss_mask_all": [0, 1]})", "loss_mask_all", "what is learnt");
  refused(R"({"text": "t", "is_deleted": true})", "is_deleted", "what is learnt");
  refused(R"({"prompt": "q", "completion": "a", "system": "s"})", "system", "is not read beside prompt");
  refused(R"({"messages": [{"role": "user", "content": "q"}], "history": [["a", "b"]]})", "history",
          "is not read beside messages");
  // And what is a known name mistyped.
  refused(R"({"question": "q", "answer": "a", "sytem": "s"})", "sytem", "did you mean system?");
  refused(R"({"question": "q", "answer": "a", "contxt": "s"})", "contxt", "did you mean context?");
  refused(R"({"messages": [{"role": "user", "content": "q"}], "tool": []})", "tool", "did you mean tools?");
  refused(R"({"messages": [{"role": "user", "content": "q"}], "tool": [1]})", "tool", "did you mean tools?");
  refused(R"({"messages": [{"role": "user", "content": "q", "wieght": 0}]})", "wieght",
          "did you mean weight?");
  refused(R"({"messages": [{"role": "user", "content": "q", "toolCalls": [1]}]})", "toolCalls",
          "did you mean tool_calls?");
  // Without a form the mistyped name is the reason.
  EXPECT_TRUE(says(read(R"({"mesages": [{"role": "user", "content": "q"}]})"), "did you mean messages?"));
  EXPECT_TRUE(says(read(R"({"question": "q", "anwser": "a"})"), "did you mean answer?"));
  // Names that measure something, words that say no more than that, and marks that say nothing.
  EXPECT_EQ(read(R"({"question": "q", "answer": "a", "train_id": 3, "score_model": "x", "quality": "fair"})"),
            "? q|a");
  EXPECT_EQ(read(R"({"question": "q", "answer": "a", "rejected_response": null, "has_history": false})"),
            "? q|a");
  EXPECT_EQ(read(R"({"question": "q", "answer": "a", "answers": ["a"], "num_scores": 3})"), "? q|a");
}

TEST(Forms, HistoryIsReadBeforeTheQuestion) {
  const auto record = parse_record(
      R"({"instruction": "q", "input": "c", "output": "a", "system": "s", "history": [["q1", "a1"], ["q2", "a2"]]})");
  ASSERT_TRUE(record.ok()) << record.message();
  EXPECT_EQ(in_short(*record), "? [s] q|a (c)");
  EXPECT_EQ(record->history, (std::vector<std::pair<std::string, std::string>>{{"q1", "a1"}, {"q2", "a2"}}));
  EXPECT_TRUE(record->read_later);
  EXPECT_EQ(record->form, "instruction and input and history, answered by output");
  EXPECT_FALSE(parse_record(R"({"instruction": "q", "output": "a", "history": []})")->read_later);
  EXPECT_EQ(
      parse_record(R"({"query": "q", "response": "a", "history": "[[\"q1\", \"a1\"]]"})")->history.size(),
      1u);
  EXPECT_TRUE(says(read(R"({"instruction": "q", "output": "a", "history": [["q"]]})"),
                   R"(history[0]: ["q"]; it holds [question, answer])"));
  EXPECT_TRUE(
      says(read(R"({"instruction": "q", "output": "a", "history": 3})"), "history is a number, no list"));
}

TEST(Roles, ThatNobodyKnowsAreRefusedWithTheOneThatWasMeant) {
  const auto role = [](std::string_view name, const RecordOptions& options = {}) {
    return read(
        fmt::format(
            R"({{"messages": [{{"role": "user", "content": "q"}}, {{"role": "{}", "content": "a"}}]}})",
            name),
        options);
  };
  const std::pair<const char*, const char*> kMeant[] = {
      {"Assistant", "assistant"}, {"asistant", "assistant"}, {"ai", "assistant"},
      {"human", "user"},          {"bot", "assistant"},      {"model", "assistant"},
      {"USER", "user"},           {"sytem", "system"},       {"prompter", "user"},
      {"Tool", "tool"},           {"gpt", "assistant"},      {"assistant ", "assistant"}};
  for (const auto& [name, meant] : kMeant)
    EXPECT_TRUE(says(
        role(name),
        fmt::format("messages[1]: role '{}'; did you mean {}? allowed are user, assistant", name, meant)))
        << role(name);
  EXPECT_TRUE(says(role("narrator"), "role 'narrator'; allowed are user")) << role("narrator");
  EXPECT_EQ(role("narrator", {.roles = {"narrator"}}), "user:q narrator:a ");
  // Templates have roles of their own.
  for (const char* own : {"developer", "tool", "ipython", "observation", "environment", "tool_results"})
    EXPECT_EQ(role(own), fmt::format("user:q {}:a ", own));
  EXPECT_TRUE(says(read(R"({"conversations": [{"from": "Human", "value": "q"}]})"),
                   "conversations[0]: from 'Human'; did you mean user? allowed are human"));
}

TEST(Messages, WhatIsSaidTwiceIsRefused) {
  EXPECT_TRUE(says(read(R"({"messages": [{"role": "user", "content": "q", "value": "r"}]})"),
                   "messages[0]: content and value are both there"));
  EXPECT_TRUE(says(read(R"({"messages": [{"role": "user", "from": "gpt", "content": "q"}]})"),
                   "messages[0]: role and from are both there"));
  EXPECT_TRUE(says(read(R"({"conversations": [{"from": "human", "value": "q", "content": "r"}]})"),
                   "conversations[0]: content and value are both there"));
  EXPECT_TRUE(
      says(read(R"({"messages": [{"role": "user", "content": "q", "reasoning": "r", "thinking": "t"}]})"),
           "messages[0]: reasoning and thinking are both there"));
  EXPECT_TRUE(says(read(R"({"question": "q", "answer": "a", "system": "s", "system_prompt": "t"})"),
                   "system and system_prompt are both there"));
  EXPECT_TRUE(
      says(read(R"({"messages": [{"role": "user", "content": "q"}], "tools": [1], "functions": [2]})"),
           "tools and functions are both there"));
  // The same said twice, and nothing beside something, says one thing.
  EXPECT_EQ(read(R"({"messages": [{"role": "user", "from": "user", "content": "q", "value": "q"}]})"),
            "user:q ");
  EXPECT_EQ(read(R"({"question": "q", "answer": "a", "system": "s", "system_prompt": ""})"), "? [s] q|a");
  EXPECT_TRUE(says(read(R"({"prompt": "a", "completion": "b", "completion": "c"})"),
                   "key 'completion' is there twice"));
  EXPECT_TRUE(says(read(R"({"messages": [{"role": "assistant", "content": "q", "skip": true}]})"),
                   "messages[0]: skip: the name tells of what is learnt"));
}

TEST(Keys, EveryOneOfTheTableIsReadAsTheTableSays) {
  for (const DataKey& key : data_keys()) {
    EXPECT_FALSE(key.programs.empty() || key.meaning.empty() || key.here.empty()) << key.names;
    const std::string name(key.names.substr(0, key.names.find(' ')));
    if (key.use != DataKey::Use::Refused) continue;
    const std::string_view value = key.value == DataKey::Value::Truth    ? "true"
                                   : key.value == DataKey::Value::Number ? "0.5"
                                   : key.value == DataKey::Value::NotOne ? "0.5"
                                   : key.value == DataKey::Value::List   ? "[1]"
                                                                         : "\"x\"";
    const std::string json =
        key.of_message
            ? fmt::format(R"({{"messages": [{{"role": "user", "content": "q", "{}": {}}}]}})", name, value)
            : fmt::format(R"({{"question": "q", "answer": "a", "{}": {}}})", name, value);
    const auto record = parse_record(json);
    ASSERT_FALSE(record.ok()) << json;
    EXPECT_EQ(record.error().detail("key"), name) << record.message();
  }
}

TEST(Keys, TheDocumentShowsTheTable) {
  const auto document = read_file(std::filesystem::path(SLUICE_DOCS) / "data-keys.md");
  ASSERT_TRUE(document.ok());
  EXPECT_NE(document->find(data_keys_table()), document->npos)
      << "docs/data-keys.md lacks the table as it is now:\n"
      << data_keys_table();
}

// All records of a file in short, or the error.
std::string read_file_of(const TempDir& dir, std::string_view name, std::string_view text,
                         RecordOptions options = {}) {
  dir.add(std::string(name), std::string(text));
  auto reader = RecordReader::open(dir / std::string(name), options);
  if (!reader.ok()) return reader.message();
  std::string all;
  Record record;
  while (true) {
    const auto more = reader->next(record);
    if (!more.ok()) return all + more.message();
    if (!*more) break;
    all += in_short(record) + "/";
  }
  return fmt::format("{}: {}{}", reader->container(), all, reader->malformed() > 0 ? "skipped" : "");
}

TEST(Containers, AListOfObjectsIsReadOneByOne) {
  const TempDir dir;
  EXPECT_EQ(read_file_of(dir, "a.json",
                         "\xef\xbb\xbf [{\"text\": \"a]\\\"}\"},{\"text\": \"b\"} ,\n{\"text\": \"c\"}\n]\n"),
            "a JSON list: a]\"}/b/c/");
  EXPECT_EQ(read_file_of(dir, "b.jsonl", "[]"), "a JSON list: ");
  EXPECT_TRUE(says(read_file_of(dir, "a.json", "[{\"text\": \"a\"} {\"text\": \"b\"}]"),
                   "a.json: line 1: a comma or ]"));
  EXPECT_TRUE(says(read_file_of(dir, "a.json", "[{\"text\": \"a\"},\n"),
                   "line 2: the file ends in the middle of its list"));
  EXPECT_TRUE(says(read_file_of(dir, "a.json", "[{\"text\": \"a\"},\n]"), "line 2: a value was expected"));
  EXPECT_TRUE(says(read_file_of(dir, "a.json", "[\n{\"text\": \"a\""),
                   "line 2: the file ends in the middle of the value"));
  EXPECT_TRUE(says(read_file_of(dir, "a.json", "[]\n[]"), "line 2: something follows the list"));
  EXPECT_TRUE(says(read_file_of(dir, "a.json", "[\n\n3]"), "line 3: a number instead of an object"));
  EXPECT_TRUE(says(read_file_of(dir, "a.json", "[\n{\"text\": 1}]"), "line 2: text is a number"));
  EXPECT_EQ(read_file_of(dir, "a.json", "[{\"text\": 1}, {\"text\": \"b\"}]", {.skip_malformed = true}),
            "a JSON list: b/skipped");
  EXPECT_TRUE(says(read_file_of(dir, "a.json", "[{\"text\": \"" + std::string(200, 'a') + "\"}]",
                                {.most_line_bytes = 100}),
                   "line 1: more than 100 bytes long"));
}

TEST(Containers, ObjectsMayGoOverSeveralLines) {
  const TempDir dir;
  EXPECT_EQ(read_file_of(dir, "a.json", "{\n  \"text\": \"a\"\n}\n{\n  \"text\": \"b\"\n}\n"),
            "JSON over several lines: a/b/");
  EXPECT_TRUE(says(read_file_of(dir, "a.json", "{\n  \"text\": \"a\"\n}\n{\n  \"text\": 1\n}\n"),
                   "line 4: text is a number"));
  // A broken line of JSONL costs that line, not all behind it.
  EXPECT_EQ(read_file_of(dir, "a.jsonl", "{\"text\": \"a\n{\"text\": \"b\"}\n", {.skip_malformed = true}),
            "JSONL: b/skipped");
}

TEST(Containers, TablesHaveAHeader) {
  const TempDir dir;
  EXPECT_EQ(read_file_of(dir, "a.csv",
                         "prompt,completion\r\nq,a\r\n\r\n\"x, y\",\"say \"\"no\"\"\nnow\"\r\nlast,b"),
            "CSV: q|a/x, y|say \"no\"\nnow/last|b/");
  EXPECT_EQ(read_file_of(dir, "a.tsv", "question\tanswer\nq, r\ta \"b\"\n"), "TSV: ? q, r|a \"b\"/");
  EXPECT_EQ(read_file_of(dir, "a.csv", "\xef\xbb\xbfquestion;answer\nq,r;a\n"), "CSV: ? q,r|a/");
  EXPECT_EQ(read_file_of(dir, "a.csv", "instruction,input,output\nq,,a\nq,c,\n"), "CSV: ? q|a/? q| (c)/");
  EXPECT_EQ(read_file_of(dir, "a.csv", "text\nt\n"), "CSV: t/");
  EXPECT_EQ(read_file_of(dir, "a.csv",
                         "messages\n\"[{\"\"role\"\": \"\"user\"\", \"\"content\"\": \"\"q\"\"}]\"\n"),
            "CSV: user:q /");
  EXPECT_EQ(read_file_of(dir, "a.csv", "Frage,Antwort\nq,a\n",
                         {.fields = {.prompt = "Frage", .completion = "Antwort"}}),
            "CSV: ? q|a/");
  EXPECT_TRUE(says(read_file_of(dir, "a.csv", "Frage,Antwort\nq,a\n"), "a.csv: line 2: none of messages"));
  EXPECT_TRUE(says(read_file_of(dir, "a.csv", "question,answer,label\nq,a,True\n"),
                   "line 2: label, whether the answer"));
  EXPECT_TRUE(
      says(read_file_of(dir, "a.csv", "question,answer\nq\n"), "line 2: 1 fields, where the header has 2"));
  EXPECT_TRUE(says(read_file_of(dir, "a.csv", "question,answer\nq,a,b\n"), "line 2: more than 2 fields"));
  EXPECT_TRUE(says(read_file_of(dir, "a.csv", "question,answer\nq,\"a\n"), "line 2: a quote that is opened"));
  EXPECT_TRUE(says(read_file_of(dir, "a.csv", "question,answer\nq,\"a\"b\n"),
                   "line 2: field 2: text behind its closing quote"));
  EXPECT_TRUE(
      says(read_file_of(dir, "a.csv", "question,question\nq,a\n"), "two columns are called question"));
  EXPECT_TRUE(
      says(read_file_of(dir, "a.csv", "question,answer\nq,\xff\n"), "line 2: byte 0xff is not UTF-8"));
  EXPECT_TRUE(says(
      read_file_of(dir, "a.csv", "question,answer\n\"" + std::string(200, 'q'), {.most_line_bytes = 100}),
      "line 2: more than 100 bytes long; a quote in it is not closed"));
  EXPECT_EQ(read_file_of(dir, "a.csv", "question,answer\nq\nq,a\n", {.skip_malformed = true}),
            "CSV: ? q|a/skipped");
}

TEST(Containers, WhatIsNoTextIsRefusedByName) {
  const TempDir dir;
  const std::string parquet = read_file_of(dir, "train.parquet", "PAR1\x15\x04");
  EXPECT_TRUE(
      says(parquet,
           "train.parquet: Parquet, which Sluice does not read. To convert it: python3 -c \"import pandas; "
           "pandas.read_parquet('train.parquet').to_json('train.jsonl', orient='records', lines=True"))
      << parquet;
  EXPECT_TRUE(says(read_file_of(dir, "a.jsonl", "PAR1\x15\x04"), "a.jsonl: Parquet"));
  EXPECT_TRUE(says(read_file_of(dir, "a.csv", std::string_view("\xff\xfeq\0", 4)),
                   "a.csv: UTF-16, which Sluice does not read"));
  EXPECT_TRUE(
      says(read_file_of(dir, "b.json", "{\n\"data\": [1]\n}"), "jq -c '.[\"data\"][]' takes them out"));
  EXPECT_TRUE(says(read_file_of(dir, "a.xlsx", "PK\x03\x04"), "pandas.read_excel('a.xlsx')"));
  EXPECT_TRUE(
      says(read_file_of(dir, "a.arrow", "\xff\xff\xff\xff"), "datasets.Dataset.from_file('a.arrow')"));
  EXPECT_TRUE(
      says(read_file_of(dir, "a.jsonl", "version https://git-lfs.github.com/spec/v1\noid"), "git lfs pull"));
}

}  // namespace
}  // namespace sluice::core
