"""What the terminal and JUnit show of an audit, as plain text and pairs."""

from __future__ import annotations

from collections import Counter

from pytest_rollout.control import Facts
from pytest_rollout.identity import rollout_id
from pytest_rollout.plain import xml_text
from pytest_rollout.report.inert import one_line
from pytest_rollout.report.junit import ROLLOUT_PROPERTY, CaseVerdict
from pytest_rollout.report.terminal import figure, plural
from pytest_rollout.store.facts import AuditRecord, TaskAudit, Trial

__all__ = ["audit_lines", "audit_case", "audit_properties", "trial_lines"]

_MAX_TASKS = 200


def trial_lines(audit: TaskAudit) -> list[str]:
    """One line a trial: what scored what, the unexpected ones marked."""
    width = max((len(trial.name) for trial in audit.trials), default=0)
    return [f"{'  ' if trial.good else '! '}{trial.name:<{width}}  {_came_to(trial)}" for trial in audit.trials]


def _came_to(trial: Trial) -> str:
    facts = trial.facts
    why = f": {one_line(facts.message.splitlines()[0])[:120]}" if facts.message and not facts.accepted else ""
    return f"{_score(facts)} (wanted: {trial.wanted}){why}"


def _score(facts: Facts) -> str:
    return f"infra {facts.kind}" if facts.reward is None else figure(facts.reward)


def audit_lines(record: AuditRecord, place: str) -> list[str]:
    """The block at the end of an audit."""
    count = Counter(audit.verdict for audit in record.tasks)
    named = ", ".join(f"{count[verdict]} {verdict}" for verdict in ("sound", "in-process", "weak", "unknown"))
    lines = [f"{plural(len(record.tasks), 'task')}: {named}"]
    for audit in record.tasks[:_MAX_TASKS]:
        lines.append(one_line(f"  {audit.verdict:<10}  {audit.node}"))
        if audit.verdict != "sound":
            lines.append(one_line(f"              {audit.reason}"))
    if len(record.tasks) > _MAX_TASKS:
        lines.append(f"  … and {len(record.tasks) - _MAX_TASKS} more")
    if record.missing:
        lines.append(
            f"not audited: {', '.join(map(one_line, record.missing[:5]))}" + (" …" if record.missing[5:] else "")
        )
    return [*lines, f"audit: {place}"]


def audit_properties(audit: TaskAudit, run: str) -> list[tuple[str, str]]:
    """What a testcase of JUnit carries of an audit."""
    values = {
        "rollout.audit": audit.verdict,
        "rollout.audit_reason": audit.reason,
        "rollout.run_id": run,
        ROLLOUT_PROPERTY: rollout_id(run, audit.task, 0),
        "rollout.task": audit.task,
        "rollout.evaluator_revision": audit.evaluator_revision,
        **{f"rollout.trial.{trial.name}": _score(trial.facts) for trial in audit.trials},
    }
    return [(xml_text(name), xml_text(value)) for name, value in values.items()]


def audit_case(audit: TaskAudit, run: str) -> CaseVerdict:
    """What JUnit says of one audited task: a failure of the type ``audit.weak`` or ``audit.unknown``, or none."""
    properties = audit_properties(audit, run)
    return CaseVerdict(
        rollout=dict(properties)[ROLLOUT_PROPERTY],
        outcome="failed" if audit.failed else "passed",
        type=f"audit.{audit.verdict}",
        message=xml_text(f"{audit.verdict}: {audit.reason}"),
        properties=tuple(properties),
    )
