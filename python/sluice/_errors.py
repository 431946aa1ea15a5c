# SPDX-License-Identifier: Apache-2.0


class Error(Exception):
    """What the library refuses, or what failed.

    kind     "invalid", "not found", "does not fit", "io", "device", "cancelled" or "internal"; "failed" where the program said it, whose
             text is all there is
    details  names and values, as text
    tier     the memory that is too small, "device" or "host"; None: the error is of something else
    given    bytes that may be used of it
    need     bytes with which it works; None: unknown, or nothing of this memory helps
    """

    def __init__(self, message: str, kind: str, details: dict[str, str], *, tier: str | None = None, given: int | None = None,
                 need: int | None = None):
        super().__init__(message)
        self.kind = kind
        self.details = details
        self.tier = tier
        self.given = given
        self.need = need


Error.__module__ = "sluice"
