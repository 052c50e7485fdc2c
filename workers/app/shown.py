"""Text from elsewhere (messages, files, their names, answers of servers) as a terminal may be shown it.

A terminal executes what it is sent: an escape sequence in a message could retitle it, overwrite lines, or type.
"""

import re
from typing import Final

_UNSHOWN: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but for the tab and the end of a line, marks that turn the direction of writing, and bytes of a
file's name that are no text."""


def shown(text: str) -> str:
    """The text with such characters as escapes that can be read: of Python's kind."""
    return _UNSHOWN.sub(_escape, text)


def shown_json(text: str) -> str:
    """The same for one line of JSON, which means the same afterwards."""
    if text.isprintable():  # as a rule, and each request logs a line: this takes a third of the time
        return text
    return _UNSHOWN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
