"""Instances as points of a space: padding changes nothing, and exact routes agree with floats."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings

from bandits.files import model_from_dict
from proofs._certificate import read_model, read_policy
from proofs._semantics import Play
from seeupo_theory.claims.falsify import _exact
from seeupo_theory.claims.falsify._coding import Coding
from seeupo_theory.claims.falsify._draw import draw
from seeupo_theory.claims.falsify._instance import Instance
from seeupo_theory.claims.falsify._readings import Setting, program
from seeupo_theory.claims.falsify._space import Space, embed, extract, stack, take, tight
from seeupo_theory.rules.presets import get
from tests.claims.test_falsify_shrink import instances

QUICK = settings(max_examples=25, deadline=None)
AGREEMENT = 1e-10
"""Two programs for the same numbers: another order of sums over a few dozen leaves."""

LARGE = {
    param: Space(
        contexts=1, actions=(3, 3, 3), atoms=2, symbols=6, param=param, rows=3, dimension=3
    )
    for param in ("tabular", "shared", "log-linear")
}


F = Fraction
LEAVES = (((F(0), F(1)),), ((F(1), F(1, 3)), (F(2), F(2, 3))), ((F(1), F(1)),), ((F(-1), F(1)),))
ROWS = ((F(1, 4), F(3, 4)), (F(2, 3), F(1, 3)), (F(1, 2), F(1, 2)))
ITEMS = [
    Instance((F(1),), (2, 2), LEAVES, "tabular", F(1), (ROWS[:1], ROWS[1:])),
    Instance((F(1),), (2, 2), LEAVES, "shared", F(1), (ROWS[:2],), ((0,), (1, 0))),
    Instance(
        (F(1),), (2, 2), LEAVES, "log-linear", F(1),
        features=((((F(1), F(0)), (F(0), F(1))),), (((F(2), F(0)), (F(1), F(1))), ((F(0), F(-1)), (F(1), F(0))))),
        theta=(F(1, 2), F(-1)),
    ),
]  # fmt: skip
TABULAR, SHARED, LINEAR = ITEMS
PADDED = [  # the points of LINEAR violate their claims
    (TABULAR, "monotone", get("seeupo").replace(epochs=2), 3.0, "iteration"),
    (SHARED, "monotone", get("trajectory-ppo").replace(epochs=2), 2.0, "iteration"),
    (LINEAR, "monotone", get("seeupo-official"), 2.0, "update"),
    (LINEAR, "sign", get("grpo"), 2.0, ""),
]


@pytest.mark.parametrize(
    ("item", "prop", "algorithm", "size", "scope"),
    PADDED,
    ids=[f"{prop}-{rule.name}-{item.param}" for item, prop, rule, _, _ in PADDED],
)
def test_padding_changes_no_reading(item, prop, algorithm, size, scope):
    setting = Setting(prop, algorithm, size, float("inf"), scope)
    small = program(setting, tight(item))(stack([embed(tight(item), item)]))
    large = program(setting, LARGE[item.param])(stack([embed(LARGE[item.param], item)]))
    assert small.effect == pytest.approx(large.effect, abs=AGREEMENT)
    assert small.fails == large.fails and small.overshoot == large.overshoot
    assert small.fails[0] or item is not LINEAR
    assert small.factor == pytest.approx(large.factor, abs=AGREEMENT, nan_ok=True)
    if small.fails[0] and prop == "sign":
        assert small.place[0][0] + 1 == large.place[0][0]  # one trivial turn in front


@QUICK
@given(instances())
def test_embedding_then_extracting_gives_the_instance_back(item):
    space = Space(item.contexts, item.actions, item.atoms, 16, item.param, 2, 2)
    again = extract(space, stack([embed(space, item)]), 0)
    assert again.leaves == tuple(tuple(sorted(leaf)) for leaf in item.leaves)
    for name in ("context_probs", "actions", "lr", "observation", "features", "theta", "probs"):
        assert getattr(again, name) == getattr(item, name)


@QUICK
@given(instances())
def test_files_and_certificates_state_the_same_model(item):
    tables = item.tables()
    value = item.value(tables)
    model = read_model(item.certificate_model())
    policy = read_policy(item.certificate_policy(), model)
    exact = Play(model, policy, policy.table(policy.theta, 128)).value()
    if isinstance(exact, Fraction):
        assert float(exact) == pytest.approx(float(value), abs=1e-12)
        assert item.param == "log-linear" or exact == value
    else:
        assert exact.lo / 2**exact.bits == pytest.approx(float(value), abs=1e-12)
    loaded = model_from_dict(item.model_json())
    assert loaded == item.model()
    graph = loaded.graph()
    assert [layer.observations for layer in graph.layers] == [len(t) for t in item.policy_tables()]


@pytest.mark.parametrize("param", LARGE)
def test_coding_is_undone(param):
    space = Space(2, (2, 2), 2, 5, param, 2, 2)
    points = draw(np.random.default_rng(0), space, 16, grid=False)
    coding = Coding(space, take(points, 0), None)
    back = coding.encode(coding.decode(coding.encode(points)))
    shift = coding.encode(points) - back  # logits are defined up to a constant a row
    assert np.abs(coding.encode(coding.decode(back)) - back).max() < 1e-6
    assert np.isfinite(shift).all() and coding.decode(back).values.shape == (16, 2, 5)
    assert len(coding.bounds) == back.shape[1]


@pytest.mark.parametrize("grid", [True, False])
@pytest.mark.parametrize("param", LARGE)
def test_draws_are_valid_and_deterministic(param, grid):
    space = LARGE[param]
    one, two = (draw(np.random.default_rng(7), space, 64, grid=grid) for _ in range(2))
    for a, b in zip(one, two, strict=True):
        assert (
            all(
                np.array_equal(x, y)
                for x, y in zip(np.atleast_1d(a), np.atleast_1d(b), strict=True)
            )
            if not isinstance(a, tuple)
            else True
        )
    assert one.atom_probs.sum(axis=-1) == pytest.approx(np.ones((64, space.leaves)))
    assert one.context_probs.sum(axis=-1) == pytest.approx(np.ones(64))
    assert (one.lr > 0).all() and (one.index < space.symbols).all()
    if param != "log-linear":
        tables = one.theta if param == "tabular" else [one.theta]
        assert all(np.exp(t).min() >= 1e-3 - 1e-12 for t in tables)
        assert all(np.exp(t).sum(axis=-1) == pytest.approx(np.ones(t.shape[:-1])) for t in tables)


def test_an_overshoot_of_floats_is_one_of_exact_arithmetic():
    """Where the float reading says that a row's surrogate fell, so do intervals, and vice versa."""
    space = Space(1, (2, 2), 2, 8, "tabular")
    setting = Setting("monotone", get("seeupo").replace(epochs=3), 2.0, float("inf"), "iteration")
    points = draw(np.random.default_rng(0), space, 512, grid=True, lr=50.0)
    reading = program(setting, space)(points)
    over, fine = np.flatnonzero(reading.overshoot), np.flatnonzero(reading.effect < -1e-3)
    assert len(over) >= 3
    for i in over[:3]:
        assert _exact.surrogates_rise(setting, extract(space, points, int(i))) is False
    rises = [_exact.surrogates_rise(setting, extract(space, points, int(i))) for i in fine[:5]]
    assert True in rises


def test_a_better_policy_is_the_optimum_where_tabular():
    better = _exact.better_policy(tight(ITEMS[0]), ITEMS[0])
    assert better.value(better.tables()) == Fraction(5, 3)


@pytest.mark.parametrize(
    ("switches", "reason"),
    [
        ({"estimator": "gae"}, "GAE"),
        ({"guard": True}, "guard=True"),
        ({"kl_coef": 0.1}, "kl_coef=0.1"),
        ({"dual_clip": 3.0}, "dual_clip=3.0"),
        ({"resample": True}, "resample=True"),
        ({"epochs": 101}, "more than 100 epochs"),
        ({"estimator": lambda returns: returns}, "user's own"),
    ],
)
def test_what_has_no_certificate_says_why(switches, reason):
    setting = Setting("monotone", get("seeupo").replace(**switches), 2.0, float("inf"), "iteration")
    assert any(reason in text for text in _exact.obstacles(setting))
    with pytest.raises(_exact.NotCertified, match=reason.split("=")[0]):
        _exact.certify(setting, tight(ITEMS[0]), ITEMS[0])
