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

TEST(Jinja, WhatIsNotKnownIsNamedWithItsPlace) {
  EXPECT_EQ(rendered("a\n {{ x | nope }}"), "refused: line 2, column 9: the filter nope is not known");
  EXPECT_EQ(rendered("{% if 1 is nope %}{% endif %}"),
            "refused: line 1, column 12: the test nope is not known");
  EXPECT_EQ(rendered("a\n{% nope %}"), "refused: line 2, column 4: the tag nope is not known");
  EXPECT_EQ(rendered("{% block a %}{% endblock %}"), "refused: line 1, column 4: the tag block is not known");
  EXPECT_EQ(rendered("{{ ＋ }}"), "refused: line 1, column 4: '＋' is no sign of a template");
  EXPECT_EQ(rendered("{{ 'a' | length(1) }}"),
            "refused: line 1, column 10: length: 1 arguments, and at most 0 are known");
  EXPECT_EQ(rendered("{{ 'a'.upper(1) }}"),
            "refused: line 1, column 13: upper: 1 arguments, and at most 0 are known");
  EXPECT_EQ(rendered("{{ 'a'.strip(nope=1) }}"),
            "refused: line 1, column 13: strip: the argument nope is not known");
  EXPECT_EQ(rendered("{{ lipsum() }}"), "refused: line 1, column 4: lipsum is not known");
  const std::string format = rendered("{{ '%\u00e9' % 1 }}");
  EXPECT_TRUE(format.ends_with("%: the format \u00e9 is not known")) << format;
  EXPECT_EQ(rendered("{{ 'a'.encode() }}"), "refused: line 1, column 14: encode of a str is not known");
  EXPECT_EQ(rendered("{{ [1].append(2) }}"),
            "refused: line 1, column 14: append: templates may not change lists and dictionaries");
  EXPECT_EQ(rendered("{{ bos_token + 'a' }}"),
            "refused: line 1, column 14: bos_token is undefined: tokenizer_config.json names none");
  EXPECT_EQ(rendered("{{ raise_exception('no ' ~ 1) }}"),
            "refused: line 1, column 19: the template refuses it: no 1");
  EXPECT_EQ(rendered("{{ strftime_now('%Y') }}").find("refused: line 1, column 16: it asks for today's date"),
            0);
}

// Ends in a sentence, in little time and memory.
TEST(Jinja, HostileTemplatesEnd) {
  const auto ends = [](std::string_view text, std::string_view why) {
    const std::string out = rendered(text);
    EXPECT_TRUE(out.starts_with("refused: ") && out.find(why) != out.npos)
        << text.substr(0, 60) << ": " << out;
  };
  ends("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
       "more than 5000000 steps");
  ends("{% set ns = namespace(a='x') %}{% for i in range(99) %}{% set ns.a = ns.a + ns.a %}{% endfor %}",
       "steps");
  ends("{% set ns = namespace(a=[1]) %}{% for i in range(99) %}{% set ns.a = ns.a + ns.a %}{% endfor %}",
       "MiB");
  ends("{% set ns = namespace(a=[]) %}{% for i in range(999) %}{% set ns.a = [ns.a] %}{% endfor %}",
       "nested more than");
  ends("{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}", "MiB");
  ends("{{ 'x' * 99999999 }}", "repeated");
  ends("{{ '%99999999d' % 1 }}", "a format that is not whole");
  ends("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "deep");
  ends("{{ " + std::string(5000, '[') + std::string(5000, ']') + " }}", "nested");
  ends("{{ 1" + std::string(3000, '+') + "1 }}", "nested");
  // A line of a megabyte.
  ends("{{ " + std::string(500000, '(') + std::string(500000, ')') + " }}", "nested");
  for (const std::string_view pieces : {"split()", "rsplit(' ')", "splitlines()"})
    ends(fmt::format("{{{{ ('a \n' * 333333).{} }}}}", pieces), "it holds more than 24 MiB");
  ends("{{ ('a' * 1000000) | list }}", "MiB");
  std::string sum = "{{ 1";
  for (int i = 0; i < 3000; ++i) sum += " + 1";
  ends(sum + " }}", "nested more than");
  ends("{{ ('%99999d' * 9999) % ((1,) * 9999) }}", "steps");
  ends("{{ ('a' * 1000000).strip('b' * 1000000 ~ 'a') }}", "steps");
  ends("{{ ('a' * 1000000) | trim('b' * 1000000 ~ 'a') }}", "steps");
  ends("{{ ('a' * 1000000).startswith(('a' * 999999 ~ 'b',) * 99999) }}", "steps");
  ends("{{ ([1] * 2000) | tojson(indent='x' * 1000000) }}", "steps");
  ends("{{ ([1] * 2000) | tojson(separators=('x' * 1000000, ':')) }}", "steps");
  for (const std::string_view holds : {"a == b", "a < b"})
    ends("{% set a = 'x' * 1000000 ~ 'a' %}{% set b = 'x' * 1000000 ~ 'b' %}{% for i in range(99999) %}{{ " +
             std::string(holds) + " }}{% endfor %}",
         "steps");
  // What holds itself is let go.
  EXPECT_EQ(
      rendered(
          "{% set ns = namespace() %}{% set ns.a = [ns] %}{% macro m() %}{% endmacro %}{% set ns.m = m %}"
          "{% for i in [1, 2] %}{% set ns.l = loop %}{% endfor %}ok"),
      "ok");
}

// Lists that hold one list twice are short in memory, and endless where they are walked over.
TEST(Jinja, SharedValuesAreNotWalkedOverWithoutEnd) {
  const auto ends = [](std::string_view twice, std::string_view what) {
    const std::string text = fmt::format(
        "{{% set n = namespace(a=1, b=1) %}}{{% for i in range(60) %}}{{% set a = n.a %}}{{% set n.a = {0} "
        "%}}"
        "{{% set a = n.b %}}{{% set n.b = {0} %}}{{% endfor %}}{{% set a, b = n.a, n.b %}}{1}",
        twice, what);
    const std::string out = rendered(text);
    EXPECT_TRUE(out.starts_with("refused: ") && out.ends_with("it takes more than 5000000 steps"))
        << text << ": " << out.substr(0, 200);
  };
  for (const std::string_view what : {"{{ a }}",
                                      "{{ a ~ '' }}",
                                      "{{ a | string }}",
                                      "{{ [a] | join }}",
                                      "{{ '%s' % (a,) }}",
                                      "{{ '%r' % (a,) }}",
                                      "{{ '{!r}'.format(a) }}",
                                      "{{ a | tojson }}",
                                      "{{ a | tojson(indent=1) }}",
                                      "{{ a == b }}",
                                      "{{ a != b }}",
                                      "{{ a is eq b }}",
                                      "{{ a is ne b }}",
                                      "{{ a in [b] }}",
                                      "{{ a is in [b] }}",
                                      "{{ [b].index(a) }}",
                                      "{{ [b].count(a) }}",
                                      "{{ [a, b] | unique | list }}",
                                      "{{ [{'x': a}, {'x': b}] | groupby('x') }}",
                                      "{% for x in [a, b] %}{{ loop.changed(x) }}{% endfor %}"}) {
    ends("[a, a]", what);
    ends("{'x': a, 'y': a}", what);
  }
  for (const std::string_view what : {"{{ a < b }}", "{{ a is lt b }}", "{{ [a, b] | sort }}",
                                      "{{ [a, b] | min }}", "{{ {'x': a, 'y': b} | dictsort(by='value') }}"})
    ends("[a, a]", what);
  for (const std::string_view what : {"{{ {a: 1} }}", "{{ a in {} }}", "{{ {}.get(a) }}", "{{ {}[a] }}"})
    ends("(a, a)", what);
}

TEST(Jinja, KeysThatAreNoStringsCount) {
  EXPECT_EQ(rendered("{{ dict(range(100000) | batch(2)) | length }}"),
            "refused: line 1, column 8: it takes more than 5000000 steps");
  for (const std::string_view what : {"-1 in d", "d.get(-1)", "d[-1]"}) {
    const std::string out = rendered(fmt::format(
        "{{% set d = dict(range(2000) | batch(2)) %}}{{% for i in range(99999) %}}{{{{ {} }}}}{{% endfor %}}",
        what));
    EXPECT_TRUE(out.ends_with("it takes more than 5000000 steps")) << what << out.substr(0, 200);
  }
  EXPECT_EQ(
      rendered("{% set d = dict(range(40) | batch(2), a='b') %}{{ d[38] }}{{ d.a }}{{ 'a' in d }}{{ d.c }}"),
      "39bTrue");
  EXPECT_EQ(rendered("{% set d = dict('abcdefghijklmnopqrstuvwxyz' | batch(2)) %}{{ d.a }}{{ d['y'] }}"),
            "bz");
}

// Such as a search for aaab in aaaaaa.
TEST(Jinja, SearchesTakeLinearTime) {
  const std::vector<std::pair<std::string_view, std::string_view>> searches = {
      {"b in a", "False"},
      {"a.find(b)", "-1"},
      {"a.rfind(c)", "-1"},
      {"a.count(b)", "0"},
      {"a.split(b) | length", "1"},
      {"a.rsplit(c) | length", "1"},
      {"a.replace(b, '') | length", "1000000"},
      {"a.partition(b)[0] | length", "1000000"},
      {"a.rpartition(c)[2] | length", "1000000"},
  };
  for (const auto& [what, result] : searches)
    EXPECT_EQ(rendered(fmt::format("{{% set a = 'a' * 1000000 %}}{{% set b = 'a' * 500000 ~ 'b' %}}"
                                   "{{% set c = 'b' ~ 'a' * 500000 %}}{{{{ {} }}}}",
                                   what)),
              result)
        << what;
  EXPECT_EQ(rendered("{{ 'a--b---c'.rsplit('--') }}{{ 'a--b---c'.rsplit('--', 1) }}{{ 'é,è'.rsplit(',') }}"),
            "['a', 'b-', 'c']['a--b-', 'c']['é', 'è']");
  EXPECT_EQ(
      rendered("{{ 'abab'.rfind('ab') }}{{ 'abab'.rfind('') }}{{ 'ab'.find('', 2) }}{{ ''.find('a') }}"),
      "242-1");
  EXPECT_EQ(rendered("{{ 'a.b.c'.partition('.') }}{{ 'a.b.c'.rpartition('.') }}{{ 'a'.rpartition('.') }}"),
            "('a', '.', 'b.c')('a.b', '.', 'c')('', '', 'a')");
}

// Who wrote a byte is held beside it.
TEST(Jinja, OriginsTakeMemory) {
  jinja::Inputs inputs;
  inputs.variables.emplace_back("x", jinja::Value::string(jinja::Text("x", 8)));
  constexpr std::string_view kDoubled =
      "{% set n = namespace(a='t' ~ x) %}{% for i in range(20) %}{% set n.a = n.a + n.a %}{% endfor %}";
  EXPECT_NE(rendered(kDoubled, inputs).find("it holds more than 24 MiB"), std::string::npos);
  EXPECT_NE(
      rendered("{% for i in range(99999) %}{% for i in range(9) %}t{{ x }}{% endfor %}{% endfor %}", inputs)
          .find("it writes more than 12 MiB"),
      std::string::npos);
}

// Letters say who wrote them: t the template, 0 and 1 a message's content, r its role, m what the template
// writes of a message.
std::string origins(std::string_view text) {
  const auto messages = parse_value(
      R"([{"role": "user", "content": "Hello one"}, {"role": "assistant", "content": " a,b <x> é "}])");
  jinja::Inputs inputs;
  auto list = std::make_shared<jinja::List>();
  for (const ChatValue& message : messages->items)
    list->items.push_back(message_to_jinja(message, int32_t(list->items.size())));
  inputs.variables.emplace_back("messages", jinja::Value::of(std::move(list)));
  const auto made = jinja::Template::parse(
      "{% set a = messages[0].content %}{% set b = messages[1].content %}" + std::string(text));
  if (!made.ok()) return made.message();
  const auto rendering = made->render(inputs);
  if (!rendering.ok()) return rendering.message();
  std::string who;
  size_t begin = 0;
  for (const auto& run : rendering->text.runs()) {
    char letter = 't';
    if ((run.origin & ~jinja::kMarked) != jinja::kTemplate) {
      const ChatOrigin origin = chat_origin(run.origin);
      letter = origin.field == ChatField::Content  ? char('0' + origin.message)
               : origin.field == ChatField::Markup ? 'm'
                                                   : 'r';
    }
    if ((run.origin & jinja::kMarked) != 0) letter = char(std::toupper(letter));
    who += std::string(run.end - begin, letter);
    begin = run.end;
  }
  EXPECT_EQ(who.size(), rendering->text.size());
  return rendering->text.bytes() + "|" + who;
}

TEST(Jinja, OriginsSurvive) {
  EXPECT_EQ(origins("<{{ a }}>{{ b | trim }}"), "<Hello one>a,b <x> é|t000000000t1111111111");
  EXPECT_EQ(origins("{{ '[' + a ~ b.strip() + ']' }}"), "[Hello onea,b <x> é]|t0000000001111111111t");
  EXPECT_EQ(origins("{{ a[1:3] }}{{ a[::-1] }}{{ a[0] }}"), "eleno olleHH|000000000000");
  EXPECT_EQ(origins("{{ a.replace('l', b[1]) }}"), "Heaao one|001100000");
  EXPECT_EQ(origins("{{ b.split(',') | join('+') }}"), " a+b <x> é |11t111111111");
  EXPECT_EQ(origins("{{ a | upper }}{{ a | capitalize }}{{ a.title() }}"),
            "HELLO ONEHello oneHello One|" + std::string(27, '0'));
  EXPECT_EQ(origins("{{ '%s-%5s' % (a, b[1]) }}"), "Hello one-    a|000000000ttttt1");
  EXPECT_EQ(origins("{{ '{}:{:>3}'.format(a[0], b[1]) }}"), "H:  a|0ttt1");
  EXPECT_EQ(origins("{{ [a[:2], 1] | tojson }}"), "[\"He\", 1]|tt00ttttt");
  EXPECT_EQ(origins("{{ b[4:7] | escape }}"), " &lt;x|111111");
  EXPECT_EQ(origins("{% macro m(x) %}({{ x }}){% endmacro %}{{ m(a[0]) }}"), "(H)|t0t");
  EXPECT_EQ(origins("{% set c %}<{{ a[0] }}{% endset %}{{ c | string }}"), "<H|t0");
  EXPECT_EQ(origins("{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}{{ a[0] }}{% endcall %}"),
            "<H>|t0t");
  EXPECT_EQ(origins("x{% generation %}y{{ a[0] }}{% endgeneration %}z"), "xyHz|tT0t");
  EXPECT_EQ(origins("x{% for m in messages %}<{{ m.role }}>{% endfor %}y"),
            "x<user><assistant>y|tmrrrrmmrrrrrrrrrmt");
  EXPECT_EQ(origins("{{ a | indent(1) }}{{ a[0].center(3) }}{{ a[:2] | reverse }}"),
            "Hello one H eH|000000000t0t00");
  EXPECT_EQ(origins("{{ [a[0]] }}{{ a[0] * 2 }}{{ a[:1] in a }}"), "['H']HHTrue|tt0tt00tttt");
}

}  // namespace
}  // namespace sluice::core
