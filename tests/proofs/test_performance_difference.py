"""The simulator's advantages, running factor and GAE obey the identities."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import proofs
from proofs._trees import histories, paths
from proofs.performance_difference import RESULTS, global_objective, mixed, performance_difference
from seeupo_theory.rules import advantages, factor

from .groups import ROUNDING, bandit, rows, tables, trees

finite = st.floats(-2, 2).map(lambda x: round(x, 6))


@pytest.mark.parametrize("result", RESULTS, ids=lambda r: r.name)
def test_theorem(result):
    assert proofs.run(result).status == "exact"


@st.composite
def pairs(draw, shapes=((2,), (2, 2), (3, 2), (2, 2, 2))):
    tree, old = draw(trees(shapes=shapes))
    new = {h: draw(rows(tree.actions[len(h)])) for h in histories(tree.actions)}
    return tree, old, new


@given(pairs())
@settings(max_examples=25)
def test_performance_difference_of_the_simulator(instance):
    from seeupo_theory.tabular import evaluate

    tree, old, new = instance
    graph = bandit(tree).graph()
    found = evaluate.performance_difference(graph, tables(tree, old), tables(tree, new))
    assert found == pytest.approx(float(performance_difference(tree, old, new)), abs=ROUNDING)
    assert found == pytest.approx(float(tree.value(new) - tree.value(old)), abs=ROUNDING)


@given(pairs(shapes=((2, 2), (2, 2, 2), (3, 2))), st.randoms(use_true_random=False))
@settings(max_examples=25)
def test_running_factor_gives_every_turn_its_gain(instance, source):
    """E[(rho_t - 1) F A] with the simulator's factor is the change of J by the turn, any order."""
    tree, old, new = instance
    every = list(paths(tree.actions))
    prob = np.array([float(tree.reach(old, p)) for p in every])
    advantage = np.array([float(tree.rewards[p] - tree.value(old)) for p in every])
    running = np.ones(len(every))
    updated = set()
    for turn in source.sample(range(tree.turns), tree.turns):
        log_old, log_new = (
            np.log([float(policy[p[:turn]][p[turn]]) for p in every]) for policy in (old, new)
        )
        gain = float(prob @ ((np.exp(log_new - log_old) - 1) * running * advantage))
        before = mixed(tree, tuple(new if s in updated else old for s in range(tree.turns)))
        updated.add(turn)
        after = mixed(tree, tuple(new if s in updated else old for s in range(tree.turns)))
        assert gain == pytest.approx(float(tree.value(after) - tree.value(before)), abs=ROUNDING)
        running = factor.advance(running, log_new, log_old)


@given(pairs(shapes=((2, 2), (2, 3))))
@settings(max_examples=15)
def test_reverse_factor_is_eq_4(instance):
    """The proof's left side of Eq. 4 at turn 1, with the ratio of turn 2 from the rule."""
    tree, old, new = instance
    every = list(paths(tree.actions))
    log_old, log_new = (
        np.log([float(policy[p[:1]][p[1]]) for p in every]) for policy in (old, new)
    )
    running = factor.advance(np.ones(len(every)), log_new, log_old)
    ratio = np.array([float(new[()][p[0]] / old[()][p[0]]) for p in every])
    prob = np.array([float(tree.reach(old, p)) for p in every])
    reward = np.array([float(tree.rewards[p]) for p in every])
    found = float(prob @ ((ratio - 1) * running * reward))
    exact = global_objective(tree, old, new, new, 0, lambda h: 0)
    assert found == pytest.approx(float(exact), abs=ROUNDING)


@given(
    st.integers(1, 5).flatmap(
        lambda n: st.tuples(
            st.lists(finite, min_size=n, max_size=n),
            st.lists(finite, min_size=n + 1, max_size=n + 1),
        )
    ),
    st.sampled_from([0.0, 0.5, 0.9, 1.0]),
)
def test_gae_telescopes(numbers, discount):
    """With lambda = 1 the estimate is the discounted return minus the value, whatever V is."""
    rewards, values = map(np.array, numbers)
    found = advantages.gae(rewards, values, discount=discount, lam=1.0, bootstrap=False)
    for t in range(len(rewards)):
        tail = rewards[t:]
        expected = float(tail @ discount ** np.arange(len(tail))) - values[t]
        assert found[t] == pytest.approx(expected, abs=ROUNDING)


@given(pairs(shapes=((2, 2), (2, 3))))
@settings(max_examples=15)
def test_one_step_gae_is_the_exact_advantage(instance):
    """Given exact values, lambda = 0 is A(h, a) on every path; the last value is 0."""
    tree, old, _ = instance
    for path in itertools.product(*(range(n) for n in tree.actions)):
        rewards = np.zeros(tree.turns)
        rewards[-1] = float(tree.rewards[path])
        values = [float(tree.value(old, path[:t])) for t in range(tree.turns)]
        found = advantages.gae(rewards, np.array([*values, 0.0]), discount=1.0, lam=0.0)
        for t in range(tree.turns):
            exact = float(tree.advantage(old, path[:t], path[t]))
            assert found[t] == pytest.approx(exact, abs=ROUNDING)
