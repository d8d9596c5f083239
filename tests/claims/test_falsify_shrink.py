"""Shrinking: every edit is valid and simpler, and the end is a violation that no edit simplifies."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seeupo_theory.claims.falsify._instance import PARAMS, Instance
from seeupo_theory.claims.falsify._shrink import cost, edits, figures, length, shrink
from seeupo_theory.claims.falsify._space import simplex

QUICK = settings(max_examples=25, deadline=None)

numbers = st.fractions(-3, 3, max_denominator=12)


@st.composite
def rows(draw, width):
    weights = draw(st.lists(st.integers(1, 9), min_size=width, max_size=width))
    return tuple(Fraction(w, sum(weights)) for w in weights)


@st.composite
def leaf(draw):
    values = draw(st.lists(numbers, min_size=1, max_size=2, unique=True))
    return tuple(zip(sorted(values), draw(rows(len(values))), strict=True))


@st.composite
def instances(draw, params=PARAMS):
    param = draw(st.sampled_from(params))
    contexts, turns = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    if param == "shared":
        actions = (draw(st.integers(2, 3)),) * turns
    else:
        actions = tuple(draw(st.integers(2, 3)) for _ in range(turns))
    histories = [contexts, contexts * actions[0]][:turns]
    count = histories[-1] * actions[-1]
    shape = {}
    if param == "tabular":
        shape["probs"] = tuple(
            tuple(draw(rows(a)) for _ in range(h)) for h, a in zip(histories, actions, strict=True)
        )
    elif param == "shared":
        shape["probs"] = (tuple(draw(rows(actions[0])) for _ in range(2)),)
        shape["observation"] = tuple(
            tuple(draw(st.integers(0, 1)) for _ in range(h)) for h in histories
        )
    else:
        shape["features"] = tuple(
            tuple(tuple((draw(numbers), draw(numbers)) for _ in range(a)) for _ in range(h))
            for h, a in zip(histories, actions, strict=True)
        )
        shape["theta"] = (draw(numbers), draw(numbers))
    return Instance(
        draw(rows(contexts)),
        actions,
        tuple(draw(leaf()) for _ in range(count)),
        param,
        draw(st.fractions("1/20", 5, max_denominator=20)),
        **shape,
    )


def check_valid(item):
    """What any instance must satisfy."""
    assert sum(item.context_probs) == 1 and min(item.context_probs) > 0
    assert len(item.leaves) == item.histories[-1] * item.actions[-1]
    assert item.lr > 0 and min(item.actions) >= 2
    for atoms in item.leaves:
        assert sum(p for _, p in atoms) == 1 and min(p for _, p in atoms) > 0
        assert len({v for v, _ in atoms}) == len(atoms)
    for table in item.probs:
        for row in table:
            assert sum(row) == 1 and min(row) > 0
    assert [len(t) for t in item.tables()] == list(item.histories)
    for table, width in zip(item.tables(), item.actions, strict=True):
        assert all(len(row) == width for row in table)
    for turn in item.features:
        assert {len(phi) for row in turn for phi in row} == {len(item.theta)}
    item.model().graph()  # the model accepts it


@settings(QUICK, max_examples=8)
@given(instances())
def test_edits_are_valid_simpler_and_distinct(item):
    check_valid(item)
    found = edits(item)
    assert len(set(found)) == len(found)
    assert [cost(x) for x in found] == sorted(cost(x) for x in found)
    assert all(cost(other) < cost(item) for other in found)
    for other in found[:: 1 + len(found) // 100]:
        check_valid(other)


def spread_is_kept(several):
    """A stand-in for a violation: two rewards at least 1/2 apart that can both happen."""
    return [x.values()[-1] - x.values()[0] >= Fraction(1, 2) for x in several]


@QUICK
@given(instances())
def test_the_end_still_fails_and_cannot_be_simplified(item):
    if not spread_is_kept([item])[0]:
        return
    end = shrink(item, spread_is_kept)
    check_valid(end)
    assert spread_is_kept([end]) == [True]
    assert cost(end) <= cost(item)
    assert not any(spread_is_kept(edits(end)))
    assert shrink(end, spread_is_kept) == end
    # nothing but the spread matters, so all structure goes
    assert (end.turns, end.contexts, end.atoms) == (1, 1, 1) and len(end.values()) == 2


@QUICK
@given(instances(("tabular",)))
def test_shrinking_never_leaves_what_the_check_accepts(item):
    """A check that depends on the policy: J stays above where it was, less a tenth."""
    floor = item.value(item.tables()) - Fraction(1, 10)

    def check(several):
        return [x.value(x.tables()) >= floor for x in several]

    end = shrink(item, check)
    assert end.value(end.tables()) >= floor and cost(end) <= cost(item)


def test_fixed_parts_stay():
    half, third = (Fraction(1, 2),) * 2, (Fraction(1, 3), Fraction(2, 3))
    leaves = tuple(((Fraction(n, 7), Fraction(1)),) for n in range(4))
    item = Instance(
        (Fraction(1),), (2, 2), leaves, "tabular", Fraction(17, 19), ((half,), (third, half))
    )
    assert all(x.lr == item.lr for x in edits(item, fixed_lr=True))
    assert all(x.turns == 2 for x in edits(item, fixed_turns=True))
    assert any(x.turns == 1 for x in edits(item)) and any(x.lr == 1 for x in edits(item))


def test_stop_ends_at_once():
    leaves = (((Fraction(3, 7), Fraction(1)),), ((Fraction(0), Fraction(1)),))
    row = (Fraction(1, 3), Fraction(2, 3))
    item = Instance((Fraction(1),), (2,), leaves, "tabular", Fraction(1), ((row,),))
    assert shrink(item, lambda several: [True] * len(several), stop=lambda: True) == item


@pytest.mark.parametrize(
    ("shorter", "longer"), [("0", "1"), ("1", "1/2"), ("1/2", "3/10"), ("500", "527"), ("1", "-1")]
)
def test_short_numbers_are_preferred(shorter, longer):
    assert length(Fraction(shorter)) < length(Fraction(longer))


@QUICK
@given(st.lists(st.floats(0.001, 1), min_size=2, max_size=5), st.integers(5, 40))
def test_rounded_probabilities(weights, grid):
    row = simplex(weights, grid)
    assert sum(row) == 1 and min(row) >= Fraction(1, grid)
    raw = [w / sum(weights) for w in weights]
    if min(raw) * grid >= 1:  # nothing had to be lifted
        assert all(abs(float(p) - w) <= 1 / grid for p, w in zip(row, raw, strict=True))


@QUICK
@given(st.fractions(min_value=-1000, max_value=1000), st.integers(1, 3))
def test_figures_round_to_so_many_digits(x, count):
    rounded = figures(x, count)
    assert abs(rounded - x) <= abs(x) * Fraction(1, 2 * 10 ** (count - 1))
    assert (x == 0) == (rounded == 0)
