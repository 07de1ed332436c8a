"""Judge rollouts: what pytest saw of a test, told to the core, and its verdict told to pytest.

The body is judged once. What a rollout's own report says comes from the verdict; ``report.outcome``
stays one of pytest's, and ours travels beside it in ``report.rollout`` as plain JSON.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import convert, to_builtins
from msgspec.structs import replace

from pytest_rollout._body import body_of, facts_of, is_async, leaves_of, raised
from pytest_rollout._signals import Signals
from pytest_rollout._state import SKIPS, State, place
from pytest_rollout.control import Facts, blame, hold, unfit
from pytest_rollout.errors import InfraError
from pytest_rollout.identity import rollout_id
from pytest_rollout.outcome import Body, Infra, Score, Verdict, classify
from pytest_rollout.plain import clean, clean_text, xml_text
from pytest_rollout.recording import result_of
from pytest_rollout.report.inert import inert_text
from pytest_rollout.report.properties import properties_of
from pytest_rollout.report.terminal import check_lines, sections, status_word
from pytest_rollout.run import Run
from pytest_rollout.store.journal import utc_now
from pytest_rollout.store.records import Result
from pytest_rollout.tries import next_number

__all__ = ["Judge"]

_UNREACHED: Any = type("Unreached", (pytest.fail.Exception, AssertionError), {})  # xfail(raises=AssertionError) fits


class Judge:
    """Judges the rollouts of one process, and records them."""

    def __init__(self, run: Run, signals: Signals) -> None:
        self._run, self._signals = run, signals

    # -- verdicts

    def classify(self, state: State, body: Body | None, infra: Infra | None = None) -> Verdict:
        """The core's verdict on what is known; its message may be cut where it is shown, so it has no secrets."""
        verdict = self._classified(state, body, infra)
        return replace(verdict, message=self._run.redactor.text(verdict.message))

    def _classified(self, state: State, body: Body | None, infra: Infra | None) -> Verdict:
        record = state.attempt.record if state.attempt is not None else None
        if infra is None and state.attempt is not None:
            infra = state.attempt.infra  # also where the body swallowed it
        if body is not None and body.end in ("error", "skipped"):
            body = replace(body, blame=blame(body, state.control))
        weights = state.control.weights
        if body is not None and body.end == "passed" and weights is not None:
            named = [replace(check, name=self._run.redactor.text(check.name)) for check in state.reward.checks]
            state.reward.held = hold(named, weights)  # facts are kept without secrets
            body = replace(body, recorded=True)  # what it left out counts
        termination = record.termination if record is not None else None
        task = state.task
        score = Score(checks_reward=state.reward.value, threshold=task.threshold, score_on=task.score_on)
        verdict = classify(infra=infra, termination=termination, body=body, score=score)
        why = unfit(state.control, verdict.reward) if verdict.outcome == "failed" and verdict.reward is not None else ""
        if why and state.trial is None:
            return classify(infra=Infra(kind="evaluator", message=why), termination=termination, body=body, score=score)
        return verdict

    def before_body(self, funcargs: dict[str, Any]) -> None:
        """Clean the names of JUnit attributes, which pytest writes as they are: a lone surrogate ends the session."""
        record, redactor = funcargs.get("record_xml_attribute"), self._run.redactor
        if record is not None:
            funcargs["record_xml_attribute"] = lambda name, value: record(
                xml_text(str(name)), redactor.text(value) if isinstance(value, str) else value
            )

    def after_body(self, state: State) -> None:
        """Where the body ended without an exception: fail the call when its verdict is not a pass."""
        verdict = self.classify(state, body_of(state, None))
        if verdict.outcome == "passed":
            return
        state.verdict = verdict
        state.told = _UNREACHED(self._explain(state, verdict), pytrace=False)
        raise state.told

    def judge(self, state: State, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
        """Judge a phase of a test, record the rollout, and make the report say so; an interrupt waits for that."""
        with self._signals.held():
            self._judge(state, call, report)

    def _judge(self, state: State, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
        error = call.excinfo.value if call.excinfo is not None else None
        if state.in_phase:  # a subtest's report, made while the test goes on
            if error is not None:
                state.subtests.append(error)
            return
        if call.when == "teardown":
            if state.trial is None:
                self._after_teardown(state, call, report)
                state.release()
            return
        if state.facts is not None or state.result is not None or (call.when == "setup" and report.passed):
            return
        verdict = self._verdict(state, call.when, error)
        if verdict is None:
            return
        state.verdict = verdict
        if state.trial is not None:
            facts = to_builtins(facts_of(state, verdict, error))
            state.facts = convert(self._run.redactor.value(facts), Facts)
        else:
            state.xfail = _xfail(report) if verdict.outcome != "infra" else None
            self._record(state)
            self._tell(state, report, error)
        if state.bundle is None:
            self.put_away(state)

    def _verdict(self, state: State, when: str, error: BaseException | None) -> Verdict | None:
        if state.told is not None and error is state.told:
            return state.verdict
        attempt = state.attempt
        if attempt is not None and attempt.infra is not None:
            return self.classify(state, None, attempt.infra)
        if isinstance(error, InfraError) and state.bundle is None:
            kind: Any = error.kind
            return self.classify(state, None, Infra(kind=kind, message=str(error), forgeable=error.forgeable))
        if when == "setup" and state.bundle is None:
            if isinstance(error, SKIPS):
                return None
            text = f"{type(error).__name__}: {clean(error)}" if error is not None else "no reason was given"
            return self.classify(state, None, Infra(kind="fixture", message=f"a fixture raised {text}"))
        leaves = raised(state, error)
        broken = next((e for e in leaves if isinstance(e, InfraError) and not getattr(e, "asked", False)), None)
        if broken is not None:
            its_kind: Any = broken.kind
            return self.classify(state, None, Infra(kind=its_kind, message=str(broken), forgeable=broken.forgeable))
        body = body_of(state, error)
        if body.end == "assertion" and not (body.looked or body.recorded) and is_async(state.item):
            message = "the test is async, and no plugin of pytest's runs it"
            return self.classify(state, None, Infra(kind="evaluator", message=message))
        return self.classify(state, body)

    def cancelled(self, state: State) -> None:
        """The session was interrupted while the agent ran: record that, since no report will come."""
        with self._signals.held():
            self._cancelled(state)

    def _cancelled(self, state: State) -> None:
        if state.trial is not None:
            self.put_away(state)
            return
        infra = Infra(kind="cancelled", message="the session was interrupted")
        if self._signals.received is not None and self._signals.of_worker:
            acted = state.attempt is not None and state.attempt.acted
            infra = Infra(kind="worker", message=f"the worker was {self._signals.why}", forgeable=acted)
        state.verdict = self.classify(state, None, infra)
        self._record(state)
        self.put_away(state)

    # -- records and reports

    def _record(self, state: State) -> None:
        assert state.verdict is not None
        try:
            state.result = self._write(state, state.verdict)
        except InfraError as error:
            kind: Any = error.kind
            forgeable = kind == "host" and state.attempt is not None and state.attempt.acted
            state.verdict = self.classify(state, None, Infra(kind=kind, message=str(error), forgeable=forgeable))
            state.result = self._unwritten(state, state.verdict)
            self._append(state.result)
        state.reward.judged = True
        for note in state.notes:
            self._warn(state, note)
        oracle = state.control.oracle
        if oracle is not None and not oracle.accepted:
            said = oracle.message.splitlines()[0] if oracle.message else oracle.end
            self._warn(state, f"the oracle does not pass these checks either: {said}")

    def _write(self, state: State, verdict: Verdict) -> Result:
        return self._run.record(
            task=state.task,
            sample=state.rollout.sample,
            node=state.item.nodeid,
            agent=state.agent_name,
            verdict=verdict,
            attempt=state.attempt,
            reward=state.reward,
            earlier=state.earlier,
            xfail=state.xfail,
        )

    def _unwritten(self, state: State, verdict: Verdict) -> Result:
        """A result whose records could not be written."""
        sample, attempt = state.rollout.sample, state.attempt
        earlier = state.earlier if attempt is None else attempt.earlier
        return result_of(
            state.task,
            rollout=rollout_id(self._run.name, state.task.id, sample),
            sample=sample,
            node=state.item.nodeid,
            agent=state.agent_name,
            verdict=verdict,
            attempt=next_number(earlier) if attempt is None else attempt.number,
            earlier=earlier,
        )

    def _tell(self, state: State, report: pytest.TestReport, error: BaseException | None) -> None:
        verdict, result = state.verdict, state.result
        assert verdict is not None and result is not None
        skipped = isinstance(error, SKIPS)
        if verdict.outcome == "infra" or skipped:  # a skip after the agent ran is never one of pytest's
            report.outcome = "failed"
            vars(report).pop("wasxfail", None)
        if state.told is not None and error is state.told and report.failed:
            report.longrepr = str(error)
        elif verdict.outcome == "infra" and not (
            verdict.kind in ("evaluator", "fixture") and report.longrepr and not skipped
        ):
            report.longrepr = f"infra {verdict.kind}: {verdict.message}"
        elif skipped:
            report.longrepr = verdict.message
        if report.outcome != "passed" or verdict.outcome != "passed":
            record = state.attempt.record if state.attempt is not None else None
            folder = state.attempt.folder if state.attempt is not None else self._run.folder.path
            checks = () if state.told is not None else state.reward.all_checks  # it has told them
            for title, text in sections(folder, record, checks):
                report.sections.append((f"rollout: {title}", text))
        if verdict.type == "check_crashed":
            report.sections.append(("rollout: check_crashed", inert_text(verdict.message)))
        record = state.attempt.record if state.attempt is not None else None
        properties = properties_of(result, record, state.reward, run=self._run.name, samples=state.task.samples)
        state.item.user_properties.extend(properties)
        report.user_properties = [*_clean_names(report.user_properties), *properties]
        report.rollout = clean(  # type: ignore[attr-defined]
            {
                "rollout": result.rollout,
                "outcome": verdict.outcome,
                "kind": verdict.kind,
                "reward": verdict.reward,
                "type": verdict.type,
                "message": verdict.message.split("\n")[0][:500],
                "properties": [list(pair) for pair in properties],
                "word": status_word(verdict.outcome, verdict.kind, verdict.reward),
            }
        )

    def _explain(self, state: State, verdict: Verdict) -> str:
        """What the failure of a body that ended says: the verdict, the checks, why each failed."""
        prefix = f"infra {verdict.kind}: " if verdict.outcome == "infra" else ""
        return "\n".join([f"{prefix}{verdict.message}", *check_lines(state.reward.all_checks)])

    def _after_teardown(self, state: State, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
        """A failure after scoring changes nothing but the record, which gets a warning."""
        report.user_properties = _clean_names(report.user_properties)
        if not report.failed or state.result is None or call.excinfo is None:
            return
        for leaf in leaves_of(call.excinfo.value):
            found = pytest.ExceptionInfo.from_exception(leaf)
            visible = [entry for entry in found.traceback if not entry.ishidden(found)]
            text = found.exconly().split("\n")[0]
            self._warn(state, f"the teardown failed: {place(state.item, (visible or found.traceback)[-1])}: {text}")
        report.outcome, report.longrepr = "passed", None

    def put_away(self, state: State) -> None:
        """Keep or drop the stage."""
        if state.attempt is not None:
            keep = state.trial is None and self._run.keeps(state.verdict)
            for warning in state.attempt.finish(keep=keep):
                self._warn(state, warning)

    def _warn(self, state: State, warning: str) -> None:
        if state.result is not None:
            self._append(replace(state.result, amends=True, warnings=(clean_text(warning),), time=utc_now()))

    def _append(self, result: Result) -> None:
        """Add a line to the results where that is possible; where not, the controller sees that it is missing."""
        try:
            self._run.append(result)
        except InfraError:
            pass


def _xfail(report: pytest.TestReport) -> str | None:
    """What pytest made of a mark ``xfail``: its reason, behind ``[XPASS(strict)]`` where that is a failure."""
    if hasattr(report, "wasxfail"):
        return str(report.wasxfail).removeprefix("reason: ")
    text = report.longrepr
    return text if isinstance(text, str) and text.startswith("[XPASS(strict)]") else None


def _clean_names(properties: list[tuple[str, object]]) -> list[tuple[str, object]]:
    """Names that XML takes, because pytest does not escape them, and values that have a text."""
    cleaned = [(xml_text(str(clean(name))), clean(value)) for name, value in properties]
    pairs = zip(properties, cleaned, strict=True)
    return [old if type(old[0]) is str and old[0] == new[0] and old[1] is new[1] else new for old, new in pairs]
