"""The verifier: stored certificates pass, edited ones fail, and the simulator agrees with it."""

import copy
import json
import random
import subprocess
import sys

import pytest

from proofs import verifier
from proofs.certify import (
    NotCertified,
    algorithm_json,
    certify,
    certify_step,
    estimator_switches,
    switches,
)
from proofs.instances import FOLDER, INSTANCES, bandit, shared, tabular, text_of
from seeupo_theory.rules import presets

PATHS = sorted(FOLDER.glob("*.json"))
QUICK = [p for p in PATHS if p.stem in ("stuck-tree-forward", "grpo-wrong-sign-one-turn")]
QUICK += [p for p in PATHS if p.stem.startswith(("dropped", "aliased"))]


def read(path):
    return verifier.load(path.read_text(encoding="utf-8"))


def signed(certificate):
    """The certificate with a fresh digest, so that only its content can be wrong."""
    return {**certificate, "sha256": verifier.digest(certificate)}


# Stored certificates ----------------------------------------------------------------------------


def test_the_folder_holds_exactly_the_instances():
    assert sorted(p.stem for p in PATHS) == sorted(INSTANCES)


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_stored_certificate(path):
    verdict = verifier.verify_file(path)
    assert verdict.accepted, verdict.message
    assert path.read_text(encoding="utf-8") == text_of(INSTANCES[path.stem]())


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_any_digit_changed_breaks_the_digest(path):
    text = path.read_text(encoding="utf-8")
    sealed = read(path)["sha256"]
    for i, old in enumerate(text):
        for new in "0123456789".replace(old, "") if old.isdigit() else "":
            try:
                edited = verifier.load(text[:i] + new + text[i + 1 :])
            except ValueError:
                continue
            assert edited.get("sha256") != verifier.digest(edited) or edited["sha256"] != sealed


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_one_digit_changed_is_rejected(path):
    text = path.read_text(encoding="utf-8")
    places = [i for i, old in enumerate(text) if old.isdigit()]
    chosen = random.Random(path.stem).sample(places, 6)
    for i in chosen:
        edited = text[:i] + str((int(text[i]) + 1) % 10) + text[i + 1 :]
        try:
            verdict = verifier.verify(verifier.load(edited))
        except ValueError:
            continue
        assert not verdict.accepted, edited[max(0, i - 30) : i + 10]


def leaves(value, where=()):
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*where, key))
    else:
        yield where, value


@pytest.mark.parametrize("path", QUICK, ids=lambda p: p.stem)
def test_content_is_pinned_without_the_digest(path):
    original = read(path)
    for where, value in leaves({k: original[k] for k in ("model", "policy", "claim")}):
        text = str(value)
        for i in [i for i, c in enumerate(text) if c.isdigit()]:
            edited = copy.deepcopy(original)
            place = edited
            for key in where[:-1]:
                place = place[key]
            changed = text[:i] + str((int(text[i]) + 1) % 10) + text[i + 1 :]
            place[where[-1]] = type(value)(changed)
            # A pay of 1 off the resting point of the coordination game changes no best reply.
            if path.stem == "aliased-coordination" and where[1] == "rewards" and value == "0":
                continue
            assert not verifier.verify(signed(edited)).accepted, (where, value, changed)


def test_every_claimed_number_is_pinned_without_the_digest():
    original = read(FOLDER / "grpo-step-one-turn.json")
    for name, stated in original["claim"].items():
        text = json.dumps(stated)
        for i in [i for i, c in enumerate(text) if c.isdigit()][::4]:
            edited = copy.deepcopy(original)
            try:
                edited["claim"][name] = json.loads(
                    text[:i] + str((int(text[i]) + 1) % 10) + text[i + 1 :]
                )
            except ValueError:
                continue
            verdict = verifier.verify(signed(edited))
            assert not verdict.accepted and f"claim.{name}" in verdict.message


def test_the_official_variant_s_clamps_bind_in_its_certificate():
    stored = read(FOLDER / "seeupo-official-step-shared-row.json")
    assert stored["algorithm"]["factor_clip"] == stored["algorithm"]["product_clip"] == "1/5"
    loose = {**stored["algorithm"], "factor_clip": None, "product_clip": None}
    found = certify_step(stored["model"], stored["policy"], loose)
    assert found["claim"]["value_after"] != stored["claim"]["value_after"]


# What is rejected, and how ----------------------------------------------------------------------

SMALL = "stuck-tree-forward"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("witness"), "certificate.witness is missing"),
        (lambda c: c.update(note="x"), "certificate.note is unknown"),
        (lambda c: c.update(kind="monotone"), "certificate.kind is 'monotone', must be one of"),
        (lambda c: c.update(arithmetic="float"), "certificate.arithmetic is 'float'"),
        (lambda c: c["algorithm"].update(lr="1/2"), "algorithm.lr is unknown"),
        (lambda c: c["algorithm"].update(order="random"), "algorithm.order is 'random'"),
        (lambda c: c["algorithm"].update(order=[0, 0]), "permutation of the turns"),
        (lambda c: c["model"].update(gamma="1"), "model.gamma is unknown"),
        (lambda c: c["model"].update(context_probs=["1/2"]), "probabilities that sum to 1"),
        (lambda c: c["model"].update(rewards=[[["1"], ["1", "2"]]]), "must be a list of 1"),
        (lambda c: c["model"].update(rewards=["1"]), "must be nested"),
        (lambda c: c["model"]["rewards"][0].__setitem__(0, ["2/4", "0"]), "written '1/2'"),
        (lambda c: c["model"]["rewards"][0].__setitem__(0, [0.5, "0"]), "a fraction string"),
        (lambda c: c["policy"]["probs"][0].__setitem__(0, ["1", "1"]), "sum to 1"),
        (lambda c: c["policy"]["probs"].pop(), "policy.probs must be a list of 2"),
        (lambda c: c["policy"].update(parametrisation="deep"), "policy.parametrisation"),
        (lambda c: c["claim"].update(value_after="2"), "claim.value_after is '2', found '1/2'"),
        (lambda c: c["claim"].pop("value_after"), "claim.value_after is missing"),
        (lambda c: c["claim"].update(proved=True), "claim.proved is unknown"),
    ],
)
def test_rejected_with_the_place(change, message):
    certificate = read(FOLDER / f"{SMALL}.json")
    change(certificate)
    verdict = verifier.verify(signed(certificate))
    assert not verdict.accepted
    assert message in verdict.message


@pytest.mark.parametrize("value", [None, [], 3, "x", {}, {"format": verifier.FORMAT}])
def test_anything_else_is_rejected(value):
    assert not verifier.verify(value).accepted


def test_a_sealed_but_wrong_digest_is_rejected():
    certificate = read(FOLDER / f"{SMALL}.json")
    verdict = verifier.verify({**certificate, "sha256": "0" * 64})
    assert verdict.message == "certificate.sha256 does not match"


@pytest.mark.parametrize(
    "text",
    ["", "{", '{"format": 1.5}', '{"a": 1, "a": 2}', '{"a": NaN}', "[" * 100_000, "\ud800"],
)
def test_files_that_are_no_certificates(tmp_path, text):
    path = tmp_path / "c.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    verdict = verifier.verify_file(path)
    assert not verdict.accepted


def test_work_is_bounded_before_it_starts():
    base = INSTANCES["grpo-step-one-turn"]()
    for change in ({"epochs": 10**9}, {"group_size": 10**9}):
        edited = {**base, "algorithm": {**base["algorithm"], **change}}
        assert "must be an integer from 1 to" in verifier.verify(signed(edited)).message
    deep = {**base, "model": bandit([[[[[[0, 1]] * 8] * 8] * 8] * 8])}
    assert "too large" in verifier.verify(signed(deep)).message
    long = {**base, "model": {**base["model"], "context_probs": ["9" * 500]}}
    assert "fraction string" in verifier.verify(signed(long)).message


def test_exit_status(tmp_path, capsys):
    good = str(PATHS[0])
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    assert verifier.main([good]) == 0
    assert verifier.main([good, str(bad)]) == 1
    assert verifier.main([str(tmp_path / "none.json")]) == 2
    assert verifier.main([]) == 2
    out = capsys.readouterr().out
    assert "accepted" in out and "REJECTED" in out


def test_it_loads_the_standard_library_only():
    code = (
        "import sys; before = set(sys.modules); import proofs.verifier; "
        "new = {name.split('.')[0] for name in set(sys.modules) - before}; "
        "print(sorted(new - set(sys.stdlib_module_names)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "['proofs']"


# A claim that does not hold has no certificate --------------------------------------------------


def test_no_certificate_without_a_violation():
    model, start = bandit([[[0, 1], [2, 0]]]), tabular([["1/2"] * 2], [["1/2"] * 2] * 2)
    with pytest.raises(NotCertified, match="does not lower"):
        certify_step(model, start, switches(order="reverse", epochs=5))
    with pytest.raises(NotCertified, match="proportional"):
        certify("biased-estimator", model, start, estimator_switches(group_size=3))
    with pytest.raises(NotCertified, match="right sign"):
        where = {"turn": 0, "node": 0, "action": 0}
        certify("expected-advantage-wrong-sign", model, start, estimator_switches(), where)
    with pytest.raises(NotCertified, match="not exactly 0"):
        rule = {**estimator_switches(), "update": "gradient"}
        certify("suboptimal-fixed-point", model, start, rule, {"policy": start})
    with pytest.raises(NotCertified, match="argmax changes row"):
        rule = {**estimator_switches(estimator="exact", baseline="none"), "update": "argmax"}
        certify("suboptimal-fixed-point", model, start, rule, {"policy": start})
    with pytest.raises(NotCertified, match="not better"):
        rule = {"update": "argmax", "order": "reverse"}
        certify("stuck-sweep", model, start, rule, {"policy": start})


def test_the_same_tree_is_solved_in_reverse_order():
    model = bandit([[["1/2", "1/2"], [0, 1]]])
    start = tabular([["1/2", "1/2"]], [["1/2", "1/2"], ["9/10", "1/10"]])
    best = {"policy": tabular([[0, 1]], [["1/2", "1/2"], [0, 1]])}
    with pytest.raises(NotCertified, match="not better"):
        certify("stuck-sweep", model, start, {"update": "argmax", "order": "reverse"}, best)


def test_a_ratio_needs_positive_probabilities():
    with pytest.raises(NotCertified, match="probability of 0"):
        certify_step(bandit([[0, 1]]), tabular([[0, 1]]), switches())


def test_rows_shared_between_turns_have_no_argmax_step():
    with pytest.raises(NotCertified, match="belong to one turn"):
        start = shared([[0], [0, 0]], [["1/2", "1/2"]])
        rule = {"update": "argmax", "order": "reverse"}
        certify("stuck-sweep", bandit([[[0, 1], [2, 0]]]), start, rule, {"policy": start})


@pytest.mark.parametrize("name", ["ppo", "haml", "happo", "trajectory-ppo", "seeupo-resample"])
def test_what_a_certificate_cannot_state_is_said(name):
    with pytest.raises(NotCertified, match="beyond what a certificate can state"):
        algorithm_json(presets.get(name), 4)


@pytest.mark.parametrize(
    "value", ["1e99999999", "1e-99999999", "1e5000", "1.5", "1_0", "١", " 1", "1/0"]
)
def test_numbers_are_plain_fractions_and_rejected_at_once(value):
    certificate = json.loads((FOLDER / "grpo-step-one-turn.json").read_text(encoding="utf-8"))
    certificate["algorithm"]["lr"] = value
    assert not verifier.verify(certificate).accepted


def test_what_cannot_be_written_is_rejected_not_raised():
    certificate = json.loads((FOLDER / "grpo-step-one-turn.json").read_text(encoding="utf-8"))
    certificate["statement"] = "\ud800"
    assert not verifier.verify(certificate).accepted
