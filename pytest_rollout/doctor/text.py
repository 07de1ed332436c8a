"""A diagnosis for a terminal."""

from __future__ import annotations

from pytest_rollout.doctor.diagnosis import Diagnosis
from pytest_rollout.executors.rungs import GUARANTEES, RUNGS, unmet

__all__ = ["lines"]


def lines(found: Diagnosis) -> list[str]:
    """The lines: the rung, what it enforces, why the better ones do not hold, what to do."""
    rung = next((each for each in RUNGS if each.number == found.rung), None)
    said = f"rung {rung.number} of {len(RUNGS)}: {rung.tree}, confined by {rung.confined}" if rung else "none holds"
    lacking = [name for name, level in found.guarantees.items() if level != "yes"]
    partly = "refuses every task" if unmet(lacking, "host") else 'holds for tasks with network="host" only'
    holds = "holds" if found.required_holds else partly
    shown = [
        f"isolation  {said}",
        f"executor   {found.executor or 'none'}",
        f"required   {holds}",
        f"machine    {found.facts.distribution or found.facts.system}, kernel {found.facts.kernel}",
        f"stages     {found.facts.stage_root} ({found.facts.stage_fs or 'unknown file system'})",
        f"limits     {_of_limits(found.facts.groups)}",
        "",
        "what is enforced",
    ]
    shown += [f"  {name:<8} {found.guarantees[name]:<7} {text.replace('`', '')}" for name, text in GUARANTEES.items()]
    if found.rejected:
        shown += ["", "why the better rungs do not hold"]
        shown += [f"  rung {each.rung}   {each.message}" for each in found.rejected]
    if found.remedies:
        shown += ["", "what to do"]
        for remedy in found.remedies:
            first, *rest = remedy.text.splitlines()
            shown += [f"  {remedy.machine}: {first}", *(f"    {line.strip()}" for line in rest)]
    return shown


def _of_limits(groups: dict[str, int]) -> str:
    """How memory, processes and time on processors are held."""
    titles = {"memory": "memory", "pids": "processes", "cpu": "cpu"}
    counted = [f"{title} by cgroup v{groups[name]}" for name, title in titles.items() if name in groups]
    looked = [title for name, title in titles.items() if name not in groups]
    said = [", ".join(counted)] if counted else []
    said += [f"{', '.join(looked)} looked at at intervals"] if looked else []
    remedy = " (systemd-run --user --scope -p Delegate=yes pytest … has them counted)" if looked else ""
    return "; ".join(said) + remedy
