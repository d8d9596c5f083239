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
# # What happens when all turns share their weights?
#
# The proofs of monotone improvement update one turn's policy and leave the others alone. In a
# language model one set of weights serves all turns. The question: **on random problems, how often
# does one iteration lower J when the weights are shared, over step size and epochs, for SeeUPO in
# both its forms and for the baselines?** Exact expectations; a drop is no noise.

# %%
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import proofs
import seeupo_theory as st
from proofs.verifier import verify
from seeupo_theory.figures import look, staircase
from seeupo_theory.rules.presets import get
from seeupo_theory.tabular.shares import drops

# %% [markdown]
# ## Step sizes
#
# Two turns of three actions with full history, rewards uniform on [0, 1]; a log-linear policy with
# two weights for everything. 512 instances a point. The share of instances whose J fell over one
# iteration (all turns updated), each algorithm with 20 epochs but REINFORCE, which has one step.

# %%
INSTANCES = 512
RATES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
NAMES = ("seeupo", "seeupo-official", "ppo-grae", "grpo", "rloo", "trajectory-ppo")
rules = {name: get(name) for name in NAMES}
found = {n: [drops(rule, lr, n=INSTANCES) for lr in RATES] for n, rule in rules.items()}
shares = {name: np.array([d.share for d in row]) for name, row in found.items()}

figure, ax = plt.subplots(figsize=(5, 3), layout="constrained")
for name, row in shares.items():
    ax.semilogx(RATES, row, label=name, **look(name).line())
ax.set(xlabel="step size", ylabel="share of iterations that lower J")
ax.legend(frameon=False)
plt.show()
print("step size       ", *(f"{lr:>6g}" for lr in RATES))
for name, row in shares.items():
    print(f"{name:>16}", *(f"{x:>6.3f}" for x in row))
assert shares["trajectory-ppo"].max() == 0.0, "its guard rests on a bound that needs no tables"
assert shares["seeupo"][-1] > 0.02, "at practical steps SeeUPO's iterations do fall"
assert (shares["seeupo"][:2] <= shares["seeupo"][-1]).all()

# %% [markdown]
# None of the single surrogates fell, on most of these instances: the failure is not a step that was
# too long for its own objective, it is that turn 2's update has moved turn 1's policy. How many of
# SeeUPO's falls happened although every surrogate rose?

# %%
for lr, result in zip(RATES, found["seeupo"], strict=True):
    fell = result.change < -1e-12
    rose = (result.surrogate_gain >= 0).all(axis=1)
    print(
        f"step {lr:>5g}: {fell.sum():>3} fell, {int((fell & rose).sum()):>3} of them with every surrogate risen"
    )
last = found["seeupo"][-1]
assert ((last.change < -1e-12) & (last.surrogate_gain >= 0).all(axis=1)).any()

# %% [markdown]
# ## Inside an iteration
#
# A whole iteration can rise while the update of one turn inside it lowers J: the share of single
# updates that fell, beside that of whole iterations.

# %%
single = {}
for name in ("seeupo", "seeupo-official"):
    path = [np.concatenate([d.value_before[:, None], d.values], axis=1) for d in found[name]]
    single[name] = [float((np.diff(p, axis=1) < -1e-12).mean()) for p in path]
    print(f"{name:>16}: single updates", *(f"{x:.3f}" for x in single[name]))
    print(f"{'':>16}  iterations    ", *(f"{x:.3f}" for x in shares[name]))
assert single["seeupo"][-1] > shares["seeupo"][-1]

# %% [markdown]
# ## Epochs
#
# The same distance in one step or in many: the step size times the epochs is 2.

# %%
EPOCHS = (1, 5, 20)
by_epochs = {
    name: [drops(rules[name].replace(epochs=e), 2.0 / e, n=INSTANCES).share for e in EPOCHS]
    for name in ("seeupo", "ppo-grae")
}
for name, row in by_epochs.items():
    print(
        f"{name:>10}:", ", ".join(f"{e} epochs {x:.3f}" for e, x in zip(EPOCHS, row, strict=True))
    )
assert all(0 <= x < 1 for row in by_epochs.values() for x in row)

# %% [markdown]
# ## A certified instance
#
# One logit for both turns, fractions for everything: the drop of J is a theorem about this problem,
# checked with `fractions.Fraction` and nothing else (`seeupo verify` does the same).

# %%
file = Path(proofs.__file__).parent / "certificates" / "seeupo-step-shared-logit.json"
certificate = json.loads(file.read_text(encoding="utf-8"))
verdict = verify(certificate)
print(certificate["statement"])
print(verdict.message)
assert verdict.accepted

# %% [markdown]
# And the same effect on a game everybody can follow: two turns must differ, one table serves both.

# %%
shared = st.step("zoo:xor", algorithm="seeupo", param="shared")
tables = st.step("zoo:xor", algorithm="seeupo")
figure, ax = plt.subplots(figsize=(4.6, 2.8), layout="constrained")
staircase({"one table for both turns": shared, "independent tables": tables}, axes=ax)
plt.show()
print("shared     ", np.round([shared.value_before, *shared.per_turn], 4).tolist(), shared.monotone)
print("independent", np.round([tables.value_before, *tables.per_turn], 4).tolist(), tables.monotone)
assert tables.monotone and not shared.monotone

# %% [markdown]
# ## What to change next
#
# * **The problem**: `drops(..., actions=(2, 2, 2), dimension=4)`: more turns, or more weights.
# * **The start**: `spread=2.0` begins with lopsided policies.
# * **The algorithm**: `get("seeupo").replace(normalise="none", clip=0.1)`, or one of your own.
# * **Your own counterexample**: `st.falsify("seeupo", turns=2, param="shared")` searches, shrinks and
#   certifies one in seconds.
# * **A transformer**: `seeupo audit-llm` asks the same of a small language model.
