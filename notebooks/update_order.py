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
# # Does the order of the turns matter?
#
# SeeUPO updates the last turn first, and its paper proves that this order is globally optimal while
# others only reach a Nash point. The question of this notebook: **which orders reach the optimum,
# in how many sweeps, and what happens to J after every single turn's update?** Everything is exact.

# %%
import matplotlib.pyplot as plt
import numpy as np

import seeupo_theory as st
from seeupo_theory.figures import learning_curves, look, staircase
from seeupo_theory.tabular.shares import share_of_stuck

# %% [markdown]
# ## Ideal steps
#
# `haml-greedy` replaces a turn's whole table by the best response to the turns as they are now: the
# step that the paper's proof speaks of. A *sweep* updates every turn once. Two problems:
#
# * the **lock** of depth T: one of 2^T sequences pays;
# * the **staircase**: leaving looks better at every turn until the turn after it has been corrected.

# %%
DEPTHS = (2, 3, 4, 5)
ORDERS = ("reverse", "forward", "random")


def sweeps_to_optimum(problem, turns, order):
    name = f"zoo:{problem}?turns={turns}"
    trace = st.run(name, algorithm="haml-greedy", support="all", order=order, iterations=turns + 1)
    reached = trace.values[0] >= trace.data.attrs["optimal_value"] - 1e-9
    return int(np.argmax(reached)) if reached.any() else None


needed = {
    problem: {o: [sweeps_to_optimum(problem, t, o) for t in DEPTHS] for o in ORDERS}
    for problem in ("lock", "forward-staircase")
}
for problem, rows in needed.items():
    print(problem, *(f"\n  {order:>8}: {counts}" for order, counts in rows.items()))

# %%
figure, panels = plt.subplots(1, 2, figsize=(7, 2.6), sharey=True, layout="constrained")
for ax, (problem, rows) in zip(panels, needed.items(), strict=True):
    for order, counts in rows.items():
        ax.plot(DEPTHS, counts, label=order, **look(order).line())
    ax.set(title=problem, xlabel="turns T", xticks=DEPTHS)
panels[0].set_ylabel("sweeps to the optimum")
panels[1].legend(frameon=False)
plt.show()

assert needed["lock"]["reverse"] == needed["lock"]["forward"] == [1] * len(DEPTHS)
assert needed["forward-staircase"]["reverse"] == [1] * len(DEPTHS)
assert needed["forward-staircase"]["forward"] == list(DEPTHS), "forward order needs T sweeps"

# %% [markdown]
# Reverse order needs one sweep on both: it is backward induction. The lock does *not* tell orders
# apart: from the uniform policy every turn's best response is already right. The staircase does,
# and forward order needs T sweeps there. It arrives all the same: with a table row for every history,
# *every* order ends at the optimum within T sweeps (`python -m proofs backward-induction`). So other
# orders have more than the Nash guarantee here; what they lack is speed.
#
# ## Inside one sweep
#
# J after every single turn's update, on the staircase of four turns.

# %%
steps = {
    order: st.step(
        "zoo:forward-staircase?turns=4", algorithm="haml-greedy", support="all", order=order
    )
    for order in ("reverse", "forward")
}
figure, ax = plt.subplots(figsize=(4.6, 2.8), layout="constrained")
staircase(steps, axes=ax)
plt.show()
for order, one in steps.items():
    print(f"{order:>8}: J {one.value_before:.3f}, then", np.round(one.per_turn, 3).tolist())
assert steps["reverse"].value_after == 1.0 > steps["forward"].value_after
assert steps["reverse"].monotone and steps["forward"].monotone

# %% [markdown]
# ## Where the order decides: support
#
# A best response is only defined where the policy comes. If a turn is updated on *reached* histories
# only, an early turn that commits itself before its suffix has improved never comes back. Of random
# trees of four turns, the share that ends below the optimum:

# %%
TREES = 128
stuck = {order: share_of_stuck(order, n=TREES) for order in ("reverse", "forward")}
floor = share_of_stuck("forward", n=TREES, keep=0.05)
for order, share in stuck.items():
    print(f"{order:>8}: {share:.3f} of {TREES} trees stuck")
print(f" forward, every action keeping 5 %: {floor:.3f}")
assert stuck["reverse"] == 0.0 < stuck["forward"] and floor == 0.0

# %% [markdown]
# Reverse order is the one that needs no exploration. With a floor under every probability the
# difference is gone.
#
# ## Gradient steps
#
# A real update is not a best response but 20 clipped gradient steps. `seeupo` without normalisation,
# in each order, and all turns at once (`simultaneous`, that is PPO with M = Â):

# %%
runs = {
    order: st.run(
        "zoo:forward-staircase?turns=3",
        algorithm="seeupo",
        normalise="none",
        order=order,
        lr=1.0,
        iterations=40,
    )
    for order in ("reverse", "forward", "random", "simultaneous")
}
first = {}
for order, trace in runs.items():
    close = trace.values[0] >= trace.data.attrs["optimal_value"] - 0.01
    first[order] = int(np.argmax(close))
    print(f"{order:>13}: within 0.01 of the optimum after {first[order]} iterations")

figure, (left, right) = plt.subplots(1, 2, figsize=(7.4, 2.9), layout="constrained")
learning_curves(runs, axes=left)
staircase({o: runs[o] for o in ("reverse", "forward")}, first=10, iterations=3, axes=right)
plt.show()
assert all(np.diff(t.values[0]).min() > -1e-12 for t in runs.values()), "no order lowers J"
assert min(first.values()) == first["reverse"] < first["forward"]

# %% [markdown]
# Reverse is the fastest here, by a quarter. That is an instance, not a law: over random problems the
# audit finds the same median for all four orders, and on every tenth problem forward order is faster
# (`seeupo audit --claim C9.order`).
#
# ## Where no order helps: a turn that does not see the past
#
# In `xor-aliased` the two turns must differ, (1, 0) pays 1 and (0, 1) pays 1/2, and the second turn
# does not see the first. Language models with a truncated context are in this position.

# %%
ends = {}
for order in ("reverse", "forward"):
    trace = st.run("zoo:xor-aliased", "zoo", algorithm="seeupo", order=order, iterations=40)
    ends[order] = trace.values[0, -1]
    print(f"{order:>8}: J {trace.values[0, 0]:.3f} -> {ends[order]:.3f}")
best = st.inspect("zoo:xor-aliased").optimal_value
print("best", best)
assert best == 1.0 and all(np.isclose(value, 0.5, atol=0.01) for value in ends.values())

# %% [markdown]
# Both end at the worse equilibrium. The guarantee of the reverse order is one about policies with full
# histories (`seeupo verify proofs/certificates/aliased-coordination.json`).
#
# ## What to change next
#
# * **The problem**: a reward tensor of your own in place of the zoo names; `seeupo zoo` lists more.
# * **The order**: `order=(1, 2, 0)` is any permutation, 0 the first turn.
# * **The factor M**: `algorithm="seeupo-no-factor"` drops it; compare the staircases.
# * **What a turn sees**: `st.run(model, algorithm="seeupo", observe="turn")`.
