"""Figure and summary of the SmolLM2 runs: exact J after every turn's update.

    python examples/smollm2_figure.py runs/smollm2-seeupo runs/smollm2-grpo --out docs/llm

Each argument is the output directory of a run of examples/smollm2-two-turns.toml.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from llm_bridge.logs import read
from seeupo_theory.figures import style


def draw(ax: Any, folder: Path) -> dict[str, Any]:
    """Draw one run's J after every update; return what the run came to."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    records = read(folder / "metrics.jsonl")
    turns = [r for r in records if r["kind"] == "turn"]
    whole = [r for r in records if r["kind"] == "iteration"]
    each = len(turns) / len(whole)
    values = [turns[0]["J_before"], *(r["J"] for r in turns)]
    name = config["preset"]
    steps = [k / each for k in range(len(values))]
    ax.plot(steps, values, label=name, **style.look(name).line())
    return {
        "preset": name,
        "iterations": len(whole),
        "J_after_each_update": [round(v, 4) for v in values],
        "updates_that_lowered_J": sum(r["verdict"] == "lowered" for r in turns),
        "iterations_that_lowered_J": sum(r["verdict"] == "lowered" for r in whole),
        "seconds": round(sum(r["seconds"] for r in whole), 1),
        "largest_mismatch_of_generation": max(r["mismatch"] for r in turns),
        **{key: config[key] for key in ("lr", "epochs", "optimiser", "seed")},
        "rollouts_an_iteration": config["tasks"] * config["group"],
    }


def main() -> None:
    """Read the runs' records, draw their curves, print what they came to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path("."))
    arguments = parser.parse_args()
    with style.canvas(None) as ax:
        summary = [draw(ax, folder) for folder in arguments.runs]
        ax.set(xlabel="iteration", ylabel="exact J after each update")
        style.legend(ax)
        style.dress(ax)
    arguments.out.mkdir(parents=True, exist_ok=True)
    style.save(ax.figure, arguments.out / "smollm2.png")
    text = json.dumps(summary, indent=1)
    (arguments.out / "smollm2.json").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
