"""The JUnit report of a run: one testcase a rollout, with one verdict that says who failed.

pytest's own plugin writes the file. :func:`rewrite` reads it back, types and folds what belongs to
rollouts, and replaces it. Tests without a rollout keep what pytest said.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from pytest_rollout.plain import printable, xml_text
from pytest_rollout.report.xmlbounds import OUTPUTS, VERDICTS, bound
from pytest_rollout.report.xmlrepair import parse

__all__ = ["ROLLOUT_PROPERTY", "CaseVerdict", "read_report", "rewrite", "write_report"]

ROLLOUT_PROPERTY = "rollout.rollout_id"
SHOWN = 5  # ids that a problem names

_REWARD = "rollout.reward"
_COUNTS = {"failures": "failure", "errors": "error", "skipped": "skipped"}


class CaseVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the report must say of one rollout.

    ``type`` is the verdict's type attribute (``infra.stage``, ``termination.wall_limit``) and
    ``message`` its message; both are unused where ``outcome`` is passed. ``properties`` are pairs of
    name and value; of a name that is given twice, the last wins.
    """

    rollout: str
    outcome: Literal["passed", "failed", "infra"]
    type: str
    message: str
    properties: tuple[tuple[str, str], ...] = ()


def rewrite(path: Path, cases: Mapping[str, CaseVerdict], others: Sequence[ET.Element] = ()) -> list[str]:
    """Make the JUnit file at ``path`` say what ``cases`` (by rollout id) say; return the problems as sentences.

    ``others`` are testcases that are added to it. A file that can't be read, repaired or written stays as it is, with a
    sentence and without an exception. Without ``cases`` and ``others`` the file is not even read.
    """
    if not cases and not others:
        return []
    report = f"The JUnit report {printable(str(path))}"
    try:
        target = Path(os.path.realpath(path))
        data = read_report(target)
    except (OSError, ValueError) as error:
        return [f"{report} could not be read: {_reason(error)}."]
    try:
        root = parse(data)
    except (ET.ParseError, LookupError, ValueError) as error:
        return [f"{report} is malformed beyond repair and was left as it is: {error}."]
    missing = _finish(root, cases, others)
    try:
        write_report(target, root)
    except (OSError, ValueError) as error:
        return [f"{report} could not be rewritten: {_reason(error)}."]
    if missing:
        more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        shown = ", ".join(map(printable, missing[:SHOWN])) + more
        return [f"{report} has no testcase for {len(missing)} of {len(cases)} rollouts: {shown}."]
    return []


def _finish(root: ET.Element, cases: Mapping[str, CaseVerdict], others: Sequence[ET.Element]) -> list[str]:
    """Do everything to the tree; return the ids that have no testcase."""
    parents = {child: parent for parent in root.iter() for child in parent if child.tag == "testcase"}
    ids = _identify(list(parents), cases)
    folded = set()
    for first, twin in list(_twins(ids)):
        _fold(first, twin)
        parents.pop(twin).remove(twin)
        folded.add(first)
    for case, parent in parents.items():
        rollout = ids[case]
        verdict = cases.get(rollout)
        if verdict is not None:
            _settle(case, verdict)
            _set_properties(case, {**dict(verdict.properties), ROLLOUT_PROPERTY: rollout})
            case.set("name", case.get("name") or xml_text(rollout))
        elif not case.get("name"):  # an interrupt left it: only a duration
            parent.remove(case)
        elif case in folded:
            _join_verdicts(case)
    suite = next(root.iter("testsuite"), root)
    suite.extend(others)
    bound(root)
    _recount(root)
    seen = set(ids.values())
    return [rollout for rollout in cases if rollout not in seen]


# Which testcase belongs to which rollout


def _identify(testcases: Sequence[ET.Element], cases: Mapping[str, CaseVerdict]) -> dict[ET.Element, str]:
    """The rollout id of each testcase, empty where it has none.

    A testcase without the property (a worker's crash makes one) belongs to the one rollout of its name.
    """
    ids = {case: _own_id(case, cases) for case in testcases}
    by_address: dict[tuple[str, str], set[str]] = {}
    for case, rollout in ids.items():
        if rollout:
            by_address.setdefault(_address(case), set()).add(rollout)
    for case, rollout in ids.items():
        candidates = by_address.get(_address(case), set())
        if not rollout and case.get("name") and len(candidates) == 1:
            ids[case] = next(iter(candidates))
    return ids


def _own_id(case: ET.Element, cases: Mapping[str, CaseVerdict]) -> str:
    # Ours is set before the test's body runs: a later one could be the candidate's.
    values = [item.get("value", "") for item in case.iter("property") if item.get("name") == ROLLOUT_PROPERTY]
    return next((value for value in values if value in cases), values[0] if values else "")


def _address(case: ET.Element) -> tuple[str, str]:
    return case.get("classname", ""), case.get("name", "")


def _twins(ids: Mapping[ET.Element, str]) -> Iterator[tuple[ET.Element, ET.Element]]:
    """Pairs of a testcase and a later one that repeats it.

    Without a rollout, only the pair that pytest makes of one test: a failure, then an error of its
    teardown. Equal names alone may be two runs of a test.
    """
    first: dict[str, ET.Element] = {}
    failed: dict[tuple[str, str], ET.Element] = {}
    for case, rollout in ids.items():
        address = _address(case)
        if rollout:
            if first.setdefault(rollout, case) is not case:
                yield first[rollout], case
        elif address in failed and _failed_on_teardown(case):
            yield failed.pop(address), case
        elif case.find("failure") is not None:
            failed[address] = case


def _failed_on_teardown(case: ET.Element) -> bool:
    return any(error.get("message", "").startswith("failed on teardown with ") for error in case.findall("error"))


# What a testcase holds


def _fold(first: ET.Element, twin: ET.Element) -> None:
    """Move everything of ``twin`` into ``first``; the durations add up."""
    with contextlib.suppress(ValueError):
        first.set("time", f"{float(first.get('time', '0')) + float(twin.get('time', '0')):.3f}")
    for name, value in twin.attrib.items():
        if not first.get(name):
            first.set(name, value)
    first.extend(list(twin))
    _arrange(first)


def _arrange(case: ET.Element) -> None:
    """One ``properties`` and one of each output, in the order of xunit2."""
    blocks = case.findall("properties")
    outputs = {tag: case.findall(tag) for tag in OUTPUTS}
    others = [child for child in case if child.tag not in ("properties", *OUTPUTS)]
    if blocks:
        _merge_properties(blocks)
    for elements in outputs.values():
        if len(elements) > 1:
            elements[0].text = _merge_texts([element.text or "" for element in elements])
    case[:] = [*blocks[:1], *others, *(element for elements in outputs.values() for element in elements[:1])]


def _merge_properties(blocks: Sequence[ET.Element]) -> None:
    """All properties into the first block: a pair that it has once, a name of ours with its last value."""
    kept: list[ET.Element] = []
    for block in blocks:
        known = {(item.get("name"), item.get("value")) for item in kept if not _is_ours(item)}
        kept += [item for item in block if (item.get("name"), item.get("value")) not in known]
    last = {item.get("name"): item for item in kept if _is_ours(item)}
    blocks[0][:] = [item for item in kept if not _is_ours(item) or last[item.get("name")] is item]


def _is_ours(item: ET.Element) -> bool:
    return item.get("name", "").startswith("rollout.")


def _merge_texts(texts: Sequence[str]) -> str:
    """The texts below each other, without those that another one begins with: a teardown repeats the call's output."""
    kept: list[str] = []
    for text in texts:
        if not any(_begins(other, text) for other in kept):
            kept = [*(other for other in kept if not _begins(text, other)), text]
    return "\n".join(kept)


def _begins(text: str, lines: str) -> bool:
    return f"{text}\n".startswith(lines.rstrip("\n") + "\n") or not lines.strip()


def _set_properties(case: ET.Element, values: Mapping[str, str]) -> None:
    block = case.find("properties")
    if block is None:
        block = ET.Element("properties")
        case.insert(0, block)
    for item in [item for item in block if item.get("name") == _REWARD and _REWARD not in values]:
        block.remove(item)  # the verdict was another one when that was said
    for name, value in ((xml_text(name), xml_text(value)) for name, value in values.items()):
        same = [item for item in block if item.get("name") == name]
        for item in same[1:]:
            block.remove(item)
        item = same[0] if same else ET.SubElement(block, "property", name=name)
        item.text = None
        item.set("value", value)


# The verdict


def _settle(case: ET.Element, verdict: CaseVerdict) -> None:
    """Leave the one verdict element that ``verdict`` asks for, or none where it passed."""
    found = [child for child in case if child.tag in VERDICTS]
    xfails = [child for child in found if child.tag == "skipped" and child.get("type") == "pytest.xfail"]
    for child in found:
        case.remove(child)
    if verdict.outcome == "passed":
        _keep_as_output(case, found, verdict.outcome)
    elif verdict.outcome == "failed" and xfails:
        case.append(xfails[0])
        _keep_as_output(case, [child for child in found if child.attrib != xfails[0].attrib], verdict.outcome)
    else:
        tag = "failure" if verdict.outcome == "failed" else "error"
        element = ET.SubElement(case, tag, type=xml_text(verdict.type), message=xml_text(verdict.message))
        element.text = _joined(found)
    _arrange(case)


def _joined(verdicts: Sequence[ET.Element]) -> str:
    return "\n".join(filter(None, (child.text or child.get("message") for child in verdicts)))


def _keep_as_output(case: ET.Element, verdicts: Sequence[ET.Element], outcome: str) -> None:
    """Put what pytest said beside the rollout's verdict (of a teardown, say) at the end of ``system-err``."""
    for child in verdicts:
        message, text = child.get("message", ""), child.text or ""
        lines = [f" {child.tag} reported by pytest, rollout {outcome} ".center(80, "-")]
        lines += [part for part in (message if message not in text else "", text) if part]
        output = case.find("system-err")
        output = ET.SubElement(case, "system-err") if output is None else output
        output.text = "\n".join([*([output.text] if output.text else []), *lines]) + "\n"


def _join_verdicts(case: ET.Element) -> None:
    """One verdict of pytest's out of those that folding brought together: the first failure or error."""
    found = [child for child in case if child.tag in VERDICTS]
    if len(found) > 1:
        kept = next((child for child in found if child.tag != "skipped"), found[0])
        kept.text = _joined(found)
        for child in found:
            if child is not kept:
                case.remove(child)


# The whole file


def _recount(root: ET.Element) -> None:
    for element in root.iter():
        if element.tag in ("testsuite", "testsuites"):
            testcases = list(element.iter("testcase"))
            counts = {"tests": len(testcases)}
            counts |= {name: sum(case.find(tag) is not None for case in testcases) for name, tag in _COUNTS.items()}
            for name, count in counts.items():
                if element.tag == "testsuite" or name in element.attrib:
                    element.set(name, str(count))


# Reading and writing


def read_report(path: Path) -> bytes:
    """The bytes of a regular file. A pipe or a terminal (``--junitxml=/dev/stdout``) would block."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError("it is not a regular file")
    return path.read_bytes()


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)


def write_report(path: Path, root: ET.Element) -> None:
    """Replace ``path`` by the tree in one step, with its mode. Raises OSError; then nothing has changed."""
    text = ET.tostring(root, encoding="unicode")
    descriptor, name = tempfile.mkstemp(prefix=".rollout-junit-", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'.encode())
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(path, name)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
