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
# # The paper's analysis figures and tables, on problems that can be solved exactly
#
# arXiv:2602.06554 reports training curves (Fig. 1), a table of convergence guarantees (Table 1) and
# ablations of the order of updates (Table 4) and of the normalisation (Table 5), measured on language
# models of 14 billion weights. The question: **what do their counterparts look like where J is
# exact?** Each has one place below, with the differences from the paper named. No number here says
# anything about a 14B model by itself.

# %%
import tempfile

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import display

import seeupo_theory as st
from seeupo_theory.claims.audit import audit
from seeupo_theory.figures import interval, learning_curves, look, verdict_grid

# %% [markdown]
# ## Fig. 1: training curves of all algorithms of Table 1
#
# The problem is `zoo:tool-use`: four turns of search, verify or answer, random replies of the
# environment, a cost for each call, an episode that ends with the answer. Samples, as in training:
# four groups of eight trajectories an iteration, ten seeds, bands are 95 % t intervals of the mean.
#
# *Differences from the paper*: the vertical axis is the exact J of each seed's policy, not the score
# on a test set; policies are tables; PPO has a learnt tabular critic. The clipped algorithms take 4
# gradient steps of 0.2 an iteration, RLOO one of 4, five times the others' total; no step size was
# tuned.

# %%
ALGORITHMS = ("ppo", "grpo", "reinforce++", "rloo", "gspo", "seeupo")
SAMPLED = {"expectation": "sampled", "seeds": 10, "group_size": 8, "contexts_per_batch": 4}
CLIPPED = {"lr": 0.2, "epochs": 4}

curves = {
    name: st.run(
        "zoo:tool-use",
        algorithm=name,
        iterations=40,
        **({"lr": 4.0} if name == "rloo" else CLIPPED),
        **SAMPLED,
    )
    for name in ALGORITHMS
}
figure, ax = plt.subplots(figsize=(5, 3.2), layout="constrained")
learning_curves(curves, axes=ax)
ax.legend(loc="lower right", ncols=2, frameon=False, fontsize=7)
ax.set_xlabel("training step")
plt.show()


def final(trace):
    """Mean and half width of the 95 % t interval of J at the end, over seeds."""
    band = interval(trace.values[:, -1:])
    return float(band.mean[0]), float(band.high[0] - band.mean[0])


for name, trace in curves.items():
    mean, half = final(trace)
    print(f"{name:>12}: final J {mean:.3f} ± {half:.3f}")
best = st.inspect("zoo:tool-use").optimal_value
print(f"{'optimum':>12}: {best:.3f}")
assert all(trace.values.max() <= best + 1e-12 for trace in curves.values())
assert all(final(t)[0] > t.values[0, 0] + 0.1 for t in curves.values()), "all of them learn"

# %%
# One token a turn: GSPO's length-normalised ratio is GRPO's ratio, and the two runs are one.
assert np.allclose(curves["gspo"].values, curves["grpo"].values, atol=1e-12)

# %% [markdown]
# The paper's ranking puts SeeUPO first. Here the curves differ by their effective step sizes more
# than by anything else. RLOO leads only because of its longer step: with the others' steps it is
# behind SeeUPO, and SeeUPO with five times its own is ahead again.

# %%
same = final(st.run("zoo:tool-use", algorithm="rloo", iterations=40, **CLIPPED, **SAMPLED))
larger = final(
    st.run("zoo:tool-use", algorithm="seeupo", iterations=40, lr=1.0, epochs=4, **SAMPLED)
)
print(f"rloo, 4 steps of 0.2: {same[0]:.3f}; seeupo, 4 steps of 1: {larger[0]:.3f}")
assert same[0] < final(curves["seeupo"])[0] and larger[0] > final(curves["rloo"])[0]

# %% [markdown]
# So these curves support no ranking, in either direction.
#
# ## Table 1: guarantees, the paper's marks beside ours
#
# The quick audit of the grid, computed now (REINFORCE++, which shares GRPO's row in the paper, is in
# the full one): each row split into independent tables or shared
# weights, infinite or finite groups, deterministic or random rewards; two marks a cell, monotone
# improvement and global convergence.
#
# *Differences from the paper*: a ✓ there is "has a convergence guarantee", one mark for everything
# that is split here. A ✗ here is a counterexample that can be replayed, a ✓ a proof whose assumptions
# are in the ledger, and ? is neither.

# %%
with tempfile.TemporaryDirectory() as folder:
    ledger = audit(folder, quick=True, claim="T1")
shown = verdict_grid(ledger)
shown.set_size_inches(9, 4.2)
display(shown)

# %%
marks = {row.id: row.verdict for row in ledger.rows}
for preset in ("grpo", "rloo", "seeupo", "ppo"):
    for turns in ("ST", "MT"):
        names = [
            f"T1.{preset}.{turns}.{p}.exact.random.monotone" for p in ("independent", "shared")
        ]
        paper = next(row.paper for row in ledger.rows if row.id == names[0])
        print(
            f"{preset:>7} {turns}: paper {paper}   tables {marks[names[0]]}, shared {marks[names[1]]}"
        )
differs = sum(row.differs is True for row in ledger.rows)
print(f"{differs} of {len(ledger.rows)} cells differ from the paper's mark")
assert marks["T1.seeupo.MT.independent.exact.random.monotone"] == "holds"
assert marks["T1.seeupo.MT.shared.exact.random.monotone"] == "refuted"
assert marks["T1.rloo.MT.independent.exact.random.monotone"] == "holds"

# %% [markdown]
# ## Table 4: the order of updates
#
# `zoo:team-2x2x2`: three turns, the best leaf lies in the branch that is worse on average. SeeUPO in
# reverse, forward and random order, and all turns at once.
#
# *Differences from the paper*: it reports scores after a fixed number of training steps on AppWorld
# and BFCL v4; here J after 10 and 40 iterations of the same number of gradient steps a turn.

# %%
orders = {
    order: st.run(
        "zoo:team-2x2x2", algorithm="seeupo", order=order, iterations=40, **CLIPPED, **SAMPLED
    )
    for order in ("reverse", "forward", "random", "simultaneous")
}
figure, ax = plt.subplots(figsize=(5, 3), layout="constrained")
learning_curves(orders, axes=ax)
ax.set_xlabel("training step")
plt.show()
print("order          J after 10   J after 40")
table4 = {}
for order, trace in orders.items():
    early = interval(trace.values[:, 10:11])
    table4[order] = final(trace)
    print(
        f"{order:>13}  {early.mean[0]:.3f} ± {early.high[0] - early.mean[0]:.3f}"
        f"  {table4[order][0]:.3f} ± {table4[order][1]:.3f}"
    )
spread = max(m for m, _ in table4.values()) - min(m for m, _ in table4.values())
assert spread < 0.1, "with gradient steps the orders end close together"

# %% [markdown]
# The paper finds reverse best, then forward and random. Here reverse is ahead after 10 iterations, and
# after 40 all are close together; where the order matters is in `update_order`.
#
# ## Table 5: normalisation of the advantage
#
# SeeUPO without normalisation, with the batch's and with the group's std; then the same with the step
# of each divided by what the normalisation multiplies it with.
#
# *Differences from the paper*: it compares at equal step sizes only (none < batch ≈ group). Rewards
# here are below 1 in spread, so that dividing by a std is a longer step: equal step sizes compare
# step sizes. The second column is free of that.

# %%
rule = {"iterations": 40, "epochs": 4, **SAMPLED}
equal = {
    name: st.run("zoo:tool-use", algorithm="seeupo", normalise=name, lr=0.2, **rule)
    for name in ("none", "batch", "group")
}
scale = float(
    np.std(np.asarray(st.load("zoo:tool-use").graph().leaf_values))
)  # a rough size of the rewards' std, for the step alone
longer = st.run("zoo:tool-use", algorithm="seeupo", normalise="none", lr=0.2 / scale, **rule)
print(f"step of 'none' at the same length: {0.2 / scale:.2f}")
print("normalisation   equal step size   equal length of steps")
table5 = {name: final(trace) for name, trace in equal.items()}
matched = {**table5, "none": final(longer)}
for name in equal:
    a, b = table5[name], matched[name]
    print(f"{name:>13}   {a[0]:.3f} ± {a[1]:.3f}     {b[0]:.3f} ± {b[1]:.3f}")
figure, ax = plt.subplots(figsize=(5, 3), layout="constrained")
for (name, trace), key in zip(
    [*equal.items(), ("none, longer step", longer)],
    ("rloo", "seeupo", "grpo", "dr-grpo"),
    strict=True,
):
    band = interval(trace.values)
    ax.plot(band.mean, label=name, markevery=5, **look(key).line())
    ax.fill_between(
        np.arange(len(band.mean)), band.low, band.high, color=look(key).colour, alpha=0.18
    )
ax.set(xlabel="training step", ylabel="expected return J")
ax.legend(frameon=False)
plt.show()
assert table5["none"][0] < min(table5["batch"][0], table5["group"][0]), "the paper's ranking"
left = (table5["batch"][0] - matched["none"][0]) / (table5["batch"][0] - table5["none"][0])
print(f"share of the gap between none and batch that is left: {left:.2f}")
assert left < 0.5, "most of it was the length of the steps"

# %% [markdown]
# The ranking of the paper's Table 5 appears at equal step sizes; a longer step for "none" takes most
# of it away. What normalisation does to the *direction* is in `grae_bias`.
#
# ## What to change next
#
# * **The problem**: `"zoo:tool-use-aliased"`, `"gym:FrozenLake-v1?horizon=6"`, or a model of your own.
# * **Seeds and batch**: `SAMPLED`; with `contexts_per_batch=1` batch statistics become noisy.
# * **Official form**: `algorithm="seeupo-official"` in each of the tables.
# * **The whole grid**: `make audit` runs it with eight times the instances, and the proofs.
