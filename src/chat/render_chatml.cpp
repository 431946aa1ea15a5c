// SPDX-License-Identifier: Apache-2.0
// Templates with <|im_start|> and <|im_end|>: ChatML, Qwen, SmolLM.
#include <algorithm>

#include "chat/families.h"

namespace sluice::core {
namespace {

constexpr std::string_view kStart = "<|im_start|>", kEnd = "<|im_end|>";
constexpr std::string_view kQwenSystem =
    "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";

void write_header(ChatWriter& w, const ChatMessage& message) {
  w.message(message.index());
  w.markup(kStart);
  w.data(message.role());
  w.markup("\n");
}

void write_end(ChatWriter& w) {
  w.own_markup(kEnd);
  w.markup("\n");
}

Status write_turn(ChatWriter& w, const ChatMessage& message) {
  SLUICE_ASSIGN(const std::string content, message.content());
  write_header(w, message);
  w.said(content);
  write_end(w);
  return {};
}

Status write_turns(const Conversation& conversation, std::string_view default_system, ChatWriter& w) {
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const ChatMessage message(conversation.messages[i], i);
    if (i == 0 && !default_system.empty() && !message.is("system")) {
      w.markup(fmt::format("{}system\n{}{}\n", kStart, default_system, kEnd));
    }
    SLUICE_TRY(write_turn(w, message));
  }
  return {};
}

// The system turn of Qwen. `between` stands before the part on tools where a system message comes first.
Status write_qwen_system(const Conversation& conversation, std::string_view default_system,
                         std::string_view between_message, std::string_view between_default, ChatWriter& w) {
  const ChatMessage first(conversation.messages.front(), 0);
  const bool tools = !conversation.tools.items.empty();
  const bool system = first.is("system");
  if (!tools && !system && default_system.empty()) return {};
  std::string content;
  if (system) {
    SLUICE_ASSIGN(content, first.content());
    w.message(0);
  }
  w.markup(fmt::format("{}system\n", kStart));
  if (system) {
    w.said(content);
  } else {
    w.markup(default_system);
  }
  if (tools) {
    w.nobody();
    w.markup(system ? between_message : between_default);
    w.markup(
        "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided "
        "with "
        "function signatures within <tools></tools> XML tags:\n<tools>");
    for (const ChatValue& tool : conversation.tools.items) {
      w.markup("\n");
      w.data(to_json(tool));
    }
    w.markup(
        "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
        "<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "
        "<args-json-object>}\n</tool_call><|im_end|>\n");
  } else {
    system ? w.own_markup(kEnd) : w.markup(kEnd);
    w.markup("\n");
  }
  w.nobody();
  return {};
}

// Calls after what was said, if `after_content`. `verbatim`: arguments that are a string are written as such.
Status write_qwen_calls(const ChatMessage& message, bool after_content, bool verbatim, ChatWriter& w) {
  const ChatValue* calls = message.tool_calls();
  if (calls == nullptr) return {};
  for (size_t i = 0; i < calls->items.size(); ++i) {
    SLUICE_ASSIGN(const ToolCall call, tool_call_of(message, i));
    if (i > 0 || after_content) w.own_markup("\n");
    w.own_markup("<tool_call>\n{\"name\": \"");
    w.said(call.name);
    w.own_markup("\", \"arguments\": ");
    if (verbatim && call.arguments->is_string()) {
      w.said(call.arguments->text);
    } else {
      SLUICE_ASSIGN(const std::string arguments, arguments_json(message, call));
      w.said(arguments);
    }
    w.own_markup("}\n</tool_call>");
  }
  return {};
}

// What tools answered stands in one turn of the user.
void write_qwen_response(const Conversation& conversation, size_t index, std::string_view content,
                         ChatWriter& w) {
  const auto is_tool = [&](size_t i) { return ChatMessage(conversation.messages[i], i).is("tool"); };
  w.message(index);
  if (index == 0 || !is_tool(index - 1)) w.markup("<|im_start|>user");
  w.markup("\n<tool_response>\n");
  w.said(content);
  w.markup("\n</tool_response>");
  if (index + 1 == conversation.messages.size() || !is_tool(index + 1)) write_end(w);
}

// Up to the first "</think>", without the "<think>" before it.
std::string_view thought_of(std::string_view content) {
  std::string_view before = strip_newlines_right(content.substr(0, content.find("</think>")));
  if (const size_t at = before.rfind("<think>"); at != before.npos) before.remove_prefix(at + 7);
  return strip_newlines_left(before);
}

std::string_view answer_of(std::string_view content) {
  return strip_newlines_left(content.substr(content.rfind("</think>") + 8));
}

// The last message of a user that is no answer of a tool, or the last message where there is none.
Result<size_t> last_query(const Conversation& conversation) {
  for (size_t i = conversation.messages.size(); i-- > 0;) {
    const ChatMessage message(conversation.messages[i], i);
    if (!message.is("user")) continue;
    SLUICE_ASSIGN(const std::string content, message.content());
    if (!(content.starts_with("<tool_response>") && content.ends_with("</tool_response>"))) return i;
  }
  return conversation.messages.size() - 1;
}

Status write_qwen3_answer(const ChatMessage& message, bool after_query, bool last, ChatWriter& w) {
  SLUICE_ASSIGN(const std::string whole, message.content_or_empty());
  std::string_view content = whole, thought;
  if (const ChatValue* reasoning = message.reasoning()) {
    thought = reasoning->text;
  } else if (whole.find("</think>") != whole.npos) {
    thought = thought_of(whole);
    content = answer_of(whole);
  }
  write_header(w, message);
  if (after_query && (last || !thought.empty())) {
    w.own_markup("<think>\n");
    w.said(strip_newlines_left(strip_newlines_right(thought)));
    w.own_markup("\n</think>\n\n");
    w.said(strip_newlines_left(content));
  } else {
    w.said(content);
  }
  SLUICE_TRY(write_qwen_calls(message, !content.empty(), /*verbatim=*/true, w));
  write_end(w);
  return {};
}

struct SmollmSystem {
  std::string instructions;
  bool thinks = true, override = false;
};

Result<SmollmSystem> smollm_system(const Conversation& conversation) {
  SmollmSystem system;
  const ChatMessage first(conversation.messages.front(), 0);
  if (!first.is("system")) return system;
  SLUICE_ASSIGN(const std::string content, first.content());
  system.thinks = content.find("/no_think") == content.npos;
  system.override = content.find("/system_override") != content.npos;
  system.instructions = replaced_all(replaced_all(content, "/no_think", ""), "/think", "");
  system.instructions = python_rstrip(system.instructions);
  return system;
}

void write_smollm_instructions(const SmollmSystem& system, ChatWriter& w) {
  w.markup("## Custom Instructions\n\n");
  if (!system.instructions.empty()) {
    w.message(0);
    w.data(system.instructions);
    w.nobody();
  } else {
    w.markup("You are a helpful AI assistant named SmolLM, trained by Hugging Face.");
    if (system.thinks) {
      w.markup(
          " Your role as an assistant involves thoroughly exploring questions through a systematic thinking "
          "process before providing the final precise and accurate solutions. This requires engaging in a "
          "comprehensive cycle of analysis, summarizing, exploration, reassessment, reflection, "
          "backtracking, "
          "and iteration to develop well-considered thinking process. Please structure your response into "
          "two "
          "main sections: Thought and Solution using the specified format: <think> Thought section </think> "
          "Solution section. In the Thought section, detail your reasoning process in steps. Each step "
          "should "
          "include detailed considerations such as analysing questions, summarizing relevant findings, "
          "brainstorming new ideas, verifying the accuracy of the current steps, refining any errors, and "
          "revisiting previous steps. In the Solution section, based on various attempts, explorations, and "
          "reflections from the Thought section, systematically present the final solution that you deem "
          "correct. The Solution section should be logical, accurate, and concise and detail necessary steps "
          "needed to reach the conclusion.");
    }
  }
  w.markup("\n\n");
}

Status write_smollm_turns(const Conversation& conversation, bool thinks, ChatWriter& w) {
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const ChatMessage message(conversation.messages[i], i);
    const bool answer = message.is("assistant");
    if (!answer && !message.is("user") && !message.is("tool")) continue;
    SLUICE_ASSIGN(const std::string content, message.content_or_empty());
    w.message(i);
    w.markup(answer ? "<|im_start|>assistant\n" : "<|im_start|>user\n");
    if (answer && !thinks) w.markup("<think>\n\n</think>\n");
    w.said(answer ? strip_newlines_left(content) : std::string_view(content));
    write_end(w);
  }
  return {};
}

}  // namespace

Status render_chatml(const Conversation& conversation, const ChatSettings&, ChatWriter& w) {
  return write_turns(conversation, "", w);
}

Status render_smollm2(const Conversation& conversation, const ChatSettings&, ChatWriter& w) {
  return write_turns(conversation, "You are a helpful AI assistant named SmolLM, trained by Hugging Face", w);
}

Status render_qwen2(const Conversation& conversation, const ChatSettings&, ChatWriter& w) {
  return write_turns(conversation, "You are a helpful assistant.", w);
}

Status render_qwen2_5(const Conversation& conversation, const ChatSettings&, ChatWriter& w) {
  SLUICE_TRY(write_qwen_system(conversation, kQwenSystem, "\n\n", "\n\n", w));
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const ChatMessage message(conversation.messages[i], i);
    const bool answer = message.is("assistant");
    if (message.is("user") || (message.is("system") && i > 0) ||
        (answer && message.tool_calls() == nullptr)) {
      SLUICE_TRY(write_turn(w, message));
    } else if (answer) {
      SLUICE_ASSIGN(const std::string content, message.content_or_empty());
      write_header(w, message);
      w.said(content);
      SLUICE_TRY(write_qwen_calls(message, !content.empty(), /*verbatim=*/false, w));
      write_end(w);
    } else if (message.is("tool")) {
      SLUICE_ASSIGN(const std::string content, message.content());
      write_qwen_response(conversation, i, content, w);
    }
  }
  return {};
}

Status render_qwen3(const Conversation& conversation, const ChatSettings&, ChatWriter& w) {
  SLUICE_TRY(write_qwen_system(conversation, "", "\n\n", "", w));
  SLUICE_ASSIGN(const size_t query, last_query(conversation));
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const ChatMessage message(conversation.messages[i], i);
    if (message.is("user") || (message.is("system") && i > 0)) {
      SLUICE_TRY(write_turn(w, message));
    } else if (message.is("assistant")) {
      SLUICE_TRY(write_qwen3_answer(message, i > query, i + 1 == conversation.messages.size(), w));
    } else if (message.is("tool")) {
      SLUICE_ASSIGN(const std::string content, message.content());
      write_qwen_response(conversation, i, content, w);
    }
  }
  return {};
}

Status render_qwen3_2507(const Conversation& conversation, const ChatSettings&, ChatWriter& w) {
  SLUICE_TRY(write_qwen_system(conversation, "", "\n\n", "", w));
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const ChatMessage message(conversation.messages[i], i);
    if (message.is("user") || (message.is("system") && i > 0)) {
      SLUICE_TRY(write_turn(w, message));
    } else if (message.is("assistant")) {
      SLUICE_ASSIGN(const std::string content, message.content_or_empty());
      write_header(w, message);
      w.said(content);
      SLUICE_TRY(write_qwen_calls(message, !content.empty(), /*verbatim=*/true, w));
      write_end(w);
    } else if (message.is("tool")) {
      SLUICE_ASSIGN(const std::string content, message.content());
      write_qwen_response(conversation, i, content, w);
    }
  }
  return {};
}

Status render_smollm3(const Conversation& conversation, const ChatSettings& settings, ChatWriter& w) {
  SLUICE_ASSIGN(const SmollmSystem system, smollm_system(conversation));
  w.markup("<|im_start|>system\n");
  if (system.override) {
    w.message(0);
    w.said(python_rstrip(replaced_all(system.instructions, "/system_override", "")));
    write_end(w);
  } else {
    SLUICE_ASSIGN(const std::string date, date_text(settings, /*long_month=*/true));
    w.markup(
        fmt::format("## Metadata\n\nKnowledge Cutoff Date: June 2025\nToday Date: {}\nReasoning Mode: {}\n\n",
                    date, system.thinks ? "/think" : "/no_think"));
    write_smollm_instructions(system, w);  // which nothing ends
  }
  return write_smollm_turns(conversation, system.thinks, w);
}

Status render_smollm3_short(const Conversation& conversation, const ChatSettings&, ChatWriter& w) {
  SLUICE_ASSIGN(const SmollmSystem system, smollm_system(conversation));
  w.markup(fmt::format(
      "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\nReasoning Mode: {}\n\n",
      system.thinks ? "/think" : "/no_think"));
  write_smollm_instructions(system, w);
  w.markup("<|im_end|>\n");
  return write_smollm_turns(conversation, system.thinks, w);
}

}  // namespace sluice::core
