"""Words of a text."""

import re

_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")


def words(text):
    """The words in lower case, in their order."""
    return [match.group().lower() for match in _WORD.finditer(text)]
