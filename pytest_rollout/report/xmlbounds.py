"""Bounds of a JUnit report: texts that every reader takes, and that no reader obeys."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

__all__ = ["OUTPUTS", "TEXT_LIMIT", "VERDICTS", "bound"]

TEXT_LIMIT = 2**20  # characters; lxml refuses a text or an attribute of over 10 MB
VERDICTS = ("failure", "error", "skipped")
OUTPUTS = ("system-out", "system-err")

_ATTACHMENT_LINE = re.compile(r"^(?=[ \t]*\[\[ATTACHMENT\|.*\]\][ \t\r]*$)", re.MULTILINE)


def bound(root: ET.Element) -> None:
    """Make every text short enough for lxml, and free of commands to the tools that read it."""
    for element in root.iter():
        if element.text and element.tag in (*VERDICTS, *OUTPUTS):
            element.text = _inert(element.text)
        element.text = element.text and _cut(element.text)
        element.tail = element.tail and _cut(element.tail)
        for name, value in element.attrib.items():
            shown = _inert(value) if element.tag in (*VERDICTS, "property") else value
            element.set(name, _cut(shown))


def _inert(text: str) -> str:
    """``text`` without an attachment command of Jenkins or GitLab.

    Both search for ``[[ATTACHMENT|path]]`` anywhere in a line (junit-attachments-plugin since 2013, GitLab's
    ``ATTACHMENT_TAG_REGEX``): a prefix shows the line, only a broken token stops it.
    """
    return _ATTACHMENT_LINE.sub("| ", text).replace("[[ATTACHMENT|", "[[ATTACHMENT |")


def _cut(text: str) -> str:
    if len(text) <= TEXT_LIMIT:
        return text
    half = TEXT_LIMIT // 2 - 50
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters were cut here ...] {text[-half:]}"
