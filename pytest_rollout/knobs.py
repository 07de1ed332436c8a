"""The names of every setting (its option, its ini key, its help), and the mark of a folder of results.

Read by the plugin in every pytest session, so this module imports next to nothing.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["KNOBS", "TAG", "TAG_FILE", "Knob"]

TAG = "This file marks a folder of results of pytest-rollout"
TAG_FILE = f"Signature: 8a477f597d28d172789f06886806bc55\n# {TAG}; see https://bford.info/cachedir/\n"


class Knob(NamedTuple):
    """One setting: the ini key is ``rollout_<name>``; ``option`` is None where there is only that.

    A ``flag`` is an option without a value, and no ini key; one of ``one_session`` has a value, and no ini key.
    """

    name: str
    help: str
    option: str | None = None
    metavar: str | None = None
    repeated: bool = False
    flag: bool = False
    one_session: bool = False

    @property
    def ini(self) -> bool:
        """Whether there is an ini key."""
        return not (self.flag or self.one_session)


KNOBS = (
    Knob("agent", "agent to run: a name in rollout.toml, 'noop', or a shell command", "--rollout-agent", "AGENT"),
    Knob("pin", "pin recorded with every result (repeatable)", "--rollout-pin", "KEY=VALUE", repeated=True),
    Knob("samples", "independent samples of every task", "--rollout-samples", "N"),
    Knob("executor", "where agents run: sandbox (default) or local", "--rollout-executor", "NAME"),
    Knob("isolation", "required (default), preferred or none", "--rollout-isolation", "LEVEL"),
    Knob("rung", "the one rung of isolation to try, 1 to 5 (default: the best that holds)", "--rollout-rung", "N"),
    Knob("keep", "stages to keep: failed (default; includes infra), all, none", "--rollout-keep", "WHICH"),
    Knob(
        "retries",
        "attempts after an infrastructure failure: a number, or by kind: stage=3, agent=1 (default: 1 or 0, by kind)",
        "--rollout-retries",
        "N",
    ),
    Knob(
        "retry_forgeable",
        "try also again what the candidate could have brought about itself",
        "--rollout-retry-forgeable",
        flag=True,
    ),
    Knob(
        "max_infra",
        "end the run after so many rollouts in a row with the same infrastructure failure (default: 10; 0: never)",
        "--rollout-max-infra",
        "N",
    ),
    Knob(
        "preflight",
        "before the first rollout: try a stage, doing nothing, and the preflight command of each agent",
        "--rollout-preflight",
        flag=True,
    ),
    Knob(
        "audit",
        "run no agent: try each task's checks on its oracle, on doing nothing and on forged work",
        "--rollout-audit",
        flag=True,
    ),
    Knob(
        "rescore",
        "run no agent: score the stored bundles of a run again (its name, a prefix, 'last', or its folder)",
        "--rollout-rescore",
        "RUN",
        one_session=True,
    ),
    Knob("audit_repeats", "how often an audit scores each oracle (default: 3)"),
    Knob(
        "controls",
        "auto (default): run new checks once on the oracle and on doing nothing; or none",
        "--rollout-controls",
        "WHICH",
    ),
    Knob(
        "github",
        "auto (default): on GitHub Actions write a step summary and annotations; or none",
        "--rollout-github",
        "WHICH",
    ),
    Knob(
        "resume",
        "go on with a run: make the rollouts that it has not measured",
        "--rollout-resume",
        "RUN",
        one_session=True,
    ),
    Knob(
        "resume_changed",
        "resume although this pin changed (repeatable; or all)",
        "--rollout-resume-changed",
        "PIN",
        repeated=True,
        one_session=True,
    ),
    Knob("shard", "run one of N parts of the suite: 3/8", "--rollout-shard", "K/N", one_session=True),
    Knob("dir", "folder of the results (default: .rollout in the root folder)", "--rollout-dir", "DIR"),
    Knob("stage_root", "private folder for stages and baselines (default: below /var/tmp)"),
    Knob("config", "file of the named agents (default: rollout.toml beside the ini file)"),
    Knob(
        "slots",
        "how many agents run at once on this machine, over all workers and sessions (default: no limit)",
        "--rollout-slots",
        "N",
    ),
    Knob("pools", "places that tasks share by name, one a line: gpu = 2", repeated=True),
    Knob(
        "gate",
        "what a run has to reach, as 'mean_reward >= 0.8' (repeatable); decides the exit status",
        "--rollout-gate",
        "EXPR",
        repeated=True,
    ),
    Knob(
        "gate_untrusted",
        "let gates count results of agents that were not isolated as their tasks ask",
        "--rollout-gate-untrusted",
        flag=True,
    ),
    Knob("redact", "variables whose values are secrets whatever their names", repeated=True),
    Knob("keep_runs", "how many runs are kept in the folder of the results (default: 50)"),
)
