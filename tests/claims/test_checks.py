"""The checks themselves: every cited proof exists, verdicts follow the numbers, instances replay."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from bandits import zoo
from proofs._base import discover
from seeupo_theory import api
from seeupo_theory.claims.audit import certificate_folder
from seeupo_theory.claims.checks import c1_c3_gradients as gradients
from seeupo_theory.claims.checks import c2_c4_c7_normalisation as normalisation
from seeupo_theory.claims.checks import c5_c8_sharing as sharing
from seeupo_theory.claims.checks import c6_c9_orders as orders
from seeupo_theory.claims.checks import table1
from seeupo_theory.claims.checks._tools import Effort, describe, example, find_drop
from seeupo_theory.rules.presets import PRESETS
from seeupo_theory.tabular.ensembles import Ensemble


class Small(Effort):
    """Enough to exercise the code."""

    instances = 48
    runs = 4
    iterations = 40
    seeds = 4


SMALL = Small(quick=True)


def replay(tmp_path, shown, **extra):
    """Feed the instance of a row back through the API, from its files."""
    model = tmp_path / "model.json"
    model.write_text(json.dumps(shown["model"]))
    switches = {k: v for k, v in shown["switches"].items() if k != "param"}
    if shown["parameters"] is not None:
        path = tmp_path / "parameters.json"
        path.write_text(json.dumps(shown["parameters"]))
        features, theta = api.load_parameters(path)
        return api.step(
            model,
            param="log-linear",
            options={"features": features},
            theta=theta,
            **switches,
            **extra,
        )
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(shown["policy"]))
    return api.step(model, path, **switches, **extra)


def test_refuted_cells_show_their_drop_again_and_holds_rests_on_proofs(tmp_path):
    row = next(r for r in table1.ROWS if r.preset == "grpo")
    cells = table1.check(SMALL, row)
    assert len(cells) == 32 and len({c.id for c in cells}) == 32
    named = {c.id.split(".", 2)[2]: c for c in cells}
    assert named["ST.independent.finite.random.monotone"].verdict == "refuted"
    assert named["ST.independent.exact.random.monotone"].verdict == "holds"
    drops = [c for c in cells if c.verdict == "refuted" and c.id.endswith("monotone")]
    shown = {(c.instance["parameters"] is None, ".ST." in c.id): c for c in drops}
    assert len(shown) >= 2, "the search must find the known faults of group std"
    for cell in shown.values():
        result = replay(tmp_path, cell.instance)
        assert result.value_after < result.value_before - 1e-9
        assert result.value_before == pytest.approx(cell.instance["values"][0], abs=1e-9)
        assert result.value_after == pytest.approx(cell.instance["values"][-1], abs=1e-9)
    for cell in cells:
        assert set(cell.proofs) <= set(discover())
        if cell.verdict == "holds":
            assert cell.established in ("proof", "argument") and cell.proofs


def test_no_theorem_is_claimed_where_its_hypotheses_fail():
    for name, param, size, expected in (
        ("ppo-grae", "tabular", math.inf, True),
        ("ppo-grae", "tabular", 2, True),
        ("ppo-grae", "log-linear", math.inf, False),
        ("grpo", "tabular", 2, False),
        ("grpo", "tabular", math.inf, True),
        ("seeupo", "tabular", 2, False),
        ("seeupo-official", "tabular", math.inf, False),
        ("reinforce++", "tabular", math.inf, True),
        ("reinforce++", "tabular", 2, False),
        ("trajectory-ppo", "log-linear", math.inf, True),
        ("rloo", "log-linear", 2, True),
    ):
        theorem = table1._theorem(PRESETS[name], "MT", param, size)
        assert bool(theorem) is expected, (name, param, size)


def test_one_turn_may_share_its_weights_where_one_constant_scales_all_contexts():
    for name, size, expected in (
        ("ppo", math.inf, True),
        ("dr-grpo", 2, True),
        ("seeupo", math.inf, True),
        ("reinforce++", math.inf, True),
        ("seeupo", 2, False),
        ("grpo", math.inf, False),
        ("gspo", math.inf, False),
        ("seeupo-official", math.inf, False),
    ):
        theorem = table1._theorem(PRESETS[name], "ST", "log-linear", size)
        assert bool(theorem) is expected, (name, size)


def test_the_gradient_identity_survives_forbidden_actions():
    for baseline, factor in (("mean", 0.5), ("loo", 1.0)):
        found, error = gradients.gradient_factor(Effort(False), 2, baseline)
        assert found == pytest.approx(factor, abs=1e-12)
        assert error < gradients.IDENTITY_RTOL


@pytest.mark.parametrize("name", ["grpo", "seeupo-official"])
def test_rare_rewards_mislead_with_deterministic_rewards_too(name, tmp_path):
    size = {"grpo": 2, "seeupo-official": math.inf}[name]
    ensembles = [Ensemble((3,), contexts=2, atoms=2)]
    options = {"lrs": (0.5, 2.0), "reward": "deterministic", "group_size": size}
    assert find_drop(PRESETS[name], ensembles, 64, **options).found is None
    drop = find_drop(PRESETS[name], ensembles, 64, plant=table1._planted, **options)
    assert drop.found is not None and drop.found[2] < len(table1.THREE_ARMS)
    shown = describe("x", drop.found, {"algorithm": name, "group_size": size})
    result = replay(tmp_path, shown)
    assert result.value_after < result.value_before - 1e-9


def test_every_cited_certificate_exists():
    folder = certificate_folder()
    cited = {
        name
        for source in Path(table1.__file__).parent.glob("*.py")
        for name in re.findall(
            r'"((?:grpo|seeupo|group-std|aliased|dropped|stuck)-[a-z-]+)"', source.read_text()
        )
        if name not in PRESETS and name not in zoo.names() and name not in discover()
    }
    assert cited and all((folder / f"{name}.json").is_file() for name in cited), cited


def test_the_safe_step_of_reinforce_never_lowers_j():
    for param in ("tabular", "log-linear"):
        ensembles = [Ensemble((2, 2), atoms=2, param=param)]
        lr = table1._safe_lr(ensembles, 64, "random")
        drop = find_drop(PRESETS["rloo"], ensembles, 64, lrs=(lr,))
        assert drop.found is None and drop.excluded == 0


def test_a_drop_found_is_a_drop_of_the_instance_as_written(tmp_path):
    drop = find_drop(
        PRESETS["seeupo"], [Ensemble((2, 2), atoms=2, param="log-linear")], 256, lrs=(0.5,)
    )
    assert drop.found is not None
    ensemble, instances, i, lr = drop.found
    model, policy, parameters = example(ensemble, instances, i)
    shown = {"model": model, "policy": policy, "parameters": parameters, "switches": {}}
    result = replay(tmp_path, shown, algorithm="seeupo", lr=lr)
    assert [result.value_before, *result.per_turn] == pytest.approx(list(drop.values), abs=1e-12)


def test_lower_bound_slack_is_never_negative_without_std():
    drop = find_drop(
        PRESETS["seeupo"].replace(normalise="none"),
        [Ensemble((2, 2), atoms=2)],
        256,
        lrs=(0.1, 1.0),
        scale=1.0,
    )
    assert drop.found is None and drop.slack > -1e-12


def test_factor_matches_for_tables_and_not_for_three_shared_turns():
    assert sharing.factor_mismatch(0, 3, False) < 1e-12
    assert sharing.factor_mismatch(0, 2, True) < 1e-12
    assert sharing.factor_mismatch(0, 3, True) > 1e-4


def test_sweeps_by_order_are_those_of_backward_induction():
    greedy = PRESETS["haml-greedy"].replace(support="all")
    rewards = np.array([[0.0, 0.0, 2.0, 1.0], [0.5, 0.5, 0.0, 1.0]])
    reverse = orders.sweeps_needed(greedy, rewards, (2, 2), [(1, 0)], 4)
    forward = orders.sweeps_needed(greedy, rewards, (2, 2), [(0, 1)], 4)
    assert reverse.tolist() == [1, 1]
    assert forward.tolist() == [1, 1] or max(forward) <= 2


def test_reverse_order_leaves_no_tree_stuck():
    assert orders.stuck_trees(60, 3, "reverse") == 0
    assert orders.stuck_trees(60, 3, "forward") > 0
    assert orders.stuck_trees(60, 3, "forward", support="all") == 0


def test_c7_verdicts_follow_the_numbers():
    rows = {r.id: r for r in normalisation.check_c7(SMALL)}
    finite = rows["C7.batch-finite"].numbers["finite_batch"]
    assert finite[1] == pytest.approx(-0.0707107, abs=1e-6)
    assert rows["C7.batch-finite"].verdict == "refuted"
    assert rows["C7.batch-infinite"].verdict == "holds"
    assert rows["C7.group"].numbers["group_std"][3] == pytest.approx(-0.0892839, abs=1e-6)


def test_support_is_an_assumption_of_the_reverse_order():
    """With an action of probability 0 the reverse order is stuck too, and the row says so."""
    row = next(r for r in orders.check_c6(SMALL) if r.id == "C6.support")
    assert any("positive probability" in text for text in row.assumptions)
    model = zoo.get("stuck-tree").model
    policy = [[[1.0, 0.0]], [[0.5, 0.5], [0.9, 0.1]]]
    result = api.step(model, policy, algorithm="haml-greedy", support="reached", order="reverse")
    assert result.value_after == pytest.approx(0.5) and result.optimal_value == 1.0


def test_global_rows_name_what_was_run():
    row = next(r for r in table1.ROWS if r.preset == "rloo")
    cells = [c for c in table1.check(SMALL, row) if c.id.endswith("global")]
    assert all(any("rewards in" in text for text in c.assumptions) for c in cells)
