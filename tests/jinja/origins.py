#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks who wrote each byte by another way: a field is replaced, and the bytes that change must be the field's.

    tests/jinja/compare BUILD_DIR origins [--record MACHINE] [--only PART] [--show N]

For every string of a conversation the letters and digits become others, as many bytes long, that stand nowhere else in it; blanks
and signs stay. transformers renders both, and Sluice says who wrote each byte of the first. Where the template writes other parts, in
length, by origin, or the same ones for two replacements that share no letter, it goes by the field's value: such fields are counted by
name. Otherwise a byte that changes must be the field's, and where the field is one string, each of its letters that stands in the text
must change.
"""
import collections
import json
import re
import sys

import compare

FIELDS = ["role", "content", "thought", "calls", "arguments", "other", "markup"]  # ChatField
NAMES = {"role": "role", "content": "content", "reasoning_content": "thought", "thinking": "thought", "reasoning": "thought", "tool_calls": "calls"}
MOST = 50  # conversations of a template that it takes
# By the bytes of a character: others of the same case, which upper() and lower() keep as long.
LETTERS = {1: ("zyxwvjkq", "ZYXWVJKQ"), 2: ("žýźŵőķ", "ŽÝŹŴŐĶ"), 3: ("ẅẃẁẍẽỹ", "ẄẂẀẌẼỸ"), 4: ("𐐨𐐩𐐪𐐫", "𐐀𐐁𐐂𐐃")}


def places(value, path=()):
    """Paths of strings."""
    if isinstance(value, str):
        if re.search(r"\w", value):
            yield path
    elif isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def replaced(value, path, new):
    if not path:
        return new(value)
    value = value.copy()
    value[path[0]] = replaced(value[path[0]], path[1:], new)
    return value


def other_letters(text, step=1):
    """As many bytes, each letter another, and not that of another step (1 and 2 are used)."""
    def one(match):
        letter = match.group()
        lower, upper = LETTERS[len(letter.encode())]
        choice = (upper if letter.isupper() else lower).replace(letter, "")
        return choice[(ord(letter) + step) % len(choice)]
    return re.sub(r"[^\W_]", one, text)


def owner(path):
    """(message, field) as the program writes them, and what the field is called in a list."""
    if path[0] != "messages":
        return (-1, FIELDS.index("other")), path[0]
    field = NAMES.get(path[2], "other")
    if field == "calls" and "arguments" in path:
        field = "arguments"
    return (path[1], FIELDS.index(field)), field if field != "other" else path[2]


def who(answer):
    """Of each byte its message and field."""
    table, begin = [], 0
    for end, message, field in answer["runs"]:
        table += [(message, field)] * (end - begin)
        begin = end
    return table


def check(text, changed, before, after, mine, alone):
    """What is wrong, or "branch", or nothing. `alone`: the field is one string."""
    if len(text) != len(changed) or before != after:
        return "branch"
    for at, (old, new) in enumerate(zip(text, changed)):
        if old != new and before[at] != mine:
            return f"byte {at}, which is of {before[at]}, changes"
        # A letter behind a backslash is tojson's.
        if old == new and alone and before[at] == mine and chr(old).isalnum() and old < 128 and b"\\" not in text[max(0, at - 5):at]:
            return f"byte {at}, which is of {mine}, stays"
    return ""


def main():
    args = compare.arguments(__doc__)
    chats = list(compare.conversations())
    branches, total, failed = collections.defaultdict(collections.Counter), collections.Counter(), []
    for file in compare.templates_of(args):
        template, taken = file.read_text(encoding="utf-8"), []
        for messages, told in chats[::4] + chats[1::4] + chats[2::4] + chats[3::4]:
            text = compare.theirs(template, messages, {**compare.TOKENS, **told})
            if isinstance(text, str) and len(taken) < MOST:
                taken.append((messages, told, text))
        if len(taken) < MOST:
            total["templates that take fewer"] += 1
            continue
        cases, requests, chat_of = [], [], {}
        for messages, told, text in taken:
            whole = {"messages": messages, **told}
            requests.append(compare.request_of(file, messages, told))
            base = len(requests) - 1
            chat_of[base] = (messages, told)
            for path in places(whole):
                if path[0] not in ("messages", "tools", "documents"):
                    continue
                changed = replaced(whole, path, other_letters)
                requests.append(compare.request_of(file, changed["messages"], {k: v for k, v in changed.items() if k != "messages"}))
                cases.append((base, len(requests) - 1, path, text, changed))
        answers = compare.answers_of(args.program, requests)
        counts, shown = collections.Counter(), 0
        for base, other, path, text, changed in cases:
            (message, field), name = owner(path)
            counts["fields"] += 1
            after = compare.theirs(template, changed["messages"], {**compare.TOKENS, **{k: v for k, v in changed.items() if k != "messages"}})
            wrong = "branch" if isinstance(after, Exception) or "error" in answers[other] else \
                check(text.encode(), after.encode(), who(answers[base]), who(answers[other]), (message, field),
                      len(path) == 3 and name in ("content", "thought"))
            if wrong not in ("", "branch"):
                again = replaced({"messages": chat_of[base][0], **chat_of[base][1]}, path, lambda value: other_letters(value, 2))
                third = compare.theirs(template, again["messages"], {**compare.TOKENS, **{k: v for k, v in again.items() if k != "messages"}})
                if isinstance(third, Exception) or third == after:
                    wrong = "branch"
            if wrong == "branch":
                branches[file.name][name] += 1
                counts["branches"] += 1
            elif wrong:
                counts["wrong"] += 1
                if shown < args.show:
                    shown += 1
                    print(f"--- {file.name}: {path}: {wrong}\n    {text!r}\n    {after!r}"[:2000])
        total += counts
        total["templates"] += 1
        total["conversations"] += len(taken)
        if counts["wrong"]:
            failed.append((file.name, counts["wrong"]))
    for name, fields in branches.items():
        print(f"{name} goes by the values of: {', '.join(f'{field} ({count})' for field, count in fields.most_common())}")
    print(dict(total), failed)
    if args.record:
        value = {key: total[key] for key in ("templates", "conversations", "fields", "branches", "wrong")}
        by_field = collections.Counter(field for fields in branches.values() for field in fields)
        args.record("origins", {"check": "a field's letters are replaced"}, {**value, "branch_on": dict(by_field.most_common())})
    sys.exit(bool(failed) or total["templates"] < 60)


if __name__ == "__main__":
    main()
