r"""The instances behind the stored certificates: ``python -m proofs.instances`` writes them anew.

Each function returns one certificate, computed by ``proofs/certify.py`` from a model, a policy and
an algorithm in small fractions. The stored files are what these functions return, which a test
checks; to read or re-check a file nothing of this module is needed.

* *GRPO, one turn.* A sure 1/2 against 3/2 with probability 2/5: the sure arm is worse, and the
  group's standard deviation prefers it.
* *GRPO, two turns, deterministic rewards.* A sure 1 against a second turn that pays 20 with
  probability 1/10: the history makes the same gamble.
* *SeeUPO, shared parameters.* Two turns share one logit, r(a_1, a_2) = (0, 2; 0, 1): the second
  turn wants the second action, which costs the first turn more than its own update can see.
* *SeeUPO leaves an optimum.* r = (0, 1; 2, 0) with one shared row: at (1/2, 1/2) the policy is the
  best of its class, the two turns' gradients cancel, and updating one after the other moves it.
* *Official clamp.* A sure 1 against 30 with probability 1/20: three standard deviations are less
  than what the rare success is worth.
* *Stuck tree, aliased coordination, dropped discount*: fixed points that are not optimal.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proofs.certify import certify, certify_step, estimator_switches, fractions_of, switches

FOLDER = Path(__file__).parent / "certificates"
HALF = ["1/2", "1/2"]


def bandit(rewards: Any, context_probs: Any = (1,)) -> dict[str, Any]:
    """The JSON of a bandit."""
    probs = fractions_of(list(context_probs))
    return {"kind": "bandit", "context_probs": probs, "rewards": fractions_of(rewards)}


def tabular(*turns: Any) -> dict[str, Any]:
    """The JSON of independent tables [turn][history][action]."""
    return {"parametrisation": "tabular", "probs": fractions_of(list(turns))}


def shared(observation: list[list[int]], probs: Any) -> dict[str, Any]:
    """The JSON of one table behind an observation map."""
    return {
        "parametrisation": "shared",
        "observation": observation,
        "probs": fractions_of(probs),
    }


RISKY = {"values": [0, "3/2"], "probs": ["3/5", "2/5"]}
ONE_TURN = bandit([["1/2", RISKY]])
LONG_SHOT = bandit([[[1, 1], [20, 0]]])
LONG_SHOT_POLICY = tabular([["3/4", "1/4"]], [HALF, ["1/10", "9/10"]])
ONE_LOGIT = {
    "parametrisation": "log-linear",
    "theta": ["0"],
    "features": [[[["1"], ["0"]]], [[["1"], ["0"]], [["1"], ["0"]]]],
}
CROSSED = bandit([[[0, 1], [2, 0]]])
ONE_ROW = shared([[0], [0, 0]], [HALF])
OFFICIAL = {
    "normalise": "batch",
    "group_size": 8,
    "advantage_clip": "3",
    "level": "length-normalised",
    "order": "reverse",
    "reference": "current",
    "factor_clip": "1/5",
    "product_clip": "1/5",
}
TWO_CONTEXTS = bandit([[1, 0], [0, 2]], ["3/5", "2/5"])
ONE_LOGIT_TWO_CONTEXTS = shared([[0, 0]], [HALF])
# Start, second state, end; the first action pays 3 and leads on, then costs 4.
DELAYED = {
    "kind": "mdp",
    "horizon": 2,
    "discount": "1/2",
    "initial": ["1", "0", "0"],
    "transitions": fractions_of([[[0, 1, 0], [0, 0, 1]], [[0, 0, 1]] * 2, [[0, 0, 1]] * 2]),
    "rewards": fractions_of([[3, 0], [-4, 0], [0, 0]]),
}
DROPPED = {"estimator": "exact", "baseline": "none", "discounting": "dropped"}


def blind(probs: list[str]) -> dict[str, Any]:
    """One row for all states and turns of `DELAYED`."""
    return shared([[0, 0, 0], [0, 0, 0]], [probs])


def grpo_wrong_sign() -> dict[str, Any]:
    return certify(
        "expected-advantage-wrong-sign",
        ONE_TURN,
        tabular([HALF]),
        estimator_switches(normalise="group", group_size=2),
        {"turn": 0, "node": 0, "action": 0},
        statement="In one turn with a random reward the group's standard deviation gives the worse "
        "arm the positive expected advantage",
    )


def grpo_one_turn() -> dict[str, Any]:
    return certify_step(
        ONE_TURN,
        tabular([HALF]),
        switches(normalise="group", group_size=2, level="token", epochs=20),
        statement="One GRPO iteration lowers J: one turn, random reward",
    )


def grpo_two_turns() -> dict[str, Any]:
    return certify_step(
        LONG_SHOT,
        LONG_SHOT_POLICY,
        switches(normalise="group", group_size=2, level="token"),
        statement="One GRPO iteration lowers J: two turns, deterministic rewards",
    )


def grpo_two_turns_large_group() -> dict[str, Any]:
    return certify_step(
        LONG_SHOT,
        LONG_SHOT_POLICY,
        switches(normalise="group", group_size=8, level="token"),
        statement="One GRPO iteration lowers J: two turns, deterministic rewards, eight members",
    )


def seeupo_shared() -> dict[str, Any]:
    return certify_step(
        bandit([[[0, 2], [0, 1]]]),
        ONE_LOGIT,
        switches(order="reverse", epochs=20),
        statement="One SeeUPO iteration by Eq. 6-9 lowers J when its turns share one logit, "
        "although each turn raises its own objective",
    )


def seeupo_shared_batch() -> dict[str, Any]:
    return certify_step(
        bandit([[[0, 2], [0, 1]]]),
        ONE_LOGIT,
        switches(order="reverse", epochs=20, normalise="batch", group_size=8),
        statement="The same with batch normalisation and a group of eight",
    )


def seeupo_leaves_optimum() -> dict[str, Any]:
    return certify_step(
        CROSSED,
        ONE_ROW,
        switches(order="reverse"),
        statement="One SeeUPO iteration by Eq. 6-9 leaves the best policy of a shared table",
    )


def official_shared() -> dict[str, Any]:
    return certify_step(
        CROSSED,
        ONE_ROW,
        switches(**OFFICIAL, lr="3/2"),
        statement="One iteration of the official variant of SeeUPO, with clamped factors, lowers J "
        "when its turns share one row, although each turn raises its own objective",
    )


def official_clamp() -> dict[str, Any]:
    return certify(
        "expected-advantage-wrong-sign",
        bandit([[1, {"values": [30, 0], "probs": ["1/20", "19/20"]}]]),
        tabular([HALF]),
        estimator_switches(normalise="batch", group_size=8, advantage_clip="3"),
        {"turn": 0, "node": 0, "action": 0},
        statement="Clamping batch-normalised advantages to three standard deviations gives the "
        "worse arm the positive expected advantage",
    )


def stuck_tree() -> dict[str, Any]:
    rest = [HALF, ["9/10", "1/10"]]
    return certify(
        "stuck-sweep",
        bandit([[["1/2", "1/2"], [0, 1]]]),
        tabular([HALF], rest),
        {"update": "argmax", "order": "forward"},
        {"policy": tabular([[0, 1]], [HALF, [0, 1]])},
        statement="Greedy steps on reached histories, the first turn first, never see the better "
        "branch again",
    )


def aliased_coordination() -> dict[str, Any]:
    return certify(
        "suboptimal-fixed-point",
        bandit([[[0, 2], [1, 0]]]),
        shared([[0], [1, 1]], [[0, 1], [1, 0]]),
        {**estimator_switches(estimator="exact", baseline="none"), "update": "argmax"},
        {"policy": shared([[0], [1, 1]], [[1, 0], [0, 1]])},
        statement="Where the second turn does not see the first, each turn is its own best reply at "
        "half the optimal value",
    )


def aliased_saddle() -> dict[str, Any]:
    return certify(
        "suboptimal-fixed-point",
        bandit([[[0, 1], [1, 0]]]),
        shared([[0], [1, 1]], [HALF, HALF]),
        {**estimator_switches(group_size=4), "update": "gradient"},
        {"policy": shared([[0], [1, 1]], [["1/4", "3/4"], ["3/4", "1/4"]])},
        statement="At the uniform policy of the aliased XOR game the expected gradient is zero",
    )


def group_std_population() -> dict[str, Any]:
    return certify(
        "biased-estimator",
        TWO_CONTEXTS,
        ONE_LOGIT_TWO_CONTEXTS,
        estimator_switches(normalise="group", ddof=0, std_eps="0"),
        statement="One logit serves two contexts: the population's standard deviation turns the "
        "gradient around",
    )


def group_std_sampled() -> dict[str, Any]:
    return certify(
        "biased-estimator",
        TWO_CONTEXTS,
        ONE_LOGIT_TWO_CONTEXTS,
        estimator_switches(normalise="group", group_size=8, std_eps="0"),
        statement="One logit serves two contexts: the standard deviation of a group of eight turns "
        "the gradient around",
    )


def dropped_discount_bias() -> dict[str, Any]:
    return certify(
        "biased-estimator",
        DELAYED,
        blind(["3/5", "2/5"]),
        estimator_switches(**DROPPED),
        statement="The gradient without the discount points away from the gradient of J",
    )


def dropped_discount_rest() -> dict[str, Any]:
    return certify(
        "suboptimal-fixed-point",
        DELAYED,
        blind(HALF),
        {**estimator_switches(**DROPPED), "update": "gradient"},
        {"policy": blind(["3/4", "1/4"])},
        statement="The gradient without the discount rests at a policy that is not the best",
    )


INSTANCES: dict[str, Callable[[], dict[str, Any]]] = {
    "grpo-wrong-sign-one-turn": grpo_wrong_sign,
    "grpo-step-one-turn": grpo_one_turn,
    "grpo-step-two-turns": grpo_two_turns,
    "grpo-step-two-turns-group-of-eight": grpo_two_turns_large_group,
    "seeupo-step-shared-logit": seeupo_shared,
    "seeupo-step-shared-logit-batch": seeupo_shared_batch,
    "seeupo-step-leaves-optimum": seeupo_leaves_optimum,
    "seeupo-official-step-shared-row": official_shared,
    "seeupo-official-clamp-wrong-sign": official_clamp,
    "stuck-tree-forward": stuck_tree,
    "aliased-coordination": aliased_coordination,
    "aliased-xor-saddle": aliased_saddle,
    "group-std-shared-logit": group_std_population,
    "group-std-shared-logit-group-of-eight": group_std_sampled,
    "dropped-discount-gradient": dropped_discount_bias,
    "dropped-discount-fixed-point": dropped_discount_rest,
}


def text_of(certificate: dict[str, Any]) -> str:
    """The text of a certificate file."""
    return json.dumps(certificate, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write every certificate of `INSTANCES` into the folder."""
    FOLDER.mkdir(exist_ok=True)
    for name, make in INSTANCES.items():
        (FOLDER / f"{name}.json").write_text(text_of(make()), encoding="utf-8")


if __name__ == "__main__":
    main()
