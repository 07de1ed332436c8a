"""The verdicts of gates in JUnit: properties of the testsuite, ``rollout.gate.1`` and so on."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

from pytest_rollout.plain import printable, xml_text
from pytest_rollout.report.junit import read_report, write_report
from pytest_rollout.report.xmlrepair import parse

__all__ = ["write_gates"]


def write_gates(path: Path, lines: Sequence[str]) -> list[str]:
    """Add a property for each gate to the first testsuite of a JUnit file; returns the problems as sentences."""
    try:
        target = Path(os.path.realpath(path))
        root = parse(read_report(target))
        suite = root if root.tag == "testsuite" else root.find("testsuite")
        if suite is None:
            raise ValueError("it has no testsuite")
        block = suite.find("properties")
        if block is None:
            block = ET.Element("properties")
            suite.insert(0, block)
        for number, line in enumerate(lines, 1):
            ET.SubElement(block, "property", name=f"rollout.gate.{number}", value=xml_text(line))
        write_report(target, root)
    except (OSError, ET.ParseError, LookupError, ValueError) as error:
        return [f"the gates could not be written into {printable(str(path))}: {error}"]
    return []
