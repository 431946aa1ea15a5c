#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares ids and decoded texts with the library `tokenizers`, over as many texts as wanted.

    tests/tokenizer/compare.py build/cpu/bench/tokenizer/sluice_bench_tokenizer TOKENIZER_JSON... [--texts 100000] [--seed 1] [--record MACHINE]

For each file a line with the number of texts, and of those whose ids or decoded texts differ; the first of them are shown. Fails if there
is one.
"""
import argparse
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer

from texts import texts

BLOCK = 10_000


def compare_block(program, path, tokenizer, block, folder):
    """The texts that differ, each with what they are here and there."""
    records, out = folder / "texts", folder / "out"
    with records.open("wb") as file:
        for text in block:
            data = text.encode()
            file.write(struct.pack("<I", len(data)) + data)
    subprocess.run([program, path, records, "--out", out], check=True, stdout=subprocess.DEVNULL)
    data, at = out.read_bytes(), 0

    def take(width):
        nonlocal at
        count, = struct.unpack_from("<I", data, at)
        part = data[at + 4:at + 4 + count * width]
        at += 4 + count * width
        return part

    for text in block:
        ids = list(struct.unpack(f"<{len(part := take(4)) // 4}i", part))
        decoded = [take(1).decode(errors="surrogateescape") for _ in range(2)]
        expected = tokenizer.encode(text).ids
        texts_expected = [tokenizer.decode(expected, skip_special_tokens=skip) for skip in (False, True)]
        if ids != expected or decoded != texts_expected:
            yield text, ids, expected, decoded, texts_expected


def compare(program, path, count, seed):
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    special = [token.content for token in tokenizer.get_added_tokens_decoder().values()][:200]
    differ, total, size, block = 0, 0, 0, []
    with tempfile.TemporaryDirectory() as folder:
        for number, text in enumerate(texts(seed, count, special), 1):
            block.append(text)
            total += 1
            size += len(text.encode())
            if len(block) < BLOCK and number < count:
                continue
            for text_, ids, expected, decoded, texts_expected in compare_block(program, path, tokenizer, block, pathlib.Path(folder)):
                differ += 1
                if differ <= 5:
                    print(f"  {text_!r}:\n    ids {ids}\n    not {expected}\n    decoded {decoded}\n    not     {texts_expected}")
            block = []
    return {"texts": total, "bytes": size, "differ": differ}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("tokenizers", nargs="+", type=pathlib.Path)
    parser.add_argument("--texts", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", metavar="MACHINE", help="add the result to bench/results/tokenizers.jsonl")
    options = parser.parse_args()
    failed = False
    for path in options.tokenizers:
        result = compare(options.program.resolve(), path, options.texts, options.seed)
        print(f"{path.stem}: {result['texts']} texts, {result['bytes'] / 1e6:.1f} MB, {result['differ']} differ", flush=True)
        failed = failed or result["differ"] > 0
        if options.record:
            sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
            from record import record
            record("tokenizers", {"tokenizer": path.stem}, result, options.record,
                   f"tests/tokenizer/compare_real build/cpu {options.texts}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
