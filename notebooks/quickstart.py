# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Does the update improve, and where does it end?
#
# The question of this notebook: on a problem of your own, **do three well-known update rules raise
# the expected return J at every iteration, how fast do they reach the optimum, and can one of them
# push the wrong way?** Nothing is sampled. J is the exact expected return of the current policy,
# and every update is the exact expectation over all groups that could have been drawn.

# %%
import matplotlib.pyplot as plt
import numpy as np

import seeupo_theory as st
from bandits import SequentialBandit
from seeupo_theory.figures import look

# %% [markdown]
# ## A problem of your own
#
# A question arrives, easy or hard (the *context*). The assistant answers at once or searches first
# (turn 1), then gives a short or a long answer (turn 2). One reward is paid at the end. Rewards are
# nested lists [context][action of turn 1][action of turn 2]; a leaf is a number, a fraction, or a
# finite distribution.

# %%
gamble = {"values": [0, "3/2"], "probs": ["3/5", "2/5"]}  # mean 3/5
easy = [["4/5", "1/2"], ["3/5", "9/10"]]
hard = [["1/4", "1/4"], [0, gamble]]
model = SequentialBandit([easy, hard], context_probs=["1/2", "1/2"], name="assistant")
facts = st.inspect(model)

print(f"J of the uniform policy {facts.value:.4f}, best J {facts.optimal_value:.4f}")
print("rows of the policy table of each turn:", facts.histories)
for turn, table in enumerate(facts.optimal_policy, start=1):
    print(f"best action in each row of turn {turn}:", np.argmax(table, axis=1).tolist())

# %%
# Searching and then the long answer is best: worth 9/10 on an easy question and 3/5 on a hard one.
assert np.isclose(facts.optimal_value, (0.9 + 0.6) / 2)
assert np.isclose(sum(facts.turn_gaps), facts.optimal_value - facts.value)

# %% [markdown]
# ## One iteration
#
# SeeUPO updates the last turn first. `per_turn` is J after each turn's own update.

# %%
one = st.step(model, algorithm="seeupo", lr=0.5)
print(f"J before {one.value_before:.4f}, after turns {one.updated}:", np.round(one.per_turn, 4))
assert one.monotone and one.value_after > one.value_before

# %% [markdown]
# ## Three algorithms, exact learning curves
#
# * `rloo`: REINFORCE, each reward less the mean of the other members of its group;
# * `ppo-grae`: the clipped surrogate with the group's mean, all turns at once;
# * `seeupo`: the same surrogate, turn after turn from the last to the first, batch normalised.
#
# Groups have four members. Every policy has a table row for each history. The last two take 20
# gradient steps of 0.5 an iteration, REINFORCE takes one; a step of 10 makes them comparable.

# %%
ITERATIONS = 60
GROUP = 4
rates = {"rloo": 10.0, "ppo-grae": 0.5, "seeupo": 0.5}
curves = {}
for name, lr in rates.items():
    trace = st.run(model, algorithm=name, lr=lr, iterations=ITERATIONS, group_size=GROUP)
    curves[name] = trace.values[0]

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
for name, values in curves.items():
    drawn = {"label": name, "markevery": 10, **look(name).line()}
    left.plot(values, **drawn)
    right.semilogy(facts.optimal_value - values, **drawn)
left.axhline(facts.optimal_value, color="0.5", linewidth=0.8, linestyle="--")
left.set(xlabel="iteration", ylabel="J", title="expected return")
right.set(xlabel="iteration", ylabel="best J − J", title="gap to the optimum")
left.legend(frameon=False)
plt.show()

# %%
for name, values in curves.items():
    gap = facts.optimal_value - values
    print(
        f"{name:>8}: gap {gap[0]:.3f} -> {gap[-1]:.5f}, smallest change {np.diff(values).min():+.1e}"
    )
    assert gap.min() >= -1e-12, "no policy can beat the optimum"
    assert np.diff(values).min() >= -1e-12, "no fall of J beyond rounding"
    assert gap[-1] < 0.01

# %% [markdown]
# None of them falls. For the two clipped rules that is a theorem, on tables with a row for each
# history and as long as a step raises its own objective (`python -m proofs clipped-lower-bound`);
# REINFORCE needs a step that is short enough. The rates depend on the step sizes more than on the
# order of the turns.
#
# ## An update that points the wrong way
#
# Two arms, one turn: arm 0 pays 1/2 surely; arm 1 pays 3/2 with probability 2/5, on average 3/5.
# Arm 1 is better, but in most groups of two its reward is the lower one. Dividing by the group's
# standard deviation keeps only *who won the comparison*: the expected advantage gets the wrong sign.

# %%
sizes = (2, 3, 4, 6)
scales = {"mean only": "grae", "mean and std": "grpo"}
better = {
    label: [
        st.advantage("zoo:wrong-sign", estimator=name, group_size=g).expected[0][0][1]
        for g in sizes
    ]
    for label, name in scales.items()
}
print("expected advantage of the better arm")
for label, values in better.items():
    print(f"{label:>13}:", ", ".join(f"G={g} {v:+.4f}" for g, v in zip(sizes, values, strict=True)))
assert min(better["mean only"]) > 0 > max(better["mean and std"])

# %%
falls = {
    name: st.run("zoo:wrong-sign", algorithm=name, iterations=ITERATIONS, group_size=2).values[0]
    for name in ("grpo", "seeupo")
}

figure, axes = plt.subplots(figsize=(4.5, 3), layout="constrained")
for name, values in falls.items():
    axes.plot(values, label=name, markevery=10, **look(name).line())
axes.axhline(0.6, color="0.5", linewidth=0.8, linestyle="--")
axes.set(xlabel="iteration", ylabel="J", title="the wrong-sign bandit, groups of two")
axes.legend(frameon=False)
plt.show()

assert (np.diff(falls["grpo"]) < 0).all(), "every GRPO iteration lowers J"
assert np.isclose(falls["grpo"][-1], 0.5, atol=0.01) and falls["seeupo"][-1] > 0.59

# %% [markdown]
# GRPO converges, to the worse arm. SeeUPO's statistics here are those of an infinite batch; with
# `contexts_per_batch=1` they are the group's own, and it falls too:

# %%
small = st.step("zoo:wrong-sign", algorithm="seeupo", group_size=2, contexts_per_batch=1)
print(f"J {small.value_before:.4f} -> {small.value_after:.4f}, monotone: {small.monotone}")
assert not small.monotone

# %% [markdown]
# ## What to change next
#
# * **The rewards** above, or the model: `st.load("gym:FrozenLake-v1?horizon=12")`, a JSON file, a
#   name from `seeupo zoo`.
# * **What a policy sees**: `st.step(model, param="log-linear")` lets all turns share two weights, and
#   `observe="turn"` hides the history. J may fall then; ask `monotone`.
# * **A switch**: `st.run(model, algorithm="seeupo", order="forward", normalise="none", lr=0.1)`.
# * **The estimator**: pass your own function of the returns,
#   `st.advantage(model, estimator=my_function, group_size=4)`, and look at `sign_errors`.
# * **The question**: `st.falsify("grpo", turns=1, actions=2)` searches a counterexample by itself,
#   and simplifies and certifies it.
