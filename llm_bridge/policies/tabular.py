r"""A tabular policy as a torch module, behind the Protocol of language models.

:math:`\pi_t(a|o) \propto \exp\theta_t[o, a]`: one logit table a turn, one table for all turns
(``shared``), or logits that are linear in features, :math:`\phi_t(o, a) \cdot \theta`.  A prompt is
the pair (turn, row), a reply one token: the action.  So the trainer that moves a transformer moves
tables too, and its steps can be compared with those of the tabular simulator number by number.

With a `TabularText` game the tables have one action more, the no-op.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bandits.graph import DecisionGraph
from llm_bridge.policies.base import Ids, Scored, Turn, row_uniforms

__all__ = ["NOOP_TEXT", "TabularPolicy"]

NOOP_TEXT = "(none of the words)"


class TabularPolicy(nn.Module):
    """Softmax tables over a decision graph.

    Args:
        problem: a `DecisionGraph`, or a `TabularText` game (then it can also generate).
        tables: T probability tables [O_t, A_t] to start from (default: uniform).
        shared: one table for all turns; rows of equal number are the same row.
        features: T arrays [O_t, A_t, F]: logits φ·θ with θ [F].
        theta: θ to start from, with features (default: 0).

    Raises:
        ValueError: tables or features of the wrong shape.
    """

    def __init__(
        self,
        problem: Any,
        tables: Sequence[Any] | None = None,
        *,
        shared: bool = False,
        features: Sequence[Any] | None = None,
        theta: Any = None,
    ) -> None:
        super().__init__()
        self.game = None if isinstance(problem, DecisionGraph) else problem
        graph: DecisionGraph = problem if self.game is None else problem.graph
        self.shapes = [(x.observations, x.actions) for x in graph.layers]
        self.masks = [
            torch.ones(s, dtype=torch.bool) if x.mask is None else torch.as_tensor(x.mask.copy())
            for s, x in zip(self.shapes, graph.layers, strict=True)
        ]
        self.kind = "features" if features is not None else "shared" if shared else "tables"
        self.features: list[Tensor] = []
        if features is not None:
            if tables is not None:
                raise ValueError("tables are given with features; give theta instead")
            self.features = [torch.as_tensor(np.array(f, dtype=float)) for f in features]
            size = self.features[0].shape[-1]
            start = [torch.as_tensor(np.array(np.zeros(size) if theta is None else theta, float))]
            if tuple(start[0].shape) != (size,):
                raise ValueError(f"theta has shape {tuple(start[0].shape)}; it should be ({size},)")
        else:
            start = [self._logits(t, None if tables is None else tables[t]) for t in self._turns]
            if shared:
                start = [max(start, key=len)]
        self.theta = nn.ParameterList([nn.Parameter(x) for x in start])
        self.value_tables = nn.ParameterList(
            [nn.Parameter(torch.zeros(rows, dtype=torch.float64)) for rows, _ in self.shapes]
        )

    @property
    def _turns(self) -> range:
        return range(len(self.shapes))

    def _logits(self, turn: int, table: Any) -> Tensor:
        if table is None:
            mask = self.masks[turn].to(torch.float64)
            probs = mask / mask.sum(dim=1, keepdim=True)
        else:
            probs = torch.as_tensor(np.array(table, dtype=float))
        if tuple(probs.shape) != self.shapes[turn]:
            raise ValueError(
                f"tables[{turn}] has shape {tuple(probs.shape)}; it should be {self.shapes[turn]}"
            )
        return torch.log(probs)

    def log_tables(self) -> list[Tensor]:
        """T tables of log-probabilities [O_t, A_t], differentiable."""
        out = []
        for t in self._turns:
            if self.kind == "features":
                logits = self.features[t] @ self.theta[0]
            elif self.kind == "shared":
                logits = self.theta[0][: self.shapes[t][0]]
            else:
                logits = self.theta[t]
            out.append(torch.log_softmax(logits.masked_fill(~self.masks[t], -torch.inf), dim=-1))
        return out

    def tables(self) -> list[np.ndarray]:
        """T probability tables [O_t, A_t]."""
        with torch.no_grad():
            return [np.exp(x.numpy()) for x in self.log_tables()]

    def score(
        self,
        prompts: Sequence[Ids],
        ids: Sequence[Ids],
        *,
        temperature: float = 1.0,
        entropy: bool = False,
    ) -> Scored:
        """Log-probabilities [R, 1] of the actions."""
        if temperature != 1.0:
            raise ValueError(f"temperature is {temperature}; a table is sampled at 1")
        tables, turn = self.log_tables(), torch.tensor([p[0] for p in prompts])
        out = torch.zeros(len(ids), dtype=torch.float64)
        disorder = torch.zeros(len(ids), dtype=torch.float64)
        for t in sorted(set(turn.tolist())):
            at = torch.nonzero(turn == t)[:, 0]
            rows = tables[t][torch.tensor([prompts[i][1] for i in at])]
            action = torch.tensor([ids[i][0] for i in at])
            out = out.index_put((at,), rows[torch.arange(len(at)), action])
            mass = rows.exp()
            each = torch.where(mass > 0, -mass * rows.masked_fill(mass == 0, 0.0), 0.0)
            disorder = disorder.index_put((at,), each.sum(dim=1))
        mask = torch.ones(len(ids), 1, dtype=torch.bool)
        return Scored(out[:, None], mask, disorder[:, None] if entropy else None)

    def log_probs(
        self, prompts: Sequence[Ids], ids: Sequence[Ids], *, temperature: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        """(log_prob [R, 1], mask [R, 1])."""
        scored = self.score(prompts, ids, temperature=temperature)
        return scored.log_prob, scored.mask

    def values(self, prompts: Sequence[Ids]) -> Tensor:
        """Value of each (turn, row), [R]."""
        return torch.stack([self.value_tables[p[0]][p[1]] for p in prompts])

    def generate(
        self,
        conversations: Sequence[Sequence[Mapping[str, Any]]],
        *,
        max_tokens: int = 1,
        temperature: float = 1.0,
        seed: int | Sequence[Any] = 0,
        tools: Sequence[Any] | None = None,
    ) -> list[Turn]:
        """One action word for each conversation of the game."""
        if self.game is None:
            raise ValueError("generate: a policy over a graph has no words; give it a TabularText")
        if temperature != 1.0:
            raise ValueError(f"temperature is {temperature}; a table is sampled at 1")
        uniforms = row_uniforms(seed, len(conversations), 1)[:, 0]
        with torch.no_grad():
            tables = [x.numpy() for x in self.log_tables()]
        out = []
        for conversation, u in zip(conversations, uniforms, strict=True):
            turn, row = self.game.locate(conversation)
            total = np.cumsum(np.exp(tables[turn][row]))
            action = int(np.searchsorted(total, u * total[-1], side="right"))
            words = self.game.action_words[turn]
            text = words[action] if action < len(words) else NOOP_TEXT
            out.append(Turn((turn, row), (action,), (float(tables[turn][row, action]),), text))
        return out

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """θ."""
        return iter(self.theta)

    def value_parameters(self) -> Iterator[nn.Parameter]:
        """Value tables."""
        return iter(self.value_tables)

    def reference(self) -> TabularPolicy:
        """A frozen copy."""
        other = copy.deepcopy(self)
        for p in nn.Module.parameters(other):
            p.requires_grad_(False)
        return other
