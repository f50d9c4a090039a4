"""Take the picture of the README: the start page of a running app, in a headless Chromium.

make app                                             # in one terminal
.venv/bin/python tools/screenshot.py docs/start.png  # in another
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright


def main() -> int:
    """Open the page, wait for the result of the search, and save a picture of the screen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--url", default="http://127.0.0.1:8501")
    arguments = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.stderr.write("error: chromium: is not installed\n")
        return 2
    arguments.out.parent.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(arguments.url)
        page.get_by_text("faster").first.wait_for(timeout=60_000)
        page.wait_for_timeout(1_500)
        page.screenshot(path=arguments.out)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
