"""`seeupo train` and `seeupo audit-llm`: files in, files out, errors in one line."""

import json

import pytest

from llm_bridge.logs import read
from seeupo_theory.cli import main

CONFIG = """
preset = "seeupo"
iterations = 2
tasks = 2
group = 4
lr = 0.01
max_turns = 2
max_tokens = 2
tensorboard = false
[policy]
kind = "tabular"
[environment]
kind = "tabular"
model = "zoo:xor"
"""

OWN = '''
"""A guessing game."""

from llm_bridge import FunctionEnvironment


def environment():
    return FunctionEnvironment(
        reward=lambda task, texts: float(task in texts[-1]),
        step=lambda task, texts: f"Not yet: {task}?" if len(texts) < 2 else None,
        tasks=["a", "b"],
    )
'''


def call(capsys, *arguments):
    """(exit status, standard output, standard error)."""
    status = 0
    try:
        main([str(a) for a in arguments])
    except SystemExit as end:
        status = end.code or 0
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "run.toml"
    path.write_text(CONFIG, encoding="utf-8")
    return path


def test_a_run_is_one_object_and_resumes(capsys, config, tmp_path):
    status, out, err = call(capsys, "train", config, "--out", "runs/a", "--json")
    assert (status, err) == (0, ""), err
    result = json.loads(out)
    assert result["status"] == "finished" and result["iterations"] == 2
    assert 0 < result["J"] < 1 and result["output"] == "runs/a"
    status, out, _ = call(
        capsys, "train", config, "--out", "runs/a", "--resume", "--set", "iterations=3", "--json"
    )
    assert status == 0 and json.loads(out)["iterations"] == 3
    call(capsys, "train", config, "--out", "runs/b", "--set", "iterations=3", "--json")
    ours, whole = (
        [r["J"] for r in read(tmp_path / "runs" / name / "metrics.jsonl")] for name in "ab"
    )
    assert ours == whole


def test_keys_can_be_changed(capsys, config):
    words = ("--set", "preset=grpo", "--set", "environment.model=zoo:wrong-sign")
    status, out, err = call(capsys, "train", config, *words, "--set", "max_turns=1")
    assert status == 0, err
    assert "finished after 2 iterations" in out


def test_an_own_environment_trains(capsys, config, tmp_path):
    (tmp_path / "my_guessing_game.py").write_text(OWN, encoding="utf-8")
    text = CONFIG.split("[policy]")[0] + '[environment]\nkind = "my_guessing_game:environment"\n'
    config.write_text(text, encoding="utf-8")
    status, out, err = call(capsys, "train", config, "--json")
    assert status == 0, err
    result = json.loads(out)
    assert result["J"] is None and 0 <= result["reward"] <= 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--set", "presett=grpo"], "did you mean 'preset'"),
        (["--set", "preset=gropo"], "gropo"),
        (["--set", "lr"], "KEY=VALUE"),
        (["--set", "lr.x=1"], "lr is not a table"),
        (["--set", "group=0"], "group is 0"),
        (["--set", "environment.kind=nowhere"], "nowhere"),
        (["--set", "environment.model=zoo:nothing"], "nothing"),
        (["--resume"], "needs an output directory"),
    ],
)
def test_wrong_words_are_one_line(capsys, config, words, says):
    status, out, err = call(capsys, "train", config, *words)
    assert status == 2 and not out
    assert err.count("\n") == 1 and says in err


def test_a_missing_file_is_one_line(capsys, tmp_path):
    status, _, err = call(capsys, "train", tmp_path / "none.toml")
    assert status == 2 and err.count("\n") == 1 and "none.toml" in err


def test_the_audit_writes_its_files(capsys, tmp_path):
    words = ["--games", "zoo:xor", "--presets", "seeupo", "--lrs", "0.01", "--seeds", "1"]
    words += ["--iterations", "1", "--workers", "1", "--out", str(tmp_path), "--json"]
    status, out, err = call(capsys, "audit-llm", *words)
    assert (status, err) == (0, ""), err
    result = json.loads(out)
    assert {r["family"] for r in result["rows"]} == {
        "shared transformer",
        "independent tables",
        "log-linear",
    }
    assert {p.suffix for p in tmp_path.iterdir()} == {".csv", ".json", ".md", ".png"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--presets", "grop"], "grop"),
        (["--lrs", "x"], "--lrs"),
        (["--seeds", "0"], "--seeds"),
    ],
)
def test_a_wrong_plan_is_one_line(capsys, tmp_path, words, says):
    status, out, err = call(capsys, "audit-llm", *words, "--out", tmp_path)
    assert status == 2 and not out
    assert err.count("\n") == 1 and says in err
