"""The command line: one JSON object, one-line errors, exit statuses."""

import json

import pytest

from seeupo_theory.cli import main


def run(capsys, *arguments):
    """(exit status, standard output, standard error) of one call in this process."""
    status = 0
    try:
        main(list(map(str, arguments)))
    except SystemExit as end:
        status = end.code or 0
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.json"
    path.write_text(
        json.dumps(
            {
                "format": "seeupo-model/1",
                "kind": "bandit",
                "rewards": [["1/2", {"values": [1.5, 0], "probs": [0.4, 0.6]}]],
            }
        )
    )
    return path


def test_json_is_one_object_and_nothing_else(capsys, model, tmp_path):
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"format": "seeupo-policy/1", "probs": [[["1/4", "3/4"]]]}))
    for command in (
        ["inspect", model, "--policy", policy],
        ["advantage", model, "--group-size", 2, "--normalise", "group"],
        ["step", model, "--algorithm", "grpo", "--group-size", 2, "--clip", "0.2,0.3"],
        ["run", model, "--iterations", 2, "--out", tmp_path / "trace.nc"],
    ):
        status, out, err = run(capsys, *command, "--json")
        assert (status, err) == (0, ""), err
        assert isinstance(json.loads(out), dict)
        assert out.count("\n") == 1
    assert (tmp_path / "trace.nc").stat().st_size > 0


def test_inspect_value_of_a_policy_file(capsys, model, tmp_path):
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"format": "seeupo-policy/1", "probs": [[["1/4", "3/4"]]]}))
    _, out, _ = run(capsys, "inspect", model, "--policy", policy, "--json")
    result = json.loads(out)
    assert result["value"] == pytest.approx(0.25 * 0.5 + 0.75 * 0.6, abs=1e-15)
    assert result["optimal_value"] == pytest.approx(0.6, abs=1e-15)


def test_grpo_step_falls_and_readable_output_says_so(capsys, model):
    status, out, _ = run(capsys, "step", model, "--algorithm", "grpo", "--group-size", 2)
    assert status == 0
    assert "monotone          False" in out


def test_zoo_lists_models_and_policy_zoo_uses_their_own(capsys):
    _, out, _ = run(capsys, "zoo", "--json")
    names = [entry["name"] for entry in json.loads(out)["models"]]
    assert {"wrong-sign", "lock", "needle", "stuck-tree", "tool-use"} <= set(names)
    command = ["step", "zoo:stuck-tree", "--policy", "zoo", "--algorithm", "haml-greedy"]
    _, out, _ = run(capsys, *command, "--support", "reached", "--order", "1,2", "--json")
    assert json.loads(out)["per_turn"] == pytest.approx([0.5, 0.5])
    _, out, _ = run(capsys, *command, "--support", "reached", "--order", "reverse", "--json")
    assert json.loads(out)["value_after"] == pytest.approx(1.0)


WRONG = {
    "ragged rewards": ('"rewards": [[[0, 1], [0]]]', "rewards"),
    "probabilities": ('"rewards": [[{"values": [1, 0], "probs": [0.5, 0.6]}, 0]]', "sum"),
    "negative": ('"rewards": [[{"values": [1, 0], "probs": [1.5, -0.5]}, 0]]', "probs"),
    "nan": ('"rewards": [[NaN, 0]]', "NaN"),
    "context weights": ('"rewards": [[1, 0]], "context_probs": [0.5]', "context_probs"),
    "unknown key": ('"rewards": [[1, 0]], "horizont": 3', "horizont"),
    "empty rewards": ('"rewards": []', "rewards"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_give_one_line(capsys, tmp_path, name):
    content, says = WRONG[name]
    path = tmp_path / "wrong.json"
    path.write_text('{"format": "seeupo-model/1", "kind": "bandit", ' + content + "}")
    status, out, err = run(capsys, "inspect", path)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1 and says in err and "Traceback" not in err


def test_an_empty_file_and_a_missing_file(capsys, tmp_path):
    path = tmp_path / "empty.json"
    path.write_text("")
    for target in (path, tmp_path / "missing.json"):
        status, _, err = run(capsys, "inspect", target)
        assert status == 2 and err.count("\n") == 1 and target.name in err


def test_a_model_that_cannot_fit_says_so_before_allocating(capsys, tmp_path):
    path = tmp_path / "huge.json"
    path.write_text(
        json.dumps(
            {
                "format": "seeupo-model/1",
                "kind": "mdp",
                "horizon": 10**9,
                "discount": 1,
                "initial": [1, 0],
                "transitions": [[[0.5, 0.5], [0.5, 0.5]]] * 2,
                "rewards": [[0.1, 0.2], [0.3, 0.5]],
            }
        )
    )
    status, _, err = run(capsys, "inspect", path)
    assert status == 2 and err.count("\n") == 1 and "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["step", "zoo:xor", "--algorithm", "grop"], "grpo"),
        (["step", "zoo:xor", "--group-size", "0"], "group"),
        (["step", "zoo:xor", "--group-size", "two"], "group"),
        (["step", "zoo:xor", "--group-size", "1e400"], "group"),
        (["step", "zoo:xor", "--policy", ""], "policy is ''"),
        (["step", "zoo:xor", "--order", "1,1"], "exactly once"),
        (["step", "zoo:xor", "--order", "sideways"], "order"),
        (["step", "zoo:xor", "--clip", "a,b"], "clip"),
        (["step", "zoo:xor", "--parameters", "p.json"], "log-linear"),
        (["step", "zoo:xor", "--lr", "inf"], "lr"),
        (["inspect", "zoo:nothing"], "zoo:nothing"),
        (["inspect", "gym:Nothing-v0?horizon=2"], "Nothing"),
        (["inspect", "xor", "--policy", "zoo"], "xor"),
        (["audit", "--claim", "C10"], "C10"),
        (["run", "zoo:xor", "--out", "/nowhere/trace.nc"], "/nowhere"),
        (["frobnicate"], "frobnicate"),
        (["step", "zoo:xor", "--param", "shared", "--features", "3"], "dimension"),
        (["step", "zoo:xor", "--param", "log-linear", "--features", "0"], "dimension"),
        (["step", "zoo:xor", "--param", "network", "--hidden", "0"], "hidden"),
        (["step", "zoo:xor", "--seed", str(10**30)], "seed"),
        (["advantage", "zoo:xor", "--seed", "-1"], "seed"),
        (["step", "zoo:xor", "--epochs", str(10**30)], "epochs"),
        (["advantage", "zoo:xor", "--group-size", "100000000000"], "group_size"),
        (["run", "zoo:xor", "--seeds", "10000000000", "--expectation", "sampled"], "available"),
        (["run", "zoo:xor", "--iterations", "10000000000000"], "available"),
    ],
)
def test_wrong_arguments_give_one_line(capsys, arguments, says):
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1 and says in err and "Traceback" not in err


def test_falsify_certifies_and_verify_accepts_until_a_digit_changes(capsys, tmp_path):
    path = tmp_path / "certificate.json"
    status, out, err = run(
        capsys, "falsify", "--algorithm", "grpo", "--turns", 1, "--actions", 2,
        "--budget", "60s", "--out", path, "--json",
    )  # fmt: skip
    assert (status, err) == (0, "")
    assert json.loads(out)["status"] == "certified"
    assert run(capsys, "verify", path)[0] == 0
    text = path.read_text()
    at = text.index('"drop_at_least": "0.') + len('"drop_at_least": "0.')
    digits = text[at : text.index('"', at)]
    changed = digits[:-1] + str((int(digits[-1]) + 1) % 10)
    path.write_text(text[:at] + changed + text[at + len(digits) :])
    status, out, _ = run(capsys, "verify", path)
    assert status == 1 and "rejected" in out


def test_verify_knows_the_projects_own_certificates(capsys):
    status, out, _ = run(capsys, "verify", "grpo-step-one-turn", "--json")
    assert status == 0 and json.loads(out)["accepted"] is True
    status, _, err = run(capsys, "verify", "no-such-certificate")
    assert status == 2 and err.count("\n") == 1 and "no-such-certificate" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["falsify", "--algorithm", "grpo", "--budget", "soon"], "budget"),
        (["falsify", "--algorithm", "grpo", "--property", "nice"], "property"),
        (["falsify", "--algorithm", "no.such:thing"], "no.such"),
        (["falsify", "--algorithm", "math:pi"], "math:pi"),
        (["falsify"], "algorithm"),
    ],
)
def test_wrong_searches_give_one_line(capsys, arguments, says):
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1 and says in err and "Traceback" not in err
