"""Random families: reproducible, of the stated shape and kind."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bandits import ModelError, random_bandit, random_mdp, random_policy
from bandits.families import REWARDS, uniform_policy

from .strategies import bandits, mdps, seeds


@given(seeds, st.sampled_from(REWARDS))
def test_the_same_seed_gives_the_same_model(seed, reward):
    for build in (
        lambda s: random_bandit(s, 2, (2, 3), reward),
        lambda s: random_mdp(s, 3, 2, 2, reward=reward, absorbing=1, masked=True),
    ):
        assert build(seed) == build(seed) == build(np.random.default_rng(seed))
        assert build(seed) != build(seed + 1)


@pytest.mark.parametrize("reward", REWARDS)
def test_kinds_of_rewards(reward):
    model = random_bandit(0, 3, (4, 5), reward)
    values = model.reward_values
    assert model.contexts == 3 and model.actions == (4, 5)
    assert values.shape[-1] == {"bernoulli": 2, "distribution": 3}.get(reward, 1)
    if reward == "binary":
        assert set(values.ravel()) == {0.0, 1.0}
    if reward == "grid":
        assert set(values.ravel() * 4) <= {0.0, 1.0, 2.0, 3.0, 4.0}
    if reward == "uniform":
        assert values.min() >= 0 and values.max() <= 1
    if reward == "bernoulli":
        assert set(values.ravel()) == {0.0, 1.0} and 0 < model.reward_means.min() < 1


@given(seeds, st.integers(2, 4), st.booleans())
def test_mdp_options(seed, states, by_turn):
    mdp = random_mdp(
        seed, states, 3, 2, 0.5, branching=2, absorbing=1, masked=True, by_turn=by_turn
    )
    assert mdp.absorbing[-1] and mdp.initial[-1] == 0
    assert mdp.transitions.ndim == (4 if by_turn else 3)
    assert ((mdp.transitions > 0).sum(axis=-1) <= 2).all()
    assert mdp.mask.any(axis=-1).all()
    assert mdp.discount == 0.5 and mdp.actions == (3, 3)


@given(st.one_of(bandits(), mdps()), seeds, st.sampled_from([1e-3, 0.1, 1.0, 1e3]))
def test_policies_fit_and_keep_masks(model, seed, concentration):
    graph = model.graph()
    for tables in (random_policy(seed, model, concentration), uniform_policy(graph)):
        for layer, table in zip(graph.layers, tables, strict=True):
            assert table.shape == (layer.observations, layer.actions)
            np.testing.assert_allclose(table.sum(axis=1), 1, atol=1e-12)
            if layer.mask is not None:
                assert (table[~layer.mask] == 0).all()


def test_concentration():
    model = random_bandit(0, actions=(3,) * 5)
    sharp, flat = random_policy(0, model, 1e-3)[-1], random_policy(0, model, 1e4)[-1]
    assert (sharp.max(axis=1) > 0.999).mean() > 0.95
    assert np.abs(flat - 1 / 3).max() < 0.05
    with pytest.raises(ModelError, match=r"^concentration = 0: should be positive"):
        random_policy(0, model, 0)


def test_uniform_contexts():
    assert random_bandit(0, 4, uniform_contexts=True).context_probs.tolist() == [0.25] * 4
    assert random_bandit(0, 4).context_probs.tolist() != [0.25] * 4


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: random_bandit(0, reward="x"), "reward = 'x': should be one of normal, uniform"),
        (lambda: random_bandit(0, actions=()), "actions is empty"),
        (lambda: random_bandit(0, actions=(2, 0)), "actions[1] = 0: should be an integer"),
        (lambda: random_bandit(0, contexts=0), "contexts = 0: should be an integer"),
        (lambda: random_bandit(0, actions=(10,) * 12), "rewards of shape (1, 10, 10"),
        (
            lambda: random_mdp(0, states=10**6),
            "transitions of shape (1000000, 2, 1000000) would need",
        ),
        (lambda: random_mdp(0, states=2, absorbing=2), "absorbing = 2, branching = 2: should fit"),
        (lambda: random_mdp(0, states=2, branching=3), "absorbing = 0, branching = 3: should fit"),
        (lambda: random_mdp(0, horizon=0), "horizon = 0"),
    ],
)
def test_refusals(build, message):
    with pytest.raises(ModelError) as error:
        build()
    assert str(error.value).startswith(message)
