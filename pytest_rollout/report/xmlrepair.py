"""Reading the XML that pytest writes, also where it is not well-formed.

pytest escapes what a test puts into values, but not the names that ``record_xml_attribute`` and
``record_property`` are given, nor every character that XML 1.0 forbids.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import xml.etree.ElementTree as ET
from collections.abc import Container, Sequence

from pytest_rollout.plain import xml_text

__all__ = ["NAME_LIMIT", "parse"]

NAME_LIMIT = 1000  # characters; lxml refuses a name of over 50,000

_TAG = "(?:testsuites?|testcase|properties|property|failure|error|skipped|system-out|system-err)"
_START = re.compile(rf"<{_TAG}(?=\s)")
_END = re.compile(rf">|\s*/>(?=\s*(?:</?{_TAG}\b|\Z))")
_ATTRIBUTE = re.compile(r'\s(.*?)="([^"<>]*)"(?=\s|/?>)', re.DOTALL)
_ASCII_NAME = re.compile(r"(?!xmlns\Z)[A-Za-z_][A-Za-z0-9_.-]*")


def parse(data: bytes) -> ET.Element:
    """The tree of ``data``, a JUnit file of pytest's, repaired where it wrote characters or names as they came.

    Raises ParseError.
    """
    with contextlib.suppress(ET.ParseError):
        return _strictly(data)
    text = xml_text(data.decode("utf-8", "backslashreplace"))
    with contextlib.suppress(ET.ParseError):
        return _strictly(text)
    return _strictly(_repair_names(text))


def _strictly(text: str | bytes) -> ET.Element:
    """Parse, and refuse what is well-formed only by chance.

    An attribute named ``xmlns`` hides its testcase from readers; one named ``>`` turns those after it into text.
    """
    root = ET.fromstring(text)  # noqa: S314  pytest wrote it
    for element in root.iter():
        if element.tag == "testcase" and f"{element.text or ''}{element.tail or ''}".strip():
            raise ET.ParseError("text where only elements belong")
        for name in (element.tag, *element.attrib):
            if "{" in name or len(name) > NAME_LIMIT:
                raise ET.ParseError(f"the name {name[:80]!r}")
    return root


def _repair_names(text: str) -> str:
    """``text`` with valid, unique attribute names in each start tag. Values are well-formed: pytest escapes them."""
    parts, position = [], 0
    while start := _START.search(text, position):
        parts.append(text[position : start.end()])
        position = start.end()
        attributes: list[tuple[str, str]] = []
        while not _END.match(text, position) and (match := _ATTRIBUTE.match(text, position)):
            attributes.append((match[1], match[2]))
            position = match.end()
        names = _valid_names([name for name, _ in attributes])
        parts += [f' {name}="{value}"' for name, (_, value) in zip(names, attributes, strict=True)]
    return "".join([*parts, text[position:]])


def _valid_names(names: Sequence[str]) -> list[str]:
    """One valid name for each, all different; a valid name is kept where it comes first."""
    taken = {name for name in names if _is_name(name)}
    result: list[str] = []
    for name in names:
        new = name if name in taken and name not in result else _new_name(name, taken)
        taken.add(new)
        result.append(new)
    return result


def _new_name(name: str, taken: Container[str]) -> str:
    """A valid name that looks like ``name`` and is not in ``taken``: ``a b`` is ``a_b``, else ``a_b_2``."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", name[:100])
    plain = plain if _ASCII_NAME.fullmatch(plain) else f"_{plain}"
    numbered = (f"{plain}_{number}" for number in itertools.count(2))
    return next(option for option in itertools.chain([plain], numbered) if option not in taken)


def _is_name(name: str) -> bool:
    if len(name) > NAME_LIMIT or re.search(r"""[\s"'<>&=/:]""", name) or name == "xmlns":
        return False
    if _ASCII_NAME.fullmatch(name):
        return True
    try:  # which letters a name may hold, the parser knows best
        ET.fromstring(f'<a {name}=""/>')  # noqa: S314
    except ET.ParseError:
        return False
    return True
