#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what pieces of templates render to in transformers (5.24.0, jinja2 3.1.6): fixtures/language.json, a list of [template, text],
or [template, null] where it is refused. They see the variables below.

    tests/jinja/make_language.py
"""
import datetime
import json
import pathlib

from transformers.utils import chat_template_utils as utils


class Day(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 2, 9)


utils.datetime = Day
VARIABLES = {
    "s": "Hello, wörld", "blank": "  a b\n", "empty": "", "n": 7, "x": -2.5, "t": True, "none": None, "html": "<b>&'\"",
    "words": ["b", "a", "C", "a"], "numbers": [3, 1, 2], "d": {"b": 1, "a": [1, 2.0, None, True, "é'"], "items": "own"},
    "people": [{"name": "Ann", "age": 3, "of": {"x": 1}}, {"name": "bob", "age": 1}, {"name": "Cy", "age": 2, "of": {"x": 0}}],
}
EXPRESSIONS = r"""
1 + 2 * 3 - 4 / 2|7 // 2|-7 // 2|7 % -3|2 ** 10|2 ** -1|-7.5 // 2|1e3|1_000|0.1 + 0.2|1e16|1e-5|10 / 5|true + true|'a' * 3|[1] * 2 + [2]|3 * 'ab'
'a' 'b' ~ 1 ~ none ~ true ~ 1.0|'a' ~ missing ~ 'b'|missing|missing.x|missing + 'a'|'a' + missing|'a' + 1|d.missing|d.missing.more|none.x|none['x']|n.x
s|s[0]|s[-1]|s[7:9]|s[::-1]|s[1:-1:2]|s[50]|s[50:]|s['x']|words[1]|words[-5]|words[1:3]|words[::-2]|(1, 2)[0]|(1,)|()|[]|{}|{'a': 1, 'a': 2}|{1: 2, true: 3}
words|d|none|true|1.5|x|'it\'s'|['it\'s', "a\"b", 'both\'"', '\n\t\\é\u200d\x07']|[none, true, 1, 1.0, -0.0, 1e100, 123456789012345678]|(1, 'a')
'\x41\u00e9\101\q'|'a{{b'|"%}"|d.items()|d['items']|d.keys() | list|d.values() | list|d.get('b')|d.get('zz')|d.get('zz', 3)|d.pop('b')|words.append(1)
1 < 2 < 3|1 < 3 < 2|'a' < 'b'|[1, 2] < [1, 3]|1 < 'a'|1 == 1.0|true == 1|'1' == 1|none == none|missing == missing2|[1] == [1.0]|(1,) == [1]|d == d
'a' in 'abc'|'b' in d|'zz' not in d|1 in [1.0]|1 in 'abc'|missing in 'a'|'a' in missing|none in [none]|[] in {}|not 1 == 2|not (1 and 0)|0 or 'x'|1 and 'y'|'' or none
'a' if t else 'b'|'a' if false|'a' if false else 'b' if false else 'c'|(1 if t) ~ 2|-n|+x|-s|- 2 ** 2|2 ** 3 ** 2|n is odd and not n is even|1 if n is defined else 2
s | upper|s | lower|s | title|s | capitalize|'straße ﬁ' | upper|'ÉCOLE' | lower|'hello wORLD-foo (bar)' | title|s.title()|s.swapcase()|s.casefold()|'ǆ' | capitalize
blank | trim|blank.strip() ~ '|'|blank.lstrip() ~ '|'|blank.rstrip() ~ '|'|'xxaxx'.strip('x')|'abcab'.strip('ba')|'xxa' | trim('x')|'  '.strip()|'é a é'.strip('é')
'a,b,,c'.split(',')|'a b  c'.split()|' a b '.split(' ')|'a,b,c'.split(',', 1)|'a,b,c'.rsplit(',', 1)|'a  b c'.split(none, 1)|' a b c '.rsplit(none, 1)|''.split()|''.split(',')|'a'.split('')
'a\nb\r\nc\n'.splitlines()|'a\nb'.splitlines(true)|'a-b-c'.partition('-')|'a-b-c'.rpartition('-')|'abc'.partition('-')|'abc'.rpartition('-')
'abc'.startswith('a')|'abc'.endswith(('x', 'c'))|'abc'.startswith('b', 1)|'abcabc'.find('c')|'abc'.find('z')|'abcabc'.rfind('c')|'abc'.index('z')|'éaé'.find('a')|'aaa'.count('a')|'aaa'.count('')
'aXbX'.replace('X', 'yy')|'aXbX'.replace('X', 'y', 1)|'ab'.replace('', '-')|'a-b' | replace('-', '+')|'aaa' | replace('a', 'b', 2)|','.join(['a', 'b'])|','.join([1])|words | join('-')|[1, none, 2.5] | join
'7'.zfill(3)|'-7'.zfill(4)|'ab'.center(7, '*')|'ab'.ljust(4) ~ '|'|'ab'.rjust(4, '.')|'prefix-x'.removeprefix('prefix-')|'x.py'.removesuffix('.py')|'ab' | center(6) ~ '|'
'12'.isdigit()|'1a'.isalnum()|'²'.isdigit()|'²'.isdecimal()|'½'.isnumeric()|''.isalpha()|'éa'.isalpha()|' \t'.isspace()|'Ab'.isupper()|'AB1'.isupper()|'ab'.islower()|'é'.isascii()
'{} and {}'.format(1, 'b')|'{1}{0}'.format('a', 'b')|'{x:>5}|{y:<5}|{z:^5}'.format(x=1, y='a', z=2.5)|'{:05d}'.format(42)|'{:,}'.format(1234567)|'{:.2f}'.format(3.14159)|'{:e}'.format(12345.678)
'{:x}{:X}{:#x}{:b}{:o}'.format(255, 255, 255, 5, 8)|'{!r}'.format('a')|'{0[a]}'.format({'a': 1})|'{{}}'.format(1)|'{:+d} {: d}'.format(5, 5)|'{:%}'.format(0.5)|'{:10}|'.format('é')|'{'.format()|'{}'.format()
'%s is %d' % ('a', 3)|'%5.2f|%-5s|%05d' % (3.14159, 'ab', 42)|'%x %X %o %e %g' % (255, 255, 8, 1234.5, 0.00001)|'%(a)s' % {'a': 1}|'%%' % ()|'%s' % none|'%d' % 3.9|'%s' % ('a', 'b')|'%r' % 'x'|'%s-%s' | format(1, 2)
words | length|s | length|d | count|missing | length|n | length|none | length|words | first|words | last|[] | first|s | first|s | last|missing | first|d | first
words | sort|words | sort(reverse=true)|words | sort(case_sensitive=true)|people | sort(attribute='age') | map(attribute='name') | list|numbers | sum|people | sum(attribute='age')|[1, 'a'] | sort
d | dictsort|{'b': 1, 'A': 2} | dictsort|{'b': 1, 'A': 2} | dictsort(true)|{'b': 1, 'A': 2} | dictsort(by='value', reverse=true)|words | unique | list|numbers | min|numbers | max|[] | max|people | max(attribute='age')
people | selectattr('of') | map(attribute='name') | list|people | selectattr('age', 'gt', 1) | list | length|people | rejectattr('age', 'equalto', 1) | map(attribute='name') | join(',')|words | select('equalto', 'a') | list|numbers | reject('odd') | list
people | map(attribute='of.x', default='none') | list|words | map('upper') | list|words | map('replace', 'a', 'z') | join|numbers | map('string') | join(',')|people | map(attribute='nope') | list|words | select | list|words | map('nope') | list
words | reverse | list|s | reverse|words | list|s | list|'ab' | list|d | list|range(3) | list|range(1, 7, 2) | list|range(3, 0, -1) | list|range(200000)|range(1.5)|words | batch(2) | list
'a\nb\n\nc' | indent|'a\nb' | indent(2, true)|'a\n\nb' | indent(1, blank=true)|'a\nb' | indent('> ')|'x' * 20 | truncate(10)|'hello big world' | truncate(10)|'hello big world' | truncate(10, true, '')
'42' | int|'4.7' | int|'x' | int|'x' | int(5)|4.7 | int|'1_0' | int|'ff' | int(0, 16)|none | int|'1.5' | float|'x' | float|3 | float|' 3 ' | int|2.5 | round|3.5 | round|2.675 | round(2)|2.1 | round(0, 'ceil')|7 | round|-3 | abs|2.5 | abs
missing | default('x')|none | default('x')|none | default('x', true)|'' | d('y', true)|missing | default|false | default(1)|missing | default(value='x')
html | escape|html | e | upper|html | safe|html | safe + '<'|'<' + html | safe|(html | safe) ~ '<'|html | safe | length|html | safe | trim|(html | safe).replace('b', '<')|[html | safe]|html | safe | string + '<'|'<%s>' | safe | format('<')
d | tojson|words | tojson(indent=2)|d | tojson(indent=1)|{} | tojson(indent=2)|[] | tojson|'é\u2028</s>' | tojson|'é🦀' | tojson(ensure_ascii=true)|{'b': 1, 'a': 2} | tojson(sort_keys=true)|{'b': 1, 'a': [1]} | tojson(separators=(',', ':'))|(1, 2) | tojson|missing | tojson
{1: 'a', none: 2, true: 3, 1.5: 4} | tojson|1.0 | tojson|1e100 | tojson|'\x00\x1f\x7f\b\f' | tojson|d.items() | list | tojson|d.items() | tojson|html | tojson|words | tojson(indent='--')|none | tojson|{'a': {}, 'b': []} | tojson(indent=4)
s is string|n is number|t is number|t is integer|t is boolean|n is integer|x is float|d is mapping|words is sequence|s is sequence|d is sequence|d is iterable|n is iterable|none is none|missing is undefined|n is defined|d.zz is defined|d.get is callable
missing is iterable|missing is sequence|range(2) is sequence|d.items() is sequence|d.items() is iterable|(words | map('upper')) is sequence|n is divisibleby 7|n is divisibleby(2)|n is sameas 7|none is sameas none|true is true|1 is true|false is false|n is eq 7|n is in [7]|'A' is upper|'a' is lower|n is gt 3|n is even|s is not string|'upper' is filter|'nope' is filter|n is nope|n | nope
namespace(a=1).a|namespace({'a': 2}).a|namespace().a|namespace(_a=1)._a|dict(a=1, b=2)|dict([('a', 1)])|dict({'a': 1}, b=2)|strftime_now('%Y-%m-%d %d %b %B %A %a %H:%M %p %j %y')|strftime_now('%-d/%-m')|raise_exception('no')|s.__class__|d.__len__|''.__add__
words | map('first') | list|people | groupby('age') | list | length|people | groupby('age') | map('first') | list|[[1, 2], [3]] | sum(start=[])|[3, 1] | sort | first|words.index('a')|words.count('a')|words.index('q')|(1, 2).count(1)|d.copy().b
1 is defined is true|words | join(attribute='x')|people | join(', ', attribute='name')|"a" "b"|[1, 2,]|{'a': 1,}|(words)[0]|words.0|words.9|'a' | upper | lower ~ 'B'|not missing|missing is not defined|s|length|1 if missing else 2|[missing] | list|[missing]
[1, 2, 3][1:]|'abc'[:2]|'abc'[-2:]|'abc'[:-5]|'abc'[5:1]|'abc'[::2]|'abc'[2:0:-1]|none[1:]|missing[1:]|words[none:2]|words['a':]|d[[1]]|d[none]|d.b.c|true and false|1 or missing.x|'%s' % d.b|{'a': 1}.a|{'get': 1}.get('get')|('a' ~ 'b') | upper
"""
BLOCKS = [
    "{% for w in words %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ w }};{% endfor %}",
    "{% for w in words %}{{ loop.previtem }}<{{ w }}>{{ loop.nextitem }} {% endfor %}", "{% for w in [] %}x{% else %}none{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}", "{% for c in 'añb' %}{{ c }}.{% endfor %}", "{% for w in missing %}x{% endfor %}y", "{% for w in none %}x{% endfor %}", "{% for i in 5 %}x{% endfor %}",
    "{% for w in words if w != 'a' %}{{ loop.index }}{{ w }}{{ loop.last }}{% else %}no{% endfor %}", "{% for w in words %}{% if w == 'a' %}{% continue %}{% endif %}{% if loop.index > 3 %}{% break %}{% endif %}{{ w }}{% endfor %}",
    "{% for i in range(3) %}{% for j in range(2) %}{{ i }}{{ j }}{{ loop.index }} {% endfor %}{{ loop.index }}{% endfor %}", "{% for w in words %}{{ loop.cycle('x', 'y') }}{{ loop.changed(w) }}{% endfor %}",
    "{% for p in people recursive %}{{ p.name }}{% if p.kids %}({{ loop(p.kids) }}){% endif %}{{ loop.depth }}{% endfor %}", "{% for a, b in [(1, 2), (3, 4)] %}{{ a }}-{{ b }} {% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}",
    "{% set a = 1 %}{% for i in range(3) %}{% set a = a + 1 %}{{ a }}{% endfor %}{{ a }}", "{% set ns = namespace(a=1) %}{% for i in range(3) %}{% set ns.a = ns.a + 1 %}{% endfor %}{{ ns.a }}",
    "{% set ns = namespace() %}{{ ns.a is defined }}{% set ns.a = [1] %}{% set ns.b = ns %}{{ ns.b.a }}", "{% set a, b = 1, 2 %}{{ b }}{{ a }}", "{% set a = 1, 2 %}{{ a }}", "{% set d.b = 2 %}", "{% set ns = namespace() %}{% set ns._x = 1 %}",
    "{% set a %}x{{ n }}y{% endset %}{{ a | upper }}", "{% set a | upper | replace('X', 'z') %}x{% endset %}{{ a }}", "{% if false %}{% set q = 1 %}{% endif %}{{ q is defined }}", "{% if t %}{% set q = 1 %}{% endif %}{{ q }}",
    "{% macro m(a, b=2, c=a) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=5, a=0) }}{{ m() }}", "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, k=3) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(q=1) }}", "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}", "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{{ m(1) }}{% macro m(a) %}{{ a }}{% endmacro %}",
    "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}in {{ n }}{% endcall %}", "{% macro m() %}<{{ caller(1, 2) }}>{% endmacro %}{% call(a, b) m() %}{{ a }}{{ b }}{% endcall %}", "{% macro m() %}{% if caller %}y{% else %}n{% endif %}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ z }}{% endmacro %}{% set z = 3 %}{{ m() }}", "{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro m() %}{% set z = 5 %}{{ z }}{% endmacro %}{% set z = 1 %}{{ m() }}{{ z }}",
    "{% macro m() %}  x  {% endmacro %}{{ m() | trim }}", "{% macro m() %}a{% endmacro %}{{ m() ~ 'b' }}{{ m() + 'c' }}{{ m.name }}", "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% filter upper %}a{{ s }}{% endfilter %}",
    "{% generation %}a{% set g = 1 %}{% endgeneration %}{{ g is defined }}", "{% raw %}{{ x }}{% endraw %}", "{%- raw -%}  {% x %} {%- endraw -%}  y", "{# c #}a{#- c -#} b", "a\n{# c #}\nb", "{% if 1 %}a{% elif 2 %}b{% else %}c{% endif %}",
    "{% if 0 %}a{% elif 0 %}b{% elif 3 %}c{% else %}d{% endif %}", "a\n  {% if t %}\n  b\n  {% endif %}\nc\n", "a\n  {%+ if t %}\n  b\n  {%+ endif +%}\nc\n\n", "  {{ n }}\n{{ n }}\n\n", "a  {%- if t -%}  \n b {%- endif %} \n c", "{% if t %}\r\nx\r\n{% endif %}\r\ny",
    "a \n\t {{- n -}} \n b", "\n{% if t %}\n\n{% endif %}", "x {% if t %} y {% endif %} z", "{%if t%}a{%endif%}", "{{n}}{{'}}'}}{{ {'a': {'b': 1}}.a.b }}", "{{ 1 }", "{% if %}", "{% nope %}", "{% for %}", "{% endif %}", "{{ 'a }}", "{# x", "{{ ) }}", "{{ a b }}",
    "{% include 'x' %}", "{% set x = 1 %}{% set y = x if x else 2 %}{{ y }}", "{% do words.append(1) %}", "{% break %}", "{{ [1,2] | map('string') | list | join }}", "{% for i in range(2) -%}\n  {{ i }}\n{%- endfor %}",
    "{% set r = words | map('upper') %}{{ r | first }}{{ r | list }}{{ r | list }}", "{% set r = people | selectattr('age') %}{{ r | length }}", "{% for i in words | reverse %}{{ i }}{{ loop.length }}{% endfor %}", "{% set loop = 5 %}{{ loop }}",
    "{% for i in range(2) %}{{ missing.x }}{% endfor %}", "{{ 'a' if n is string else 'b' }}", "{% set x = {'a': [1, {'b': 2}]} %}{{ x.a[1].b }}{{ x['a'][0] }}",
    "{% for m in people %}{%- if loop.first -%}{%- set first = m.name -%}{%- endif -%}{{ first }};{%- endfor -%}", "{% set ns = namespace(i=0) %}{% for p in people if p.age > 1 %}{% set ns.i = ns.i + p.age %}{% endfor %}{{ ns.i }}",
]


def main():
    render = lambda text: utils._compile_jinja_template(text).render(**VARIABLES)
    rows = []
    expressions = ["{{ " + e + " }}" for line in EXPRESSIONS.strip().split("\n") for e in split_bars(line)]
    for text in expressions + BLOCKS:
        try:
            rows.append([text, render(text)])
        except Exception:  # Whatever it raises.
            rows.append([text, None])
    with open(pathlib.Path(__file__).parent / "fixtures/language.json", "w", encoding="utf-8") as out:
        lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        out.write('{"variables": ' + json.dumps(VARIABLES, ensure_ascii=False) + ',\n"rows": [\n' + lines + "\n]}\n")
    print(len(rows), "pieces,", sum(row[1] is None for row in rows), "refused")


def split_bars(line):
    """Expressions between bars without blanks around them: a filter's bar has some, and '|' in quotes is text."""
    parts, quote, now = [], "", ""
    for i, c in enumerate(line):
        if not quote and c == "|" and (line[i - 1] != " " or line[i + 1:i + 2] != " ") and not line[i + 1:].startswith("length|1 if"):
            parts.append(now)
            now = ""
            continue
        if quote and c == quote and line[i - 1] != "\\":
            quote = ""
        elif not quote and c in "'\"":
            quote = c
        now += c
    return parts + [now]


if __name__ == "__main__":
    main()
