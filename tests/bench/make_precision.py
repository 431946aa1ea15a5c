#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes precision.txt: what PyTorch's sums come to when one number is added again and again.

A line is the addend, how often it is added, accumulator, addend's format, the way of summing, the bits of the sum as f32 in
hexadecimal, and the sum. Stochastic rounding is not PyTorch's own: the random numbers are Philox4x32-10, written here from the
paper (Salmon et al., SC'11), and the rounding is arithmetic on the bits of PyTorch's f32 sums. Needs torch; runs on a CPU.

    python make_precision.py > precision.txt
"""

import struct

import torch

FORMATS = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
MASK = (1 << 64) - 1


def plain(addend, times, accumulator, addend_format):
    total, x = torch.tensor(0, dtype=accumulator), torch.tensor(addend, dtype=addend_format)
    for _ in range(times):
        total += x
    return total


def kahan(addend, times, accumulator, addend_format):
    total, lost = torch.tensor(0, dtype=accumulator), torch.tensor(0, dtype=accumulator)
    x = torch.tensor(addend, dtype=addend_format)
    for _ in range(times):
        corrected = x - lost
        following = total + corrected
        lost = (following - total) - corrected
        total = following
    return total


def philox(key, low, high):
    """Four numbers of 32 bits."""
    c = [low & 0xFFFFFFFF, low >> 32, high & 0xFFFFFFFF, high >> 32]
    k = [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def key_of(seed, number):
    """SplitMix64's finaliser spreads the numbers of objects."""
    z = (number + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return seed ^ z ^ (z >> 31)


def stochastic(addend, times, accumulator, addend_format):
    total, x = torch.tensor(0, dtype=accumulator), torch.tensor(addend, dtype=addend_format)
    key = key_of(1, 0)
    for step in range(times):
        draw = philox(key, 0, step)[0] & 0xFFFF
        bits = (total.float() + x.float()).view(torch.int32) + draw
        total = (bits & ~0xFFFF).view(torch.float32).to(accumulator)
    return total


def main():
    ways = [(plain, a, b) for a, b in (("f32", "f32"), ("f32", "f16"), ("f32", "bf16"), ("f16", "f16"), ("bf16", "bf16"))]
    ways += [(kahan, f, f) for f in FORMATS] + [(stochastic, "bf16", "f32")]
    names = {plain: "to-nearest", kahan: "Kahan", stochastic: "stochastic"}
    print(f"# PyTorch {torch.__version__}")
    for addend, times in ((0.01, 1000), (0.001, 10000)):
        for way, accumulator, addend_format in ways:
            total = way(addend, times, FORMATS[accumulator], FORMATS[addend_format])
            bits = struct.pack(">f", total.float().item()).hex()
            print(addend, times, accumulator, addend_format, names[way], bits, total.item())


if __name__ == "__main__":
    main()
