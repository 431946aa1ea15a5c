# SPDX-License-Identifier: Apache-2.0


class Error(Exception):
    """What the library refuses, or what failed.

    kind     "invalid", "not found", "does not fit", "io", "device", "cancelled" or "internal"; "failed" where the program said it, whose
             text is all there is
    details  names and values, as text
    """

    def __init__(self, message: str, kind: str, details: dict[str, str]):
        super().__init__(message)
        self.kind = kind
        self.details = details

    def _bytes(self, name: str) -> int | None:
        return int(self.details[name]) if name in self.details else None

    @property
    def tier(self) -> str | None:
        """The memory that is too small: "device" or "host"."""
        return self.details.get("tier")

    @property
    def given(self) -> int | None:
        """Bytes that may be used of it."""
        return self._bytes("given")

    @property
    def need(self) -> int | None:
        """Bytes with which it works; None: unknown, or nothing of this memory helps."""
        return self._bytes("need")


Error.__module__ = "sluice"
