#!/usr/bin/env python3
"""Kernel speeds of the cpu backend, each as a share of what the machine can do in the same run (read loop, oneDNN's own large
product): runs build/bin/kernels_bench and keeps its table."""
import argparse
import re
import subprocess

from common import BIN, save


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    out = subprocess.run([BIN / "kernels_bench", str(args.threads)], capture_output=True, text=True, timeout=300, check=True).stdout
    header, *lines = out.splitlines()
    rows = []
    for line in lines:
        match = re.match(r"(.+?)\s{2,}(\d+)\s+(\d+)\s+([\d.]+) (\S+)(?:\s+(.+?)\s+([\d.]+)\s+ratio ([\d.]+))?$", line)
        if not match:
            raise SystemExit(f"error: kernels_bench printed a line of another form: {line!r}")
        what, a, b, speed, unit, peer, peer_speed, ratio = match.groups()
        rows.append([what, f"{a} × {b}", f"{speed} {unit}", f"{peer} {peer_speed}" if peer else "", f"**{ratio}**" if ratio else ""])
    save("kernels", "Kernels of the cpu backend", "tests/bench/kernels.py", ["op", "shape", "speed", "beside it in the same run", "ratio"], rows,
         [header + ".", "A decode product has one row and is bound by reading its weights; goal of the product 0.9. Decode attention reads KV in blocks "
          "that lie anywhere; it is the part furthest from its bound."])


if __name__ == "__main__":
    main()
