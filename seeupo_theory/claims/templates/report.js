"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const dialog = $("detail");
  const body = $("body");
  const filters = $("filters");
  const openers = Array.from(document.querySelectorAll("[data-row]"));
  let current = null;

  document.documentElement.classList.add("js");

  // Detail: a copy of the row's article, without ids that would then stand twice in the page.
  const show = (opener) => {
    const article = $(opener.dataset.row);
    const copy = article.cloneNode(true);
    copy.removeAttribute("id");
    copy.removeAttribute("aria-labelledby");
    copy.querySelectorAll("[id]").forEach((node) => node.removeAttribute("id"));
    copy.querySelector("h3").id = "detail-title";
    body.replaceChildren(copy);
    current = opener;
    const visible = shown();
    $("back").disabled = visible.indexOf(opener) <= 0;
    $("next").disabled = visible.indexOf(opener) === visible.length - 1;
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
    history.replaceState(null, "", "#" + encodeURIComponent(opener.dataset.row));
  };
  const isShown = (opener) =>
    !opener.classList.contains("off") && !opener.closest("tr").hidden;
  const shown = () => openers.filter(isShown);
  const move = (by) => {
    const visible = shown();
    const next = visible[visible.indexOf(current) + by];
    if (next) show(next);
  };
  openers.forEach((opener) => opener.addEventListener("click", () => show(opener)));
  $("close").addEventListener("click", () => dialog.close());
  $("back").addEventListener("click", () => move(-1));
  $("next").addEventListener("click", () => move(1));
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.target.closest("pre")) return;
    if (event.key === "ArrowLeft") move(-1);
    if (event.key === "ArrowRight") move(1);
  });
  dialog.addEventListener("close", () => {
    history.replaceState(null, "", location.pathname + location.search);
    if (!current) return;
    const mark = current;
    current = null;
    if (mark.classList.contains("mark")) rove(mark.closest("table"), mark);
    mark.focus();
  });

  // Copy buttons live in articles and in copies of them, so one listener serves all.
  document.addEventListener("click", async (event) => {
    const button = event.target.closest(".copy");
    if (!button) return;
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.firstChild.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.firstChild.textContent = "Selected";
    }
  });

  // One tab stop a grid; arrow keys go to the nearest mark that is shown.
  const marks = (row) => Array.from(row.querySelectorAll(".mark"));
  const rove = (table, chosen) => {
    table.querySelectorAll(".mark").forEach((mark) => { mark.tabIndex = mark === chosen ? 0 : -1; });
  };
  const entry = (table) => {
    const all = Array.from(table.querySelectorAll(".mark"));
    rove(table, all.find(isShown) || null);
  };
  const target = (table, from, key) => {
    const rows = Array.from(table.tBodies[0].rows).filter((row) => !row.hidden);
    const at = rows.indexOf(from.closest("tr"));
    const line = marks(rows[at]).filter(isShown);
    const here = line.indexOf(from);
    if (key === "ArrowLeft") return line[here - 1];
    if (key === "ArrowRight") return line[here + 1];
    if (key === "Home") return line[0];
    if (key === "End") return line[line.length - 1];
    const step = key === "ArrowUp" ? -1 : 1;
    const column = marks(rows[at]).indexOf(from);
    for (let next = at + step; next >= 0 && next < rows.length; next += step) {
      const all = marks(rows[next]);
      const near = all.filter(isShown).sort(
        (a, b) => Math.abs(all.indexOf(a) - column) - Math.abs(all.indexOf(b) - column))[0];
      if (near) return near;
    }
    return undefined;
  };
  const KEYS = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"];
  document.querySelectorAll("table.grid").forEach((table) => {
    entry(table);
    table.addEventListener("focusin", (event) => {
      if (event.target.classList.contains("mark")) rove(table, event.target);
    });
    table.addEventListener("keydown", (event) => {
      const from = event.target.closest(".mark");
      if (!from || !KEYS.includes(event.key) || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      const next = target(table, from, event.key);
      if (next) next.focus();
    });
  });

  // Filters
  const apply = () => {
    const algorithm = $("algorithm").value;
    const verdicts = new Set(
      Array.from(filters.querySelectorAll("[name=verdict]:checked"), (box) => box.value));
    const differs = $("differs").checked;
    const fits = (row) => verdicts.has(row.dataset.verdict)
      && (!differs || row.dataset.differs === "yes");
    document.querySelectorAll("table.grid tbody tr").forEach((row) => {
      row.hidden = algorithm !== "" && row.dataset.algorithm !== algorithm;
      marks(row).forEach((mark) => mark.classList.toggle("off", !fits($(mark.dataset.row))));
    });
    document.querySelectorAll("table.claims tbody tr").forEach((row) => {
      row.hidden = algorithm !== "" || !fits(row);
    });
    document.querySelectorAll("table.grid").forEach(entry);
    $("count").textContent = `${shown().length} of ${openers.length} rows shown`;
  };
  filters.addEventListener("change", apply);
  filters.addEventListener("submit", (event) => event.preventDefault());
  filters.addEventListener("reset", () => setTimeout(apply));
  apply();

  // A link to a row opens it.
  const linked = () => {
    const id = decodeURIComponent(location.hash.slice(1));
    const opener = openers.find((each) => each.dataset.row === id);
    if (opener) show(opener);
  };
  addEventListener("hashchange", linked);
  linked();
})();
