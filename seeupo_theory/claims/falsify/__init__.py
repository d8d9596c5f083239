r"""Search counterexamples to a claim about an algorithm, simplify them, certify them.

Four properties can be attacked (`PROPERTIES`), for a preset or for a user's own estimator or
objective ("module:function"):

* ``monotone``: an iteration lowers J although every row's surrogate rises;
* ``sign``: :math:`E[\hat A \mid h, a]` has the opposite sign of the true advantage;
* ``unbiased``: the expected gradient is no positive multiple of :math:`\nabla J`;
* ``global-optimum``: the algorithm rests, or keeps falling, where a better policy exists.

`falsify` tries random problems by the thousand, then climbs the violation's margin with differential
evolution, shrinks what it finds (fewer turns, actions, contexts, atoms, members and epochs; numbers
become small fractions) and hands the result to exact arithmetic.  The status of a result is

* ``certified``: the violation is a theorem about the printed instance, and `certificate` is checked
  by ``seeupo verify``;
* ``numerical``: it stands in double precision only; `note` says why no certificate exists;
* ``not found``: so many instances were tried.  That is no proof of the claim.

A step so long that it lowers its own surrogate is an *overshoot*: it is counted apart, since no
improvement theorem speaks of it.

The search is deterministic given the seed; the budget decides only where it ends.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from seeupo_theory.claims.falsify._plan import REWARDS, settings
from seeupo_theory.claims.falsify._protocol import check
from seeupo_theory.claims.falsify._readings import PROPERTIES
from seeupo_theory.claims.falsify._record import Finding, Progress
from seeupo_theory.claims.falsify._search import Search
from seeupo_theory.claims.falsify._show import describe, note
from seeupo_theory.rules import presets
from seeupo_theory.rules.presets import Algorithm

__all__ = ["PROPERTIES", "REWARDS", "Falsification", "Progress", "falsify"]


@dataclass(frozen=True)
class Falsification:
    """Result of a search.

    Attributes:
        algorithm, property: what was attacked.
        found: whether a violation was found.
        status: "certified", "numerical" or "not found".
        statement: the violation in one sentence, "" if none was found.
        effect: its size relative to the spread of rewards (for "unbiased", 1 − cos of the angle).
        worst: largest effect seen in the whole search, overshoots left out; ≤ 0 (or rounding) where
            nothing was found.
        searched: counts: "instances" (random), "optimiser" and "shrink" evaluations, "violations",
            "overshoots", "seconds" a phase, and the settings that were cycled through.
        instance: model, policy, switches and numbers of the violation, the command line and the
            Python code that show it; None if none was found.
        certificate: for `seeupo verify`, or None.
        note: what the status rests on, in words.
    """

    algorithm: str
    property: str
    found: bool
    status: str
    statement: str
    effect: float
    worst: float
    searched: dict[str, Any]
    instance: dict[str, Any] | None
    certificate: dict[str, Any] | None
    note: str

    def to_dict(self) -> dict[str, Any]:
        """The fields as one JSON-ready dictionary."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}

    def save(self, folder: str | Path) -> list[Path]:
        """Write ``model.json``, ``policy.json`` and ``certificate.json`` (what there is of them)."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        parts = {"certificate": self.certificate}
        if self.instance is not None:
            parts |= {"model": self.instance["model"], "policy": self.instance["policy"]}
        out = []
        for name, content in parts.items():
            if content is not None:
                path = target / f"{name}.json"
                path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", "utf-8")
                out.append(path)
        return sorted(out)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def falsify(
    algorithm: str | Algorithm,
    property: str = "monotone",
    *,
    turns: int = 2,
    actions: int | Sequence[int] = 3,
    contexts: int = 1,
    param: str = "tabular",
    group_size: float | None = None,
    contexts_per_batch: float | None = None,
    reward: str = "random",
    budget: float = 60.0,
    seed: int = 0,
    instances: int | None = None,
    keep_turns: bool = False,
    progress: Callable[[Progress], None] | None = None,
    **switches: Any,
) -> Falsification:
    """Search a counterexample to a property of an algorithm.

    Args:
        algorithm: a preset, "module:function" (an estimator or an objective), or an `Algorithm`.
        property: one of `PROPERTIES`.
        turns, actions, contexts: largest shape searched; `actions` a number or one a turn.
        param: "tabular", "shared" (one table read through random observation maps) or "log-linear".
        group_size: G or inf; None tries 2, 4 and inf.
        contexts_per_batch: B or inf (the default), for batch statistics.
        reward: "random" (two atoms a leaf) or "deterministic".
        budget: seconds; the search ends within the work under way.
        seed: what is tried.
        instances: end the random phase after so many instances, and the optimiser after as many.
        keep_turns: do not shrink to fewer turns (what is found in one turn may have another cause).
        progress: called with the state of the search now and then.
        switches: fields of the algorithm to set (lr, epochs, clip, …); what is given is not varied.

    Raises:
        ValueError: an unknown name, sizes out of range, a combination without meaning, or an
            estimator that does not fit the protocol.

    >>> result = falsify("grpo", turns=1, actions=2, seed=0, budget=30)
    >>> result.status, result.instance["switches"]["group_size"]
    ('certified', 2)
    """
    chosen = presets.get(algorithm).replace(**switches)
    check(chosen)
    if not (isinstance(budget, (int, float)) and 0 < budget < math.inf):
        raise ValueError(f"budget is {budget!r}; expected a positive number of seconds")
    if instances is not None and (isinstance(instances, bool) or instances < 1):
        raise ValueError(f"instances is {instances!r}; expected a whole number of at least 1")
    plan = settings(
        chosen,
        property,
        turns=turns,
        actions=actions,
        contexts=contexts,
        param=param,
        reward=reward,
        group_size=group_size,
        contexts_per_batch=contexts_per_batch,
        fixed=frozenset(switches),
    )
    search = Search(
        plan,
        seed=seed,
        budget=float(budget),
        lr=float(chosen.lr) if "lr" in switches else None,
        fixed=frozenset(switches) & {"lr", "epochs"} | ({"turns"} if keep_turns else set()),
        instances=instances,
        progress=progress,
    )
    return _result(algorithm, chosen, property, search, search.run())


def _result(
    asked: str | Algorithm,
    algorithm: Algorithm,
    prop: str,
    search: Search,
    finding: Finding | None,
) -> Falsification:
    c = search.count
    searched = {
        "instances": c.instances,
        "optimiser": c.optimiser,
        "optimiser_runs": c.optimiser_runs,
        "shrink": c.shrink,
        "evaluations": c.instances + c.optimiser + c.shrink,
        "violations": c.violations,
        "overshoots": c.overshoots,
        "discarded": c.discarded,
        "not_finite": c.not_finite,
        "certificates_tried": c.certify,
        "settings": [
            {
                "scope": s.scope,
                "group_size": s.group_size,
                "contexts_per_batch": s.contexts_per_batch,
                "epochs": s.algorithm.epochs,
                "order": s.algorithm.order,
                "contexts": space.contexts,
                "actions": list(space.actions),
                "distinct_rewards": space.symbols,
                "param": space.param,
            }
            for s, space in search.settings
        ],
        "seconds": {**c.seconds, "total": search.elapsed()},
    }
    status = "not found"
    if finding is not None:
        status = "certified" if finding.certificate is not None else "numerical"
    shown = None if finding is None else describe(finding, asked)
    return Falsification(
        algorithm=algorithm.name,
        property=prop,
        found=finding is not None,
        status=status,
        statement="" if shown is None else shown.pop("statement"),
        effect=0.0 if finding is None else finding.effect,
        worst=c.worst,
        searched=searched,
        instance=shown,
        certificate=None if finding is None else finding.certificate,
        note=note(prop, search, finding),
    )
