"""A page goes into headless Chromium; what it looks like there comes out as numbers."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

NAMES = ("chrome-headless-shell", "chromium-headless-shell", "chromium", "google-chrome")
# Runs in the page: what a reader would stumble over.
_SCRIPT = """
<script>
const root = document.documentElement;
const channels = (text) => text.match(/[0-9.]+/g).map(Number);
const bright = (text) => channels(text).slice(0, 3).reduce((a, b) => a + b) / 765;
const seen = (element) => {  // the first opaque background behind an element
  for (let e = element; e; e = e.parentElement) {
    const c = channels(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0.9) return getComputedStyle(e).backgroundColor;
  }
  return null;
};
const page = seen(document.body) || getComputedStyle(root).backgroundColor;
const canvas = matchMedia("(prefers-color-scheme: dark)").matches ? 0.07 : 1;
const texts = [...document.querySelectorAll("h1, h2, p, li, td, th")].filter((e) => e.innerText);
const contrast = (e) => Math.abs(bright(getComputedStyle(e).color) - canvas);
const labels = [...document.querySelectorAll("svg text")];
const faint = (t) => Math.abs(bright(getComputedStyle(t).fill) - canvas);
const outside = labels.filter((t) => {
  const a = t.getBoundingClientRect(), b = t.ownerSVGElement.getBoundingClientRect();
  const across = a.left < b.left - 1 || a.right > b.right + 1;
  return across || a.top < b.top - 1 || a.bottom > b.bottom + 1;
});
const overlapping = [];
for (const svg of document.querySelectorAll("svg")) {
  const boxes = [...svg.querySelectorAll("text")].map((t) => [t, t.getBoundingClientRect()]);
  for (let i = 0; i < boxes.length; i++)
    for (let k = i + 1; k < boxes.length; k++) {
      const [s, a] = boxes[i], [t, b] = boxes[k];
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const tall = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 2 && tall > 4) overlapping.push(`${s.textContent} / ${t.textContent}`);
    }
}
document.title = "measured:" + JSON.stringify({
  width: root.clientWidth,
  scroll: root.scrollWidth,
  dark: matchMedia("(prefers-color-scheme: dark)").matches,
  contrast: Math.min(...texts.map(contrast)),
  faintest: texts.sort((a, b) => contrast(a) - contrast(b))[0].innerText,
  labels: labels.length,
  label_contrast: Math.min(1, ...labels.map(faint)),
  outside: outside.map((t) => t.textContent),
  overlapping,
  rows: document.querySelectorAll("tr").length,
});
</script>
"""


def browser() -> str | None:
    """An executable: what ANYMETAL_TEST_BROWSER names, or one that is installed."""
    given = os.environ.get("ANYMETAL_TEST_BROWSER")
    return given or next(filter(None, map(shutil.which, NAMES)), None)


def measured(html: str, folder: Path, *, dark: bool, width: int = 1200) -> dict[str, Any]:
    """The page in a window of this width, in light or dark; a screenshot stays in the folder."""
    executable = browser()
    assert executable is not None
    file = folder / "page.html"
    file.write_text(html.replace("</html>", f"{_SCRIPT}</html>"))
    result = subprocess.run(
        [
            executable,
            *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *("--virtual-time-budget=2000", f"--window-size={width},1600"),
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            f"--user-data-dir={folder / 'browser'}",
            *("--enable-logging=stderr", f"--screenshot={folder / 'page.png'}", "--dump-dom"),
            file.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = re.search(r"<title>measured:(\{.*?\})</title>", result.stdout, re.DOTALL)
    assert found is not None, (result.stdout[:2000], result.stderr[-2000:])
    assert "CONSOLE" not in result.stderr, result.stderr
    values: dict[str, Any] = json.loads(found[1].replace("&amp;", "&").replace("&lt;", "<"))
    return values
