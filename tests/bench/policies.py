#!/usr/bin/env python3
"""Every policy on the same persona traffic, simulated: writes tests/bench/results/policies.json and the picture in the README,
tests/bench/policies.svg. The same seed gives the same bytes.

The traffic: 1,000 personas of 1,000 tokens (Zipf .9), 400 requests/s, one minute after a warm-up of 140 s, 16 nodes of profile
`study`, one gateway. `troupe-sim compare --html page.html` with these flags gives the page behind it."""
import json
import subprocess

from common import BIN, ROOT, save

FLAGS = ["--policies", "all", "--personas", 1000, "--rate", 400, "--duration-s", 200, "--warmup-s", 140, "--nodes", 16, "--seed", 1]
PICTURE = ROOT / "tests/bench/policies.svg"
WIDTH, ROW, TOP, LEFT, BAR = 760, 24, 44, 170, 360


def text(x, y, words, anchor="start", fill="#333", weight="normal"):
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{fill}" font-weight="{weight}">{words}</text>'


def picture(runs):
    """Bars: prompt tokens found cached; the line: what one cache of all nodes' memory would have found."""
    bound = runs[0]["pooled_lru_hit"]
    height = TOP + ROW * len(runs) + 14
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
             'font-family="sans-serif" font-size="13"><rect width="100%" height="100%" fill="#fff"/>',
             text(LEFT, 18, "prompt tokens found cached"), text(LEFT + BAR + 100, 18, "TTFT p90, ms", "end"),
             text(LEFT + BAR + 200, 18, "work CoV", "end"),
             text(LEFT + BAR * bound, 34, f"one cache of all memory: {bound:.3f}", "end", "#888")]
    for index, run in enumerate(runs):
        y, own = TOP + ROW * index, run["policy"] == "affinity"
        parts += [text(LEFT - 10, y + 15, run["policy"], "end", weight="bold" if own else "normal"),
                  f'<rect x="{LEFT}" y="{y + 3}" width="{BAR * run["hit_tokens"]:.1f}" height="{ROW - 8}" fill="{"#2a6f97" if own else "#a9c4d6"}"/>',
                  text(LEFT + 6, y + 15, f'{run["hit_tokens"]:.3f}', fill="#fff" if own else "#333"),
                  text(LEFT + BAR + 100, y + 15, f'{run["ttft_ms"]["p90"]:.0f}', "end"),
                  text(LEFT + BAR + 200, y + 15, f'{run["work_cov"]:.2f}', "end")]
    parts.append(f'<line x1="{LEFT + BAR * bound:.1f}" x2="{LEFT + BAR * bound:.1f}" y1="{TOP - 4}" y2="{height - 10}" stroke="#888" stroke-dasharray="4 3"/>')
    return "\n".join(parts) + "\n</svg>\n"


def main():
    command = [str(BIN / "troupe-sim"), "compare", *map(str, FLAGS), "--report", "-"]
    runs = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)["runs"]
    runs.sort(key=lambda run: -run["hit_tokens"])
    PICTURE.write_text(picture(runs), "utf-8")
    columns = ["policy", "prompt tokens cached", "TTFT p50 ms", "p90", "p99", "work CoV over 100 s", "goodput"]
    rows = [[run["policy"], f'{run["hit_tokens"]:.3f}', *(f'{run["ttft_ms"][p]:.0f}' for p in ("p50", "p90", "p99")),
             f'{run["work_cov"]:.3f}', f'{run["goodput"]:.3f}'] for run in runs]
    save("policies", "Policies on the same persona traffic, simulated", "tests/bench/policies.py", columns, rows,
         [f"troupe-sim compare {' '.join(map(str, FLAGS))}", f"One cache of all nodes' memory would have found {runs[0]['pooled_lru_hit']:.3f}.",
          "Goodput: share of requests with TTFT within 500 ms and 30 ms a token."])


if __name__ == "__main__":
    main()
