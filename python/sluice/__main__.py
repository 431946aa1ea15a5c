# SPDX-License-Identifier: Apache-2.0
"""The command line, from the wheel: python -m sluice train chats.toml"""
import os
import sys

from . import _program


def main() -> None:
    os.environ.setdefault("SLUICE_PYTHON", sys.executable)  # for a command that is Python's
    os.execv(_program.path(), ["sluice", *sys.argv[1:]])


if __name__ == "__main__":
    main()
