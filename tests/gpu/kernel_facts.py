#!/usr/bin/env python3
"""What the compiler made of every kernel of libtroupe-cuda.so, for each architecture in it: registers, shared memory, stack, spills, and
the instructions of its longest loop (of those with tensor cores' where it has some), tensor cores' and 16-byte loads among them. A table of tests/bench/RESULTS.md; needs no GPU.

    kernel_facts.py MODULE CUOBJDUMP [--no-save]"""
import argparse
import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/bench"))
from common import save  # noqa: E402

# As many as say something: the kernels that a step of decodes or of prompts spends its time in.
SHOWN = ("attend_", "multiply_rows", "multiply_swapped", "merge_pieces", "sample_rows", "rope_heads", "norm_rows", "silu", "add_tiles", "multiply_tiles")


def dumped(cuobjdump, option, module):
    return subprocess.run([cuobjdump, option, module], check=True, capture_output=True, text=True).stdout


def resources(text):
    """{(architecture, kernel): {REG, STACK, SHARED, LOCAL}}"""
    found, architecture, kernel = {}, None, None
    for line in text.splitlines():
        if match := re.match(r"arch = (\S+)", line):
            architecture = match[1]
        elif match := re.match(r" Function (\S+):", line):
            kernel = match[1]
        elif kernel and (pairs := dict(re.findall(r"([A-Z]+):(\d+)", line))):
            found[architecture, kernel] = {name: int(value) for name, value in pairs.items()}
            kernel = None
    return found


def loops(text):
    """{(architecture, kernel): (instructions of the longest loop without another in it, with tensor cores' where there is one; of tensor cores, of 16-byte
    global loads, spills)}"""
    found, architecture, kernel, code = {}, None, None, []

    def tensor_count(body):
        return sum(bool(re.search(r"\bH(G)?MMA\b", words)) for words in body)

    def end():
        if kernel is None:
            return
        back = [(int(target, 16), at) for at, words in code if (target := next(iter(re.findall(r"BRA.* 0x([0-9a-f]+)", words)), None)) and int(target, 16) < at]
        inner = [(begin, at) for begin, at in back if not any(begin <= b and e <= at and (b, e) != (begin, at) for b, e in back)]
        bodies = [[words for at, words in code if begin <= at <= last] for begin, last in inner]
        longest = max(bodies, key=lambda body: (tensor_count(body) > 0, len(body)), default=[])
        spills = sum(bool(re.search(r"\b(STL|LDL)\b", words)) for _, words in code)
        found[architecture, kernel] = (len(longest), tensor_count(longest),
                                       sum(bool(re.search(r"\b(LDG|LDGSTS)\S*\.128\b", words)) for words in longest), spills)
    for line in text.splitlines():
        if match := re.match(r"arch = (\S+)", line):
            end()
            architecture, kernel, code = match[1], None, []
        elif match := re.match(r"\s+Function : (\S+)", line):
            end()
            kernel, code = match[1], []
        elif match := re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?);", line):
            code.append((int(match[1], 16), match[2]))
    end()
    return found


def names(mangled):
    done = subprocess.run(["c++filt"], input="\n".join(mangled), check=True, capture_output=True, text=True).stdout
    return {m: re.sub(r"\(.*|^void |troupe::cuda::|\(anonymous namespace\)::|\w+::(?=\w+<)", "", n.replace("(anonymous namespace)::", "")) for m, n in zip(mangled, done.splitlines())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", type=pathlib.Path)
    parser.add_argument("cuobjdump")
    parser.add_argument("--no-save", action="store_true")
    args = parser.parse_args()
    used = resources(dumped(args.cuobjdump, "--dump-resource-usage", args.module))
    code = loops(dumped(args.cuobjdump, "--dump-sass", args.module))
    named = names(sorted({kernel for _, kernel in used}))
    rows, spilled = [], []
    for (architecture, kernel), facts in sorted(used.items(), key=lambda item: (named[item[0][1]], item[0][0])):
        length, tensor, wide, spills = code.get((architecture, kernel), (0, 0, 0, 0))
        if spills:
            spilled.append(f"{named[kernel]} on {architecture}")
        if any(named[kernel].startswith(name) for name in SHOWN):
            rows.append([named[kernel], architecture, facts.get("REG", 0), facts.get("SHARED", 0), spills, length, tensor, wide])
    if not rows:
        sys.exit(f"{args.module}: no kernel found")
    notes = ["Shared memory is the static part. A loop: from a branch back to its target, without another one in it; the longest of the kernel, or of those with tensor cores' instructions.",
             f"{len({k for _, k in used})} kernels in all; with spills: {', '.join(spilled) or 'none'}."]
    columns = ["kernel", "code", "registers", "shared B", "spill instructions", "instructions of the loop", "of tensor cores", "16-byte loads"]
    if args.no_save:
        print(collections.Counter(architecture for architecture, _ in used), *notes, *rows, sep="\n")
    else:
        save("gpu_kernels", "Kernels as the compiler made them", "tests/gpu/kernel_facts.py build/lib/libtroupe-cuda.so CUOBJDUMP", columns, rows, notes)
    return 1 if spilled else 0


if __name__ == "__main__":
    sys.exit(main())
