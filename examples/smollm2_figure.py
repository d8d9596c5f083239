"""Figure and summary of the SmolLM2 runs: exact J after every turn's update.

    python examples/smollm2_figure.py runs/smollm2-seeupo runs/smollm2-grpo --out docs/figures

Each argument is the output directory of a run of examples/smollm2-two-turns.toml.
"""

import argparse
import json
from pathlib import Path

from matplotlib.figure import Figure

from llm_bridge.logs import read


def main() -> None:
    """Read the runs' records, draw their curves, print what they came to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path("."))
    arguments = parser.parse_args()
    canvas = Figure(figsize=(5, 3.2), layout="constrained")
    ax = canvas.subplots()
    summary = {}
    for folder in arguments.runs:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        records = read(folder / "metrics.jsonl")
        turns = [r for r in records if r["kind"] == "turn"]
        whole = [r for r in records if r["kind"] == "iteration"]
        each = len(turns) / len(whole)
        values = [turns[0]["J_before"], *(r["J"] for r in turns)]
        name = config["preset"]
        ax.plot([k / each for k in range(len(values))], values, marker=".", label=name)
        summary[name] = {
            "iterations": len(whole),
            "J_first": values[0],
            "J_last": values[-1],
            "updates": len(turns),
            "updates_that_lowered_J": sum(r["verdict"] == "lowered" for r in turns),
            "iterations_that_lowered_J": sum(r["verdict"] == "lowered" for r in whole),
            "seconds": round(sum(r["seconds"] for r in whole), 1),
            "largest_mismatch_of_generation": max(r["mismatch"] for r in turns),
            "lr": config["lr"],
            "epochs": config["epochs"],
            "rollouts_an_iteration": config["tasks"] * config["group"],
        }
    ax.set_xlabel("iteration")
    ax.set_ylabel("exact J after each update")
    ax.legend()
    arguments.out.mkdir(parents=True, exist_ok=True)
    canvas.savefig(arguments.out / "smollm2.png", dpi=150)
    text = json.dumps(summary, indent=1)
    (arguments.out / "smollm2.json").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
