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
# # Does PPO with group-relative advantages break monotone improvement?
#
# The paper says so: GRAE's baseline V(s₀) is not V(h), a "structural bias", and PPO's guarantee is
# lost. The question of this notebook: **over clip range, group size and step size, when can one exact
# iteration of PPO + GRAE lower J, and what is to blame: the baseline, the std, or the sharing of
# weights?**

# %%
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import proofs
import seeupo_theory as st
from proofs.verifier import verify
from seeupo_theory.figures import look, phase_line
from seeupo_theory.rules.presets import get
from seeupo_theory.tabular.ensembles import Ensemble, iterate_all, sample

# %% [markdown]
# ## Thousands of problems at once
#
# Two turns of two actions, rewards with two atoms a leaf, policies from nearly uniform to nearly
# deterministic, a table row for every history. One iteration of `ppo-grae`: all turns together, 20
# gradient steps, exact expectation over groups. A *drop* is a fall of J although no row's surrogate
# fell; a step so long that it lowers its own surrogate is an *overshoot*, and counted apart.

# %%
INSTANCES = 512
RATES = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
TINY = 1e-9
tables = Ensemble((2, 2), atoms=2)
problems = sample(tables, INSTANCES, 0)


def one_iteration(rule, lr, group_size, ensemble=tables, instances=problems):
    """(change of J, whether no surrogate fell), each [instances]."""
    out = iterate_all(ensemble, rule, instances, lr=lr, group_size=group_size)
    gains = out.worst_row_gain if ensemble.param == "tabular" else out.surrogate_gain
    return out.values[:, -1] - out.value_before, np.asarray((gains >= -TINY).all(axis=1))


def share_of_drops(rule, lr, group_size, **more):
    change, rose = one_iteration(rule, lr, group_size, **more)
    return float(((change < -TINY) & rose).mean())


rule = {"mean only": get("ppo-grae"), "group std": get("ppo-grae").replace(normalise="group")}
by_size = {
    (label, g): [share_of_drops(r, lr, g) for lr in RATES]
    for label, r in rule.items()
    for g in (2, 4, 8)
}
print("share of drops  ", *(f"{lr:>6g}" for lr in RATES))
for (label, g), row in by_size.items():
    print(f"{label:>10}, G={g}:", *(f"{x:>6.3f}" for x in row))
assert max(max(row) for (label, _), row in by_size.items() if label == "mean only") == 0.0
assert max(by_size["group std", 2]) > 0.01

# %%
figure, panels = plt.subplots(1, 2, figsize=(7.4, 2.7), sharey=True, layout="constrained")
for ax, label in zip(panels, rule, strict=True):
    for g, name in ((2, "grpo"), (4, "dr-grpo"), (8, "seeupo")):
        ax.semilogx(RATES, by_size[label, g], label=f"G = {g}", **look(name).line())
    ax.set(title=label, xlabel="step size")
panels[0].set_ylabel("share of iterations with a drop")
panels[1].legend(frameon=False)
plt.show()

# %% [markdown]
# With the mean alone: never, at any step. That is a theorem, not luck. For any baseline that does not
# depend on the own action, the clipped surrogate is a lower bound of the linear gain,
# min(ρÂ, clip(ρ)Â) ≤ ρÂ, and V(s₀) is such a baseline (`python -m proofs clipped-lower-bound`). The
# difference between V(h) and V(s₀) costs variance and nothing else. With the std: drops at every
# group size.
#
# ## The clip range
#
# A narrower clip makes shorter steps. Does it protect?

# %%
CLIPS = (0.05, 0.2, 0.8)
by_clip = {
    (label, clip): [share_of_drops(r.replace(clip=clip), lr, 2) for lr in RATES]
    for label, r in rule.items()
    for clip in CLIPS
}
for (label, clip), row in by_clip.items():
    print(f"{label:>10}, ε={clip:<4}:", *(f"{x:>6.3f}" for x in row))
assert all(max(by_clip["mean only", clip]) == 0.0 for clip in CLIPS)
assert all(max(by_clip["group std", clip]) > 0.01 for clip in CLIPS), "no clip mends the sign"

# %% [markdown]
# No: where the expected advantage has the wrong sign, a shorter step goes less far the wrong way.
#
# ## How much room the bound leaves
#
# One turn, infinite groups: change of J against the gain of the surrogate. Points below the diagonal
# would break the theorem.

# %%
single = Ensemble((3,), atoms=2)
arms = sample(single, INSTANCES, 1)
out = iterate_all(single, rule["mean only"], arms, lr=0.5)
gain = np.asarray(out.surrogate_gain.sum(axis=1))
change = np.asarray(out.values[:, -1] - out.value_before)
std_out = iterate_all(single, rule["group std"], arms, lr=0.5, group_size=2)
std_gain = np.asarray(std_out.surrogate_gain.sum(axis=1))
std_change = np.asarray(std_out.values[:, -1] - std_out.value_before)
figure, panels = plt.subplots(1, 2, figsize=(7.2, 2.9), layout="constrained")
for ax, x, y, title in (
    (panels[0], gain, change, "mean only, G = ∞"),
    (panels[1], std_gain, std_change, "group std, G = 2"),
):
    ax.plot(x, y, ".", markersize=2, color=look("seeupo").colour)
    ax.axhline(0, color="0.4", linewidth=0.7)
    ax.set(title=title, xlabel="gain of the surrogate", ylabel="change of J")
panels[0].plot([0, gain.max()], [0, gain.max()], color="0.4", linewidth=0.7)
plt.show()
below = int((change - gain < -TINY).sum())
print(f"mean only: {below} of {INSTANCES} points below the diagonal")
print(f"group std: J fell in {(std_change < -TINY).mean():.1%} of the steps whose surrogate rose")
assert below == 0
assert (std_change < -TINY).any()

# %% [markdown]
# ## One bandit, every starting point
#
# The wrong-sign bandit: change of the better arm's probability in one iteration, against that
# probability.

# %%
figure, ax = plt.subplots(figsize=(5, 3), layout="constrained")
phase_line("zoo:wrong-sign", ("grpo", "dr-grpo"), group_size=2, start=0.8, iterations=25, axes=ax)
plt.show()
fall = st.step("zoo:wrong-sign", algorithm="grpo", group_size=2)
rise = st.step("zoo:wrong-sign", algorithm="dr-grpo", group_size=2)
print(f"GRPO {fall.value_before:.3f} -> {fall.value_after:.3f}, Dr. GRPO -> {rise.value_after:.3f}")
assert not fall.monotone and fall.surrogate_rose and rise.monotone

# %% [markdown]
# With two turns it happens with deterministic rewards too, and with eight members in a group. The
# instances are certified: `verify` recomputes the two values of J with fractions only.

# %%
folder = Path(proofs.__file__).parent / "certificates"
for name in ("grpo-step-two-turns", "grpo-step-two-turns-group-of-eight"):
    certificate = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    verdict = verify(certificate)
    print(f"{certificate['statement']}:\n  {verdict.message}")
    assert verdict.accepted

# %% [markdown]
# ## Where "it does not break" stops: shared weights
#
# The theorem compares row by row. With one weight vector for both turns there are no rows of its own,
# and a simultaneous step can raise the summed surrogate and lower J.

# %%
shared = Ensemble((2, 2), atoms=2, param="log-linear")
many = sample(shared, 2048, 0)
more = {"ensemble": shared, "instances": many}
for label, r in (
    ("mean only", rule["mean only"]),
    ("one ratio a trajectory", get("trajectory-ppo")),
):
    row = [share_of_drops(r, lr, np.inf, **more) for lr in (0.5, 2.0)]
    print(
        f"{label:>22}: "
        + ", ".join(f"step {lr:g} {x:.4f}" for lr, x in zip((0.5, 2.0), row, strict=True))
    )
    assert (max(row) > 0) == (label == "mean only")

# %% [markdown]
# Rare, but there. What survives sharing is the ratio of the *whole trajectory* with a guard
# (`trajectory-ppo`): its surrogate bounds the change of J for every parametrisation; the price is the
# variance of that ratio.
#
# ## Verdict
#
# | PPO + GRAE, exact expectation | tables, a row a history | shared weights |
# |---|---|---|
# | mean or leave-one-out | never lowers J (proof) | can (instances, rare) |
# | group std | can, in one turn already (certificate) | can |
#
# The std is to blame, and the sharing; the baseline is not. `seeupo audit --claim C2` has the rows.
#
# ## What to change next
#
# * **The problems**: `Ensemble((3, 2, 2))`, or `sample(..., reward="deterministic")`.
# * **The clip**: `clip=(0.2, 0.28)` is asymmetric, `dual_clip=3.0` no lower bound any more.
# * **A finite batch**: `iterate_all(..., group_size=2, contexts_per_batch=1)` for `get("seeupo")`.
# * **A search instead of a grid**: `st.falsify("ppo-grae", turns=2)` finds nothing, and says how much
#   it searched.
