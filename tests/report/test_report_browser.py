"""The report in headless Chromium, at the width of a phone and of a desk: no error, nothing wider than the screen."""

import json
import re
import shutil
import subprocess
from html import escape, unescape

import numpy as np
import pytest

from rewards.report.page import write_report
from rewards.runs.metrics import MetricsLog
from tests.report.test_report import tifa_run

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")]

LISTEN = """<script>
window.found = [];
addEventListener("error", (event) => found.push(String(event.message)));
console.error = (...words) => found.push(words.join(" "));
</script>"""
MEASURE = """
const page = frame.contentDocument, root = page.documentElement, cut = [];
page.querySelectorAll("details").forEach((part) => { part.open = true; });
for (const svg of page.querySelectorAll("figure svg")) {
  const box = svg.getBoundingClientRect();
  svg.dispatchEvent(new frame.contentWindow.PointerEvent("pointermove", {clientX: box.x + 200, clientY: box.y + 50}));
  for (const label of svg.querySelectorAll("text")) {
    const r = label.getBoundingClientRect();
    if (r.left < box.left || r.right > box.right + 0.5 || r.bottom > box.bottom) cut.push(label.textContent);
  }
}
const found = {errors: frame.contentWindow.found, wide: root.scrollWidth > root.clientWidth, cut,
               charts: page.querySelectorAll("figure svg").length,
               tips: page.querySelectorAll(".tip:not([hidden])").length};
document.title = JSON.stringify(found);
"""


def look(report, width, tmp_path):
    """What the browser finds in the page when its screen is so wide; media queries see the frame's width."""
    page = escape(report.page.read_text(encoding="utf-8").replace("<title>", LISTEN + "<title>", 1), quote=True)
    wrapper = tmp_path / "wrapper.html"
    wrapper.write_text(
        f'<!doctype html><meta charset="utf-8"><title></title><script>function measure(frame) {{{MEASURE}}}</script>'
        f'<iframe width="{width}" height="900" style="border:0" onload="measure(this)" srcdoc="{page}"></iframe>',
        encoding="utf-8",
    )
    flags = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync --window-size=1400,1000"
    )
    command = [CHROMIUM, *flags.split(), f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", wrapper.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return json.loads(unescape(re.search(r"<title>(.*?)</title>", done.stdout, re.S)[1]))


def long_run(folder):
    rng = np.random.default_rng(0)
    folder.mkdir()
    values = zip(rng.normal(0.5, 0.1, 100_000).tolist(), rng.integers(0, 9, 100_000).tolist())
    with open(folder / "metrics.jsonl", "w") as file:
        for step, (value, count) in enumerate(values):
            part = (
                {"rewards/R/color/mean": value if count else None, "rewards/R/color/count": count} if step % 7 else {}
            )
            row = {"step": step, "rewards/R/overall/mean": value, "rewards/R/abstained": 8 - count, **part}
            file.write(json.dumps(row | {"policy/ratio": 1 + value * 1e-4}) + "\n")
    return folder


def one_point(folder):
    MetricsLog(folder / "metrics.jsonl").append(1, {"rewards/R/overall/mean": 0.5, "policy/kl": 0.0012})
    return folder


def empty(folder):
    folder.mkdir()
    return folder


@pytest.mark.timeout(900)
@pytest.mark.parametrize("make", [tifa_run, empty, one_point, long_run])
def test_page_at_two_widths(tmp_path, make):
    run = make(tmp_path / "run")
    second = tifa_run(tmp_path / "second", offset=0.1)
    for runs in ([run], [run, second]):
        report = write_report(runs, tmp_path / "out")
        for width in (390, 1280):
            found = look(report, width, tmp_path)
            assert found["errors"] == [] and found["cut"] == [], found
            assert not found["wide"]
            assert found["tips"] == found["charts"]
            assert found["charts"] > 0 or make is empty
