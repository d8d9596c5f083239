"""The audit's page: what it holds, and that it works in a real browser."""

import json
import re
import shutil
from html.parser import HTMLParser

import pytest

from seeupo_theory.claims import report
from seeupo_theory.claims.ledger import Ledger, Row
from tests.claims.test_ledger import cell, row

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

DATA = {
    "kind": "lines",
    "x": [2, 4],
    "series": {"measured": [0.5, 0.75]},
    "xlabel": "G",
    "ylabel": "factor",
}
FALL = {
    "name": "C5.a",
    "command": "seeupo step instances/C5.a.model.json",
    "values": [0.5, 0.4],
    "model": {"kind": "bandit", "rewards": [[0, 1]]},
}


def mark(preset, question, verdict, turns="ST", **changes):
    made = cell(preset, question, verdict, "instance" if verdict == "refuted" else "proof", turns)
    return Row(**{**made.to_dict(), "assumptions": (), **changes})


def ledger(*rows):
    return Ledger(
        (
            row(figure=DATA, numbers={"factor": {"2": 0.5, "4": 0.75}}),
            row(id="C5.a", claim="C5", verdict="refuted", established="instance", instance=FALL,
                differs=True),
            row(id="C9.m", claim="C9", verdict="inconclusive", established="outside", proofs=()),
            mark("grpo", "monotone", "refuted", instance=FALL, differs=True),
            mark("grpo", "global", "holds"),
            mark("grpo", "monotone", "inconclusive", "MT"),
            mark("seeupo", "monotone", "holds"),
            mark("seeupo", "global", "refuted", instance=FALL),
            mark("seeupo", "monotone", "holds", "MT"),
            mark("seeupo", "global", "inconclusive", "MT"),
            *rows,
        ),
        "quick",
    )  # fmt: skip


EVIL = "<script>window.pwned = 1</script>\"'><img src=x onerror=window.pwned=1>${x}{{ 7 * 7 }}"


def hostile():
    """A row whose every word tries to become markup or a template."""
    instance = {"name": EVIL, "command": EVIL, "model": {"name": EVIL}, "values": [1.0, 0.5]}
    figure = {**DATA, "series": {EVIL: [0.5, 0.75]}, "xlabel": EVIL, "ylabel": EVIL}
    return row(
        id=f"C8.{EVIL}", claim="C8", statement=EVIL, source=EVIL, paper=EVIL, assumptions=(EVIL,),
        verdict="refuted", evidence=EVIL, numbers={EVIL: EVIL}, proofs=(EVIL,), instance=instance,
        certificates=(EVIL,), figure=figure,
    )  # fmt: skip


class Tags(HTMLParser):
    """Counts of tags and all attributes."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]


@pytest.fixture(scope="module")
def page():
    return report.render(ledger())


def test_a_row_stands_in_the_page_with_all_it_has(page):
    for text in (
        "The mean is right.", "Eq. 9", "baseline-invariance", "seeupo audit --claim C4.loo --quick",
        "seeupo step instances/C5.a.model.json", "factor · 4", "0.75", "differs from the paper",
        "grpo: monotone improvement (single turn, independent tables, infinite group, random reward)",
    ):  # fmt: skip
        assert text in page, text


def test_nothing_is_fetched(page):
    tags = Tags(page)
    links = [v for _, name, v in tags.attributes if name in ("src", "href", "action", "srcset")]
    assert links and all(v.startswith(("data:", "#")) for v in links)
    assert "http:" not in page and "https:" not in page and "@import" not in page
    policy = next(v for _, name, v in tags.attributes if name == "content" and "src" in v)
    assert policy.startswith("default-src 'none'; img-src data:;") and "unsafe" not in policy


def test_tables_and_labels_are_real(page):
    tags = Tags(page)
    assert tags.tags.count("caption") >= 3 and "fieldset" in tags.tags and "dialog" in tags.tags
    scopes = [v for tag, name, v in tags.attributes if tag == "th" and name == "scope"]
    assert len(scopes) == tags.tags.count("th")
    alts = [v for tag, name, v in tags.attributes if tag == "img" and name == "alt"]
    assert len(alts) == tags.tags.count("img") > 0 and all(alts)
    ids = [v for _, name, v in tags.attributes if name == "id"]
    assert len(ids) == len(set(ids))


def test_headings_of_the_grid_span_its_columns(page):
    table = page[page.index('<table class="grid"') : page.index("</table>")]
    heads = re.findall(r"<tr>(.*?)</tr>", table[: table.index("</thead>")], re.S)
    spans = [re.findall(r"<th scope=\"col(?:group)?\"(?: colspan=\"(\d+)\")?>", h) for h in heads]
    assert [sum(int(s or 1) for s in line) for line in spans] == [8, 8, 8]


def test_no_word_of_a_ledger_becomes_markup():
    clean, dirty = (
        Tags(report.render(ledger(row(id="C8.x", claim="C8")))),
        report.render(ledger(hostile())),
    )
    tags = Tags(dirty)
    assert tags.tags.count("script") == clean.tags.count("script") == 1
    assert not [a for a in tags.attributes if a[1].startswith("on")]
    assert "&lt;script&gt;window.pwned" in dirty
    assert "{{ 7 * 7 }}" in dirty


def test_the_same_ledger_gives_the_same_page():
    assert report.render(ledger()) == report.render(ledger())


def test_it_is_written_beside_the_ledger_and_empty_ledgers_are_fine(tmp_path):
    path = report.write(Ledger(()), tmp_path)
    assert path == tmp_path / "report.html"
    text = path.read_text(encoding="utf-8")
    assert "no rows of Table 1" in text and "no claims" in text
    with pytest.raises(OSError):
        report.write(Ledger(()), tmp_path / "missing")


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine (Debian package chromium)")
    sync = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    with sync.sync_playwright() as play:
        started = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    made = {}
    for name, content in {"plain": ledger(), "hostile": ledger(hostile())}.items():
        (folder / name).mkdir()
        made[name] = report.write(content, folder / name).as_uri()
    return made


@pytest.fixture
def visit(browser, files):
    opened = []

    def go(name="plain", fragment="", **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        tab = context.new_page()
        errors, requests = [], []
        tab.on("console", lambda m: errors.append(m.text) if m.type != "log" else None)
        tab.on("pageerror", lambda e: errors.append(str(e)))
        tab.on("request", lambda r: requests.append(r.url))
        tab.goto(files[name] + fragment)
        opened.append((context, errors, requests))
        return tab

    yield go
    for context, errors, requests in opened:
        assert errors == []
        assert all(url.startswith(("file:", "data:")) for url in requests)
        context.close()


def shown(tab):
    return tab.locator("[data-row]:visible").count()


def test_it_opens_and_every_image_loads(visit):
    tab = visit()
    states = tab.evaluate("[...document.images].map(i => [i.complete, i.naturalWidth])")
    assert len(states) == 4  # the figure of C4.loo, and three instances
    assert all(complete and width > 0 for complete, width in states)
    assert tab.locator("#rows").is_hidden()


def test_a_click_shows_all_of_a_row(visit):
    tab = visit()
    tab.get_by_role("button", name=re.compile("^grpo: monotone.*single turn.*refuted")).click()
    dialog = tab.get_by_role("dialog")
    text = dialog.inner_text()
    for part in ("grpo: monotone improvement", "refuted", "Evidence", "Assumptions", "Numbers"):
        assert part in text
    assert "seeupo step instances/C5.a.model.json" in text
    assert dialog.locator("img").is_visible()
    assert "differs from the paper" in text
    tab.get_by_role("button", name="Next").click()
    assert "grpo: global convergence" in dialog.inner_text()
    tab.get_by_role("button", name="Close").click()
    assert tab.get_by_role("dialog").count() == 0


def test_filters_by_algorithm_verdict_and_difference(visit):
    tab = visit()
    assert shown(tab) == 10
    tab.get_by_label("Algorithm").select_option("seeupo")
    assert shown(tab) == 4
    assert tab.get_by_role("status").inner_text() == "4 of 10 rows shown"
    tab.get_by_label("holds", exact=False).first.uncheck()
    assert shown(tab) == 2
    tab.get_by_role("button", name="Show all").click()
    tab.wait_for_function("document.getElementById('count').textContent.startsWith('10 of')")
    assert shown(tab) == 10
    tab.get_by_label("only where it differs").check()
    assert shown(tab) == 2
    tab.get_by_role("button", name=re.compile("^grpo: monotone")).click()
    # what is filtered away is skipped by "next" too
    tab.get_by_role("button", name="Next").click()
    assert "C5.a" in tab.get_by_role("dialog").inner_text()


def focused(tab):
    return tab.evaluate("document.activeElement.getAttribute('aria-label')")


def test_the_keyboard_reaches_everything(visit):
    tab = visit()
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.className") == "skip"
    for _ in range(30):
        tab.keyboard.press("Tab")
        if (focused(tab) or "").startswith("grpo: monotone"):
            break
    else:
        pytest.fail("Tab never reached the grid")
    tab.keyboard.press("ArrowRight")
    assert focused(tab).startswith("grpo: global")
    tab.keyboard.press("ArrowDown")
    assert focused(tab).startswith("seeupo: global")
    tab.keyboard.press("Home")
    assert focused(tab).startswith("seeupo: monotone")
    tab.keyboard.press("Enter")
    assert "seeupo: monotone" in tab.get_by_role("dialog").inner_text()
    tab.keyboard.press("ArrowRight")
    assert "seeupo: global" in tab.get_by_role("dialog").inner_text()
    tab.keyboard.press("Escape")
    assert tab.get_by_role("dialog").count() == 0
    assert focused(tab).startswith("seeupo: global")
    # a grid is one stop: the next Tab leaves it
    tab.keyboard.press("Tab")
    assert "mark" not in tab.evaluate("document.activeElement.className")


def test_a_link_to_a_row_opens_it(visit):
    tab = visit(fragment="#row-C5.a")
    assert "seeupo step" in tab.get_by_role("dialog").inner_text()


def test_no_script_of_a_ledger_runs(visit):
    tab = visit("hostile")
    tab.locator("button.open").nth(3).click()
    assert "<script>window.pwned = 1</script>" in tab.get_by_role("dialog").inner_text()
    tab.wait_for_timeout(100)
    assert tab.evaluate("window.pwned") is None
    sizes = tab.evaluate("[...document.images].map(i => i.naturalWidth)")
    assert all(sizes) and len(sizes) == 6


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_follows_the_theme(visit, scheme):
    size = {"width": 390, "height": 800}
    tab = visit(viewport=size, color_scheme=scheme)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    small = tab.evaluate(
        "[...document.querySelectorAll('button, select')].filter(b => b.offsetParent)"
        ".filter(b => b.offsetWidth < 24 || b.offsetHeight < 24).map(b => b.textContent)"
    )
    assert small == []
    light = tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert light == (scheme == "light")
    tab.locator("button.open").first.click()
    box = tab.get_by_role("dialog").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 390
    assert tab.evaluate("document.getElementById('detail').scrollWidth") <= box["width"]


def test_text_can_be_read_on_its_ground(visit):
    """WCAG AA: 4.5 to 1, of every mark, badge and paragraph, in both themes."""
    contrast = """() => {
      const lum = (c) => { const v = c.match(/[\\d.]+/g).slice(0, 3).map((x) => { x /= 255;
        return x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4; });
        return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2]; };
      const ground = (e) => { for (; e; e = e.parentElement) {
        const c = getComputedStyle(e).backgroundColor;
        if (!/, 0\\)$/.test(c)) return c; } return "rgb(255, 255, 255)"; };
      return Math.min(...[...document.querySelectorAll(
        ".mark, .badge, p, td, th, label, .open, #count, h1")]
        .filter((e) => e.offsetParent && e.textContent.trim()).map((e) => {
          const a = lum(getComputedStyle(e).color), b = lum(ground(e));
          return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); })); }"""
    for scheme in ("light", "dark"):
        assert visit(color_scheme=scheme).evaluate(contrast) >= 4.5


def test_printed_it_has_every_row_on_white(visit):
    tab = visit(color_scheme="dark")
    tab.emulate_media(media="print")
    assert tab.locator("#rows article").count() == 10
    assert tab.locator("#rows").is_visible() and tab.locator("#filters").is_hidden()
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_without_scripts_the_rows_stand_in_full(visit):
    tab = visit(java_script_enabled=False)
    assert tab.locator("#rows").is_visible() and tab.locator("#filters").is_hidden()
    assert "all rows stand in full" in tab.locator(".noscript").inner_text()


def test_the_ledger_file_and_the_page_agree(tmp_path):
    made = ledger()
    made.write(tmp_path)
    text = report.write(made, tmp_path).read_text(encoding="utf-8")
    for entry in json.loads((tmp_path / "ledger.json").read_text(encoding="utf-8"))["rows"]:
        assert f'id="row-{entry["id"]}" class=' in text
        assert f'data-verdict="{entry["verdict"]}"' in text
