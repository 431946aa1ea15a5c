# SPDX-License-Identifier: Apache-2.0
"""Texts, ordinary and hostile, that tokenizers are compared on: the same for the same seed."""
import random
import unicodedata

LATIN = "the quick brown fox jumps over lazy dogs and it's they'll we've I'm you'd don't re-encode naïve café Übermaß " \
        "señor İstanbul straße façade coöperate ﬁne ﬂow Ǆ".split()
CYRILLIC = "быстрая коричневая лиса прыгает через ленивую собаку объём ёлка їжак".split()
CJK = "敏捷的棕色狐狸跳过了懒狗 東京特許許可局 こんにちは カタカナ 한국어 문장 입니다 ﾊﾝｶｸ 々〆〇".split()
OTHER = "السلام عليكم שָׁלוֹם नमस्ते दुनिया สวัสดี ជំរាបសួរ Γειά σου Բարև გამარჯობა አማርኛ বাংলা தமிழ் తెలుగు ไทย ᏣᎳᎩ 𐐷𐑊 𝔘𝔫𝔦 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 ☃️ ½ Ⅻ ² ٣ ૪ 〇 𝟘 ㊗".split()
CODE = ["for (int i = 0; i < n; ++i) {\n", "\treturn x ** 2;\r\n", "    if a != b:\n        pass\n", "#include <vector>\n",
        "0x7fff_ffff 1234567890 3.14159e-10\n", "\"\\u00e9\\n\"", "<html>\n<p class='x'>&nbsp;</p>\n", "SELECT * FROM t;--\n",
        "a_b__c CamelCaseHTTPServer", "'s 't 're 've 'm 'll 'd 'S 'T 'RE 'VE 'M 'LL 'D '\u017f '\u212a", "//////// ======== --------\n"]
SPACES = [" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", " \n ", "\u00a0", "\u2003", "\u3000", "\u200b", "\u180e", "\u0085", "\x0b", "\x0c",
          "\u2028", "\ufeff", "\u1680", "\u205f", " " * 17, "\n" * 9, "\u00ad"]
MARKS = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000 and unicodedata.combining(chr(c))]
COMPOSED = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000 and unicodedata.decomposition(chr(c))
            and not unicodedata.decomposition(chr(c)).startswith("<")]


def code_point(r):
    while True:
        c = r.choice((r.randrange(0x80), r.randrange(0x800), r.randrange(0x10000), r.randrange(0x110000), r.randrange(0x1C80, 0x1D00),
                      r.randrange(0x10D00, 0x11F00), r.randrange(0x1E000, 0x1F000), r.randrange(0x2000, 0x2070)))
        if not 0xD800 <= c < 0xE000:
            return chr(c)


def part(r, special):
    kind = r.randrange(16)
    if kind < 4:
        return " ".join(r.choices(LATIN, k=r.randrange(1, 9)))
    if kind == 4:
        return " ".join(r.choices(CYRILLIC, k=r.randrange(1, 6)))
    if kind == 5:
        return r.choice(("", "，", " ")).join(r.choices(CJK, k=r.randrange(1, 5)))
    if kind == 6:
        return " ".join(r.choices(OTHER, k=r.randrange(1, 5)))
    if kind < 9:
        return "".join(r.choices(CODE, k=r.randrange(1, 4)))
    if kind == 9:
        return "".join(r.choices(SPACES, k=r.randrange(1, 6)))
    if kind == 10:
        return "".join(code_point(r) for _ in range(r.randrange(1, 20)))
    if kind == 11:
        return r.choice("aA 1.\n\t'é一▁Ġ<") * r.randrange(1, 60)
    if kind == 12:
        return "".join(r.choice("aeoاक" + "".join(r.choices(COMPOSED, k=3))) + "".join(r.choices(MARKS, k=r.randrange(4)))
                       for _ in range(r.randrange(1, 6)))
    if kind == 13 and special:
        return r.choice(("", " ", "x", "\n", "  ")) + r.choice(special) + r.choice(("", " ", "x", "  ", "\n"))
    if kind == 14:
        return "".join(r.choice("0123456789٠१²½.,") for _ in range(r.randrange(1, 14)))
    return "".join(r.choice("!?.,;:-—…()[]{}\"'`~@#$%^&*+=/\\|<>_\u2019\u00bf\u3002") for _ in range(r.randrange(1, 10)))


def texts(seed, count, special=()):
    """`special`: the contents of added tokens, put inside the text now and then, whole and damaged."""
    r = random.Random(seed)
    special = list(special)
    special += [s[:-1] for s in special] + [s.upper() for s in special]
    fixed = ["", " ", "  ", "\n", "a", " a", "a ", "▁", " ▁", "\u0301", "'s", "\x00", "\U0010ffff", "\ufffd", "<0x41>", "Ġ"]
    for i in range(count):
        if i < len(fixed):
            yield fixed[i]
            continue
        yield r.choice(("", " ")).join(part(r, special) for _ in range(r.randrange(1, r.choice((3, 6, 12)))))
