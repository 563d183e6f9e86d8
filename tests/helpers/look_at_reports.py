"""Open reports in a browser: ``python tests/helpers/look_at_reports.py FOLDER``.

Looks for script errors and requests, clicks on a table, and leaves screenshots at two widths, light and dark, for
somebody to look at. Not part of the tests: it needs Chromium.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from report_runs import summary_of

from unbag.report import render

SHOWN = ("label_proportions", "multiple_instance", "pairwise_similarity")
HEIGHTS = {1280: 8000, 390: 14000}

# Sorts every table by its first column, twice, and leaves what happened where the page's text can be read.
PROBE = """<script>
const seen = [];
addEventListener("error", event => {
  // Tables that do not fit get a line above them, which changes their size once more.
  if (!event.message.startsWith("ResizeObserver loop")) seen.push("error: " + event.message);
});
addEventListener("securitypolicyviolation", event => seen.push("blocked: " + event.blockedURI));
addEventListener("load", () => {
  for (const table of document.querySelectorAll("table"))
    for (const button of table.querySelectorAll("th button")) {
      const read = () => [...table.tBodies[0].rows].map(row => row.textContent).join("|");
      button.click(); const up = read(); button.click(); const down = read(); button.click();
      if (read() !== up) seen.push("not sorted the same twice: " + table.caption.textContent);
      if (button.parentElement.getAttribute("aria-sort") !== "ascending") seen.push("no aria-sort");
    }
  const wide = document.documentElement.scrollWidth > innerWidth;
  if (wide) seen.push("wider than the screen: " + document.documentElement.scrollWidth + " > " + innerWidth);
  const fetched = performance.getEntriesByType("resource").map(entry => entry.name);
  document.title = JSON.stringify({ seen, fetched, tables: document.querySelectorAll("table").length });
});
</script>"""


def browse(page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Open a page in a headless Chromium that has no network and no memory of earlier runs."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert browser, "no Chromium was found"
    with tempfile.TemporaryDirectory() as profile:
        quiet = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars")
        command = [browser, *quiet, "--proxy-server=127.0.0.1:9", f"--user-data-dir={profile}", *options, page.as_uri()]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def look_at(page: Path, folder: Path) -> list[str]:
    """Return what is wrong with a page; leave pictures of it in a folder."""
    wrong = []
    probed = folder / f"probed-{page.name}"
    probed.write_text(page.read_text().replace("<title>", f"{PROBE}<title>"))
    for width in HEIGHTS:
        found = browse(probed, "--enable-logging=stderr", f"--window-size={width},900", "--dump-dom")
        told = re.search(r"<title>(\{.*?\})</title>", found.stdout)
        wrong += [line for line in found.stderr.splitlines() if "CONSOLE" in line and "ResizeObserver" not in line]
        if told is None:
            wrong.append(f"the page did not load at width {width}")
            continue
        report = json.loads(told.group(1).replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&"))
        wrong += [f"at width {width}: {one}" for one in report["seen"]]
        wrong += [f"fetched {one}" for one in report["fetched"]]
        print(f"{page.name} at {width}: {report['tables']} tables sorted")
    probed.unlink()
    for width, height in HEIGHTS.items():
        for number, mode in enumerate(("dark", "light")):  # as Chromium numbers them
            scheme = f"--blink-settings=preferredColorScheme={number}"
            picture = folder / f"{page.stem}-{width}-{mode}.png"
            browse(page, scheme, f"--window-size={width},{height}", f"--screenshot={picture}")
            if not picture.exists():
                wrong.append(f"no screenshot at width {width}")
    return wrong


def main() -> None:
    """Render, look, and say what was found."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    wrong = []
    for kind in SHOWN:
        page = folder / f"{kind}.html"
        page.write_text(render(summary_of(kind)))
        wrong += [f"{page.name}: {one}" for one in look_at(page, folder)]
    print("\n".join(wrong) or f"nothing wrong; look at the pictures in {folder}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
