"""Reports in a real browser, judged by axe-core: in light and dark, on a screen and on a phone.

Needs Chromium, and axe-core from npm, which neither pip nor this project installs::

    npm install axe-core
    export TRELLIS_AXE=node_modules/axe-core/axe.min.js
    .venv/bin/python -m pytest tests/apps/pages/test_accessibility.py
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from trellis.apps import run
from trellis.apps.pages.report import write_index

AXE = os.environ.get("TRELLIS_AXE", "")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WIDTHS = {"screen": 1280, "phone": 500}  # the narrowest window Chromium opens
JUDGE = """
<script>{axe}</script>
<script>
axe.run().then(found => {{
  const told = found.violations.map(v => [v.impact, v.id, v.nodes[0].html]);
  const wide = document.documentElement.scrollWidth > document.documentElement.clientWidth + 1;
  const element = document.createElement("pre");
  element.id = "judged";
  element.textContent = JSON.stringify({{told, wide}});
  document.body.appendChild(element);
}});
</script>
"""

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and AXE and Path(AXE).is_file()),
    reason="needs chromium, and TRELLIS_AXE naming axe.min.js of npm's axe-core",
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    small = {
        "consensus-graph": {"nodes": 6, "clients": 3, "rounds": 3},
        "cluster-admm": {
            "clients": 12,
            "servers": 3,
            "topology": "ring",
            "features": 4,
            "rounds": 25,
        },
        "joint-precision": {"variables": 6, "blocks": 2, "rounds": 5},
        "server-graph": {"clients": 9, "servers": 3, "topology": "ring", "rounds": 25},
    }
    results = [run(study, settings, out=folder / study) for study, settings in small.items()]
    write_index(results, folder / "index.html")
    return [folder / "index.html", *(folder / study / "report.html" for study in small)]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_finding_in_any_page(pages, scheme, width, tmp_path):
    for page in pages:
        judged = judge(page, tmp_path, scheme, WIDTHS[width])
        assert judged["told"] == [], f"{page}: {judged['told']}"
        assert not judged["wide"], f"{page} is wider than the screen"


def judge(page, folder, scheme, width):
    # The page itself forbids scripts; the copy that is judged does not.
    text = re.sub(r"<meta http-equiv[^>]*>", "", page.read_text())
    copy = folder / "copy.html"
    copy.write_text(text.replace("</body>", JUDGE.format(axe=Path(AXE).read_text()) + "</body>"))
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900"]
    if scheme == "dark":
        options.append("--blink-settings=preferredColorScheme=0")
    options += [f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=30000"]
    command = [CHROMIUM, *options, "--dump-dom", copy.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    found = re.search(r'<pre id="judged">(.*?)</pre>', done.stdout, re.S)
    assert found, done.stderr[-500:]
    return json.loads(html.unescape(found.group(1)))
