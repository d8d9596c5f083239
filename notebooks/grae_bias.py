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
# # What does a group-relative advantage estimate?
#
# GRAE compares each reward with the others of its group. The question: **what do the group's mean,
# leave-one-out, the group's std and the batch's std do to the *expected* advantage, exactly, as the
# group grows, and where does the sign turn?** Nothing is sampled: expectations run over all groups.

# %%
import matplotlib.pyplot as plt
import numpy as np

import seeupo_theory as st
from bandits import SequentialBandit
from seeupo_theory.figures import look, margin_map, sign_margin, simplex

plt.rcParams["figure.dpi"] = 85

# %% [markdown]
# ## Mean and leave-one-out
#
# On the two-turn coordination game, E[Â | action] beside the true advantage A. The group's mean
# contains the own reward; that scales everything by 1 − 1/G. Leave-one-out does not.

# %%
SIZES = (2, 3, 4, 6, 8, 16)


def factor(estimator, group_size):
    """c in E[Â] = c A, over all turns, histories and actions; and how far from proportional."""
    result = st.advantage("zoo:team-2x2x2", estimator=estimator, group_size=group_size)
    # A GRAE advantage is one of trajectories: compare what is left when a row's mean is taken off
    expected = np.concatenate(
        [(x - x.mean(axis=1, keepdims=True)).ravel() for x in result.expected]
    )
    true = np.concatenate([(x - x.mean(axis=1, keepdims=True)).ravel() for x in result.exact])
    c = float(expected @ true / (true @ true))
    return c, float(np.abs(expected - c * true).max())


factors = {name: [factor(name, g) for g in SIZES] for name in ("grae", "rloo")}
for name, found in factors.items():
    print(
        f"{name:>5}:", ", ".join(f"G={g} {c:.4f}" for g, (c, _) in zip(SIZES, found, strict=True))
    )
for (c, off), g in zip(factors["grae"], SIZES, strict=True):
    assert np.isclose(c, 1 - 1 / g, atol=1e-12) and off < 1e-12
assert all(np.isclose(c, 1, atol=1e-12) for c, _ in factors["rloo"])

# %% [markdown]
# So the mean is not unbiased, and the bias is harmless: one positive factor, hence the direction of
# the gradient. What it takes away from a row is a baseline, V of the context instead of V of the
# history; that changes the variance, not the expectation (`python -m proofs baseline-invariance`).
#
# ## Dividing by the group's std
#
# Now the wrong-sign bandit: one arm pays 1/2, the other 3/2 with probability 2/5, 3/5 on average.

# %%
ESTIMATORS = {"mean only": "dr-grpo", "leave-one-out": "rloo", "group std": "grpo"}
better = {
    label: [
        st.advantage("zoo:wrong-sign", estimator=name, group_size=g).expected[0][0][1]
        for g in SIZES
    ]
    for label, name in ESTIMATORS.items()
}
true = st.advantage("zoo:wrong-sign", group_size=2).exact[0][0][1]
figure, ax = plt.subplots(figsize=(4.6, 2.8), layout="constrained")
for label, values in better.items():
    ax.plot(SIZES, values, label=label, **look(ESTIMATORS[label]).line())
ax.axhline(0, color="0.4", linewidth=0.7)
ax.axhline(true, color="0.4", linewidth=0.7, linestyle="--", label="true advantage")
ax.set(xlabel="group size G", ylabel="E[Â | better arm]", xticks=SIZES)
ax.legend(frameon=False)
plt.show()
for label, values in better.items():
    print(f"{label:>13}:", ", ".join(f"G={g} {v:+.4f}" for g, v in zip(SIZES, values, strict=True)))
assert max(better["group std"][:4]) < 0 < min(better["mean only"]), "the std turns the sign"
assert better["group std"][-1] > 0, "for large groups the std is nearly a constant"

# %% [markdown]
# In a small group the std is large exactly when the rare reward is in it: it keeps *who won the
# comparison* and forgets by how much. For G = 2 … 6 the better arm's expected advantage is negative,
# at 8 it is next to nothing, and only then the std becomes nearly a constant.

# %% [markdown]
# ## The region of the wrong sign
#
# The sure arm pays 1/2; the other pays v with probability p. Hatched: the better arm's expected
# advantage is negative, under the uniform policy.

# %%
p, v = np.linspace(0.01, 0.99, 99), np.linspace(0.02, 3, 100)
figure, panels = plt.subplots(1, 3, figsize=(8, 2.7), sharey=True, layout="constrained")
shares = {}
for ax, size in zip(panels, (2, 4, 8), strict=True):
    margin = sign_margin("grpo", p, v, group_size=size)
    shares[size] = float((margin < 0).mean())
    margin_map(
        p, v, margin, violated="wrong sign", label="", title=f"group std, G = {size}", axes=ax
    )
    if size > 2:
        ax.set_ylabel("")
plt.show()
for size, share in shares.items():
    print(f"G = {size}: wrong on {share:.1%} of the square")
assert not (sign_margin("dr-grpo", p, v, group_size=4) < 0).any(), "the mean alone is never wrong"
assert min(shares.values()) > 0.05

# %% [markdown]
# With *binary* rewards of one size the std never turns the sign: E[Â] is then monotone in the
# probability of success (`python -m proofs group-std-binary`). It takes three different values:
# here 0, 1/2 and v.
#
# ## The std of a batch
#
# SeeUPO divides by the std of the whole batch of B contexts. An infinite batch divides by a
# constant; a finite one still contains the own reward.

# %%
BATCHES = (1, 2, 4, 8, 16)
finite = [
    st.advantage("zoo:wrong-sign", estimator="seeupo", group_size=2, contexts_per_batch=b).expected[
        0
    ][0][1]
    for b in BATCHES
]
limit = st.advantage("zoo:wrong-sign", estimator="seeupo", group_size=2).expected[0][0][1]
figure, (left, right) = plt.subplots(1, 2, figsize=(7, 2.7), layout="constrained")
left.semilogx(BATCHES, finite, base=2, **look("seeupo").line())
left.axhline(limit, color="0.4", linewidth=0.7, linestyle="--", label="infinite batch")
left.axhline(0, color="0.4", linewidth=0.7)
left.set(xlabel="contexts a batch B", ylabel="E[Â | better arm], G = 2")
left.legend(frameon=False, loc="lower right")
bias = np.abs(np.array(finite) - limit)
right.loglog(BATCHES, bias, base=2, **look("seeupo").line())
right.loglog(
    BATCHES, bias[3] * 8 / np.array(BATCHES), color="0.4", linewidth=0.7, base=2, label="∝ 1/B"
)
right.set(xlabel="contexts a batch B", ylabel="|bias|")
right.legend(frameon=False)
plt.show()
print(
    ", ".join(f"B={b} {x:+.4f}" for b, x in zip(BATCHES, finite, strict=True)),
    f", B=∞ {limit:+.4f}",
)
assert finite[0] < 0 < finite[-1] and limit > 0

# %%
notes = {
    b: st.advantage("zoo:wrong-sign", estimator="seeupo", group_size=2, contexts_per_batch=b)
    for b in (16, 32)
}
for b, result in notes.items():
    error = f", standard error {result.standard_error:.4f}" if result.standard_error else ""
    print(f"B = {b:>2}: {result.method}{error}")
assert notes[16].method == "exact"
assert notes[32].method == "monte-carlo" and notes[32].standard_error > 0

# %% [markdown]
# The bias falls as 1/(B·G) and is there for every finite batch. From 32 contexts on the batches are
# too many to enumerate: the result says so and carries its standard error.
#
# ## What the wrong sign does to learning
#
# Three arms: sure (1/2), risky (3/2 with probability 2/5) and poor (1/5). The exact expected update
# over the simplex of policies; vermilion arrows lower J.

# %%
arms = SequentialBandit(
    [["1/2", {"values": ["3/2", 0], "probs": ["2/5", "3/5"]}, "1/5"]], name="three-arms"
)
STARTS = ((0.3, 0.6, 0.1), (0.2, 0.2, 0.6))
figure, panels = plt.subplots(1, 2, figsize=(7.4, 3.4), layout="constrained")
for ax, name in zip(panels, ("grpo", "dr-grpo"), strict=True):
    simplex(
        arms, name, starts=STARTS, iterations=150, density=12,
        labels=("sure", "risky", "poor"), group_size=2, axes=ax,
    )  # fmt: skip
plt.show()
ends = {
    name: st.run(arms, [[list(STARTS[1])]], algorithm=name, iterations=150, group_size=2).values[
        0, -1
    ]
    for name in ("grpo", "dr-grpo")
}
print({name: round(float(value), 3) for name, value in ends.items()})
assert ends["grpo"] < 0.52 and ends["dr-grpo"] > 0.59

# %% [markdown]
# ## What to change next
#
# * **The law of the rewards**: three values of your own; `st.falsify("grpo", property="sign")` finds
#   the smallest wrong one by itself and certifies it.
# * **The policy**: `sign_margin(..., policy=0.1)`; the region moves with it.
# * **The guard**: `std_eps=1.0` in `st.advantage` makes the std matter less.
# * **The estimator**: any function of returns [..., B, G], `st.advantage(model, estimator=mine)`.
