#!/usr/bin/env python3
"""Every policy on the same persona traffic, simulated: writes tests/bench/results/policies.json and the picture in the README,
tests/bench/policies.png: the top of the page that `troupe-sim compare --html` writes, as Chromium (Debian's package) shows it.

The traffic: 1,000 personas of 1,000 tokens (Zipf .9), 400 requests/s, one minute after a warm-up of 140 s, 16 nodes of profile
`study`, one gateway. The same seed gives the same figures."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

from common import BIN, ROOT, save

FLAGS = ["--policies", "all", "--personas", 1000, "--rate", 400, "--duration-s", 200, "--warmup-s", 140, "--nodes", 16, "--seed", 1]
PICTURE = ROOT / "tests/bench/policies.png"
WIDTH, HEIGHT, SCALE = 1180, 1184, 0.75  # of the top part of the page: the table and the first plot


def browser():
    """Chromium's path; Debian's package where there is none."""
    if not shutil.which("chromium"):
        subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", "chromium"], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    return shutil.which("chromium")


def take_picture(page, folder):
    """The page's top part, explanations folded, as a browser shows it by day."""
    folded = folder / "folded.html"
    folded.write_text(page.read_text("utf-8").replace("<details open>", "<details>"), "utf-8")
    subprocess.run([browser(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--blink-settings=preferredColorScheme=1",
                    f"--user-data-dir={folder}/profile", f"--force-device-scale-factor={SCALE}", f"--window-size={WIDTH},{HEIGHT}",
                    "--virtual-time-budget=3000", f"--screenshot={PICTURE}", folded.as_uri()],
                   check=True, timeout=120, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main():
    with tempfile.TemporaryDirectory() as name:
        page = pathlib.Path(name) / "page.html"
        command = [str(BIN / "troupe-sim"), "compare", *map(str, FLAGS), "--report", "-", "--html", str(page)]
        runs = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)["runs"]
        take_picture(page, page.parent)
    runs.sort(key=lambda run: -run["hit_tokens"])
    columns = ["policy", "prompt tokens cached", "TTFT p50 ms", "p90", "p99", "work CoV over 100 s", "goodput"]
    rows = [[run["policy"], f'{run["hit_tokens"]:.3f}', *(f'{run["ttft_ms"][p]:.0f}' for p in ("p50", "p90", "p99")),
             f'{run["work_cov"]:.3f}', f'{run["goodput"]:.3f}'] for run in runs]
    save("policies", "Policies on the same persona traffic, simulated", "tests/bench/policies.py", columns, rows,
         [f"troupe-sim compare {' '.join(map(str, FLAGS))}", f"One cache of all nodes' memory would have found {runs[0]['pooled_lru_hit']:.3f}.",
          "Goodput: share of requests with TTFT within 500 ms and 30 ms a token."])


if __name__ == "__main__":
    main()
