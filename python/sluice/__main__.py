# SPDX-License-Identifier: Apache-2.0
"""The command line, from the wheel: python -m sluice train chats.toml"""
import os
import pathlib
import sys


def main() -> None:
    program = pathlib.Path(__file__).parent / "bin/sluice"
    os.execv(program, ["sluice", *sys.argv[1:]])


if __name__ == "__main__":
    main()
