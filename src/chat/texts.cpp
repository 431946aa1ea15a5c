// SPDX-License-Identifier: Apache-2.0
#include "chat/texts.h"

#include <algorithm>

namespace sluice::core {
namespace {

constexpr ChatText kTexts[] = {
    {"chatml",
     "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + "
     "'<|im_end|>' + "
     "'\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"},
    {"llama3",
     "{{ bos_token }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + "
     "'<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}{% endfor %}{% if "
     "add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"},
    {"gemma",
     "{{ bos_token }}{% for message in messages %}{% if message['role'] not in ['user', 'assistant'] %}{{ "
     "raise_exception('this template has the roles user and assistant') }}{% endif %}{{ '<start_of_turn>' + "
     "('model' "
     "if message['role'] == 'assistant' else 'user') + '\\n' + message['content'] | trim + "
     "'<end_of_turn>\\n' }}{% "
     "endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"},
    {"mistral",
     "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' + "
     "message['content'] + "
     "'[/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' ' + message['content'] + eos_token }}{% else "
     "%}{{ "
     "raise_exception('this template has the roles user and assistant') }}{% endif %}{% endfor %}"},
};

constexpr KnownText kKnown[] = {
    {0xe3bb9b4dc6068081, "chatml"},
    {0x71f56dbb1defee09, "chatml"},
    {0xef7f1fa97341cfed, "gemma"},
    {0x85dc6323e157cc4c, "gemma"},
    {0x3670488e2a111cbf, "gemma3"},
    {0xdb81c433063e1f75, "gemma3"},
    {0xcb68ef957641b38d, "gemma3"},
    {0x032cfe29aa836936, "llama3"},
    {0xd77d8c602b61be20, "llama3"},
    {0xc2299567b28cfc2b, "llama3"},
    {0x3076ea858bf87041, "llama3.1", true},
    {0x783c35f37ebdf9af, "llama3.2", true},
    {0xd87bd9ff7eec3148, "mistral-first"},
    {0xc6840c14b8e9e146, "mistral-nemo"},
    {0x763dbabadc64d781, "mistral-nemo"},
    {0x924f1614b4480867, "mistral-v1"},
    {0x848ad9a80b8dfdcb, "mistral-v1"},
    {0x125396074378bb10, "mistral-v3"},
    {0x88462d41ca38a1c8, "qwen2"},
    {0xaad266765d2cf548, "qwen2.5"},
    {0xb7d5c7735212321f, "qwen2.5"},
    {0xf4b2e78dbf1d6559, "qwen3", false, true},
    {0x94be10e753cd5096, "qwen3", false, true},
    {0x1e08e21917da243a, "qwen3-2507"},
    {0xadc0f0b3d5b00254, "qwen3-2507"},
    {0x63f0db6b054cf93b, "smollm2"},
    {0x7b138db42d09a0f5, "smollm3-short", false, false, true},
};

}  // namespace

std::span<const ChatText> chat_texts() {
  return kTexts;
}

const KnownText* known_text(uint64_t fingerprint) {
  const auto* const found = std::find_if(std::begin(kKnown), std::end(kKnown), [&](const KnownText& known) {
    return known.fingerprint == fingerprint;
  });
  return found == std::end(kKnown) ? nullptr : found;
}

}  // namespace sluice::core
