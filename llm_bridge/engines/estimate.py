r"""What a run needs: bytes on a GPU and seconds an iteration, by arithmetic.

    python -m llm_bridge.engines.estimate --gpus 8

Counts, not measurements: weights from the sizes of a dense decoder (as Qwen3's), 16 bytes a weight
for float32 weights, gradients and Adam's two moments, sharded over the GPUs; 2 N operations a token
forward, 6 N more for backward with recomputation (N weights), attention's own products left out.
What a run adds (buffers of communication, fragmentation, CUDA graphs) is left to a margin.

An iteration of the sequential schedule passes over every turn with its conversation: once for the
old scores, once for the reference, forward and backward once an epoch, and once for the factor.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

__all__ = ["QWEN3_14B", "Decoder", "Memory", "Work", "memory", "seconds"]

GB = 1e9


@dataclass(frozen=True)
class Decoder:
    """Sizes of a dense decoder with grouped queries and a gated perceptron."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool = False

    @property
    def weights(self) -> int:
        """N, norms included.

        >>> QWEN3_14B.weights
        14768307200
        """
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        layer = attention + 3 * self.hidden * self.intermediate
        norms = 2 * self.hidden + 2 * self.head_dim
        words = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return self.layers * (layer + norms) + self.hidden + words

    @property
    def cache_bytes(self) -> int:
        """Keys and values of one token in bfloat16."""
        return 2 * 2 * self.layers * self.kv_heads * self.head_dim


QWEN3_14B = Decoder(40, 5120, 17_408, 40, 8, 128, 151_936)
"""Sizes from the model's published configuration."""


@dataclass(frozen=True)
class Work:
    """What an iteration plays: rows, turns, tokens of a reply and of what answers it."""

    rows: int = 256
    turns: int = 10
    prompt: int = 4096
    reply: int = 512
    answer: int = 512
    epochs: int = 1
    reference: bool = True

    def __post_init__(self) -> None:
        """Check that every count is one."""
        for name in ("rows", "turns", "prompt", "reply", "epochs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it should be at least 1")

    @property
    def longest(self) -> int:
        """Tokens of the last turn with its conversation."""
        return self.prompt + self.turns * self.reply + (self.turns - 1) * self.answer

    @property
    def scored(self) -> int:
        """Tokens of one pass over every turn of every row, each with its conversation."""
        later = self.turns * (self.turns - 1) // 2 * (self.reply + self.answer)
        return self.rows * (self.turns * (self.prompt + self.reply) + later)

    @property
    def written(self) -> int:
        """Tokens of all replies."""
        return self.rows * self.turns * self.reply


@dataclass(frozen=True)
class Memory:
    """Bytes on each GPU while weights move, and while replies are written."""

    states: float
    reference: float
    activations: float
    logits: float
    engine: float

    @property
    def update(self) -> float:
        """All that an update holds."""
        return self.states + self.reference + self.activations + self.logits

    @property
    def rollouts(self) -> float:
        """Sharded states and the generating engine's weights; what is left is for its cache."""
        return self.states + self.reference + self.engine


def memory(model: Decoder, work: Work, gpus: int, *, rows: int = 1, parallel: int = 2) -> Memory:
    """Bytes on each of `gpus`, `rows` at a time on each; replies by `parallel` GPUs together.

    Activations: one bfloat16 vector a layer and token (checkpointed), and four times the widest
    layer while it is recomputed.  Logits: float32 scores, their log-softmax and its gradient.
    """
    tokens = rows * work.longest
    widest = 4 * 2 * tokens * (model.intermediate + model.hidden)
    return Memory(
        states=16 * model.weights / gpus,
        reference=2 * model.weights / gpus if work.reference else 0.0,
        activations=2 * tokens * model.hidden * model.layers + widest,
        logits=3 * 4 * rows * work.reply * model.vocabulary,
        engine=2 * model.weights / parallel,
    )


def seconds(
    model: Decoder,
    work: Work,
    gpus: int,
    *,
    flops: float = 989e12,
    used: float = 0.35,
    tokens_a_second: float = 2000.0,
) -> tuple[float, float]:
    """Seconds of the updates and of the rollouts in one iteration.

    Args:
        flops: of one GPU in bfloat16 (H100: 989e12), and the share of them `used`.
        tokens_a_second: replies' tokens that one GPU writes, all rows together.
    """
    passes = 2 * (2 + work.reference) + 8 * work.epochs
    operations = passes * model.weights * work.scored
    return operations / (gpus * flops * used), work.written / (gpus * tokens_a_second)


def main() -> None:
    """Print the estimate for Qwen3-14B."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpus", type=int, default=8)
    for name, default in (("rows", 256), ("turns", 10), ("prompt", 4096), ("reply", 512)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = vars(parser.parse_args())
    gpus = given.pop("gpus")
    model, work = QWEN3_14B, Work(**given)
    need, (updates, rollouts) = memory(model, work, gpus), seconds(model, work, gpus)
    print(f"{model.weights / 1e9:.2f} billion weights, conversations of {work.longest} tokens")
    for name in ("states", "reference", "activations", "logits", "update", "engine", "rollouts"):
        print(f"  {name:12s} {getattr(need, name) / GB:6.1f} GB a GPU")
    room = max(0, int((80 * GB - need.rollouts) / model.cache_bytes))
    print(f"  {'cache':12s} {model.cache_bytes / 1e3:6.1f} kB a token: room for {room} in 80 GB")
    print(f"  updates {updates:.0f} s, rollouts {rollouts:.0f} s an iteration")


if __name__ == "__main__":
    main()
