"""Looks, captions and files."""

import itertools
import re

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from seeupo_theory import figures
from seeupo_theory.figures import style
from seeupo_theory.rules.presets import PRESETS

# Viénot, Brettel and Mollon 1999: linear RGB as seen without red or without green cones.
DICHROMATS = {
    "protan": [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
    "deutan": [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
}
TABLE_1 = ("ppo", "grpo", "rloo", "gspo", "seeupo")


def linear(colour):
    c = np.asarray(to_rgb(colour))
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    t = np.clip(xyz @ rgb, 0, None) / [0.9505, 1.0, 1.089]
    f = np.where(t > 0.008856, np.cbrt(t), 7.787 * t + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_every_preset_has_a_look_of_its_own():
    assert set(PRESETS) <= set(style.LOOKS)
    looks = [(style.LOOKS[n].colour, str(style.LOOKS[n].dash)) for n in PRESETS]
    assert len(set(looks)) == len(looks)
    markers = [(style.LOOKS[n].colour, style.LOOKS[n].marker) for n in PRESETS]
    assert len(set(markers)) == len(markers)


@pytest.mark.parametrize("eyes", ["normal", *DICHROMATS])
def test_table_1_can_be_told_apart(eyes):
    matrix = np.array(DICHROMATS.get(eyes, np.eye(3)))
    seen = {n: lab(np.clip(matrix @ linear(style.look(n).colour), 0, 1)) for n in TABLE_1}
    for a, b in itertools.combinations(TABLE_1, 2):
        by_colour = np.linalg.norm(seen[a] - seen[b])
        # 2.3 is just noticeable; where colours come close, dash and marker must differ
        differs = style.look(a).marker != style.look(b).marker
        assert by_colour > 10 and differs, (a, b, by_colour)


def test_marks_of_the_grid_differ_in_greyscale_and_carry_signs():
    from seeupo_theory.figures.verdicts import SIGNS, VERDICT_COLOURS

    light = [lab(linear(c))[0] for c in VERDICT_COLOURS.values()]
    assert min(abs(a - b) for a, b in itertools.combinations(light, 2)) > 8
    assert len(set(SIGNS.values())) == 3


def test_unknown_names_take_looks_in_turn():
    assert figures.look("mine", 0) != figures.look("mine", 1)
    assert figures.look("grpo", 5) == style.LOOKS["grpo"]


def test_nothing_global_changes(tmp_path):
    before = dict(mpl.rcParams)
    figure = figures.draw_values([1.0, 2.0], ["a", "b"])
    figures.save(figure, tmp_path / "x.pdf")
    figures.svg(figure)
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize("kind", figures.FORMATS)
def test_files_are_equal_byte_for_byte_and_hold_no_date(tmp_path, kind):
    def made(name):
        return figures.save(figures.draw_values([1.0, 2.0], ["a", "b"]), tmp_path / name)

    first, second = made(f"a.{kind}").read_bytes(), made(f"b.{kind}").read_bytes()
    assert first == second
    assert not re.search(rb"20\d\d-\d\d-\d\dT|CreationDate|\(D:20|<dc:date>", first)
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"a.{kind}", f"b.{kind}"]


def test_pdf_embeds_truetype_and_svg_outlines(tmp_path):
    figure = figures.draw_values([1.0, 2.0], ["a", "b"])
    pdf = figures.save(figure, tmp_path / "x.pdf").read_bytes()
    assert b"/CIDFontType2" in pdf and b"/Type3" not in pdf and b"/FontFile2" in pdf
    assert "<text" not in figures.save(figure, tmp_path / "x.svg").read_text()


def test_saving_is_whole_or_not_at_all(tmp_path, monkeypatch):
    figure = figures.draw_values([1.0, 2.0], ["a", "b"])
    with pytest.raises(ValueError, match=r"\.png, \.pdf or \.svg"):
        figures.save(figure, tmp_path / "x.gif")
    with pytest.raises(OSError):
        figures.save(figure, tmp_path / "no" / "x.png")
    path = figures.save(figure, tmp_path / "x.png")
    kept = path.read_bytes()

    def fail(*args, **kwargs):
        raise RuntimeError("disk")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(RuntimeError):
        figures.save(figure, path)
    assert path.read_bytes() == kept
    assert [p.name for p in tmp_path.iterdir()] == ["x.png"]


def test_the_caption_stands_in_the_figure_and_in_its_file(tmp_path):
    from tests.figures.traces import trace

    figure = figures.learning_curves(trace([[1, 0.5], [1, 0.1]]))
    text = figures.caption(figure)
    assert text == "Mean of 2 seeds; bands are 95 % t intervals of the mean."
    assert figure.get_supxlabel().replace("\n", " ") == text
    assert text.encode() in figures.save(figure, tmp_path / "x.png").read_bytes()


def test_svg_for_pages_follows_the_theme():
    text = figures.svg(figures.draw_values([1.0, 2.0], ["<b>", "$x"]))
    assert text.startswith("<svg") and "prefers-color-scheme: dark" in text
    assert style.INK not in text.replace(f"--ink: {style.INK}", "")
    assert "&lt;b&gt;" in text and "<b>" not in text and "$x" in text


def test_lists_of_names_are_complete():
    for name in figures.__all__:
        assert getattr(figures, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'pie'"):
        figures.pie  # noqa: B018
