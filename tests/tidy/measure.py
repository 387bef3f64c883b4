#!/usr/bin/env python3
"""The code in figures, of any revision, so that a before and an after can be quoted.

    tests/tidy/measure.py [REV]     of a commit, or without REV of the files as they lie here

Product code is C++ and CUDA outside tests/ and examples/. A unit is x.h with x.cc (and its x_impl.h); comments are counted by lines
of their own and, after the plus, by lines of code that carry one. Touch counts are how many files name one chosen example of its
kind: what adding another one would touch.
"""
import collections
import io
import pathlib
import re
import statistics
import subprocess
import sys
import tarfile

import shape
import source

ROOT = pathlib.Path(__file__).resolve().parents[2]
ASSERT = re.compile(r"\b(?:assert|static_assert|require|check_failed|TROUPE_CHECK|abort)\s*\(")
# Openings that make a reader wait for the subject.
OPENING = re.compile(r"\s*(What|Of|Where|How|From|As|In|For|Who|By|Until|So|Which|Those|Whose|Whoever)\b")
TOUCHED = {
    "model family (baichuan)": r"baichuan", "op (silu_mul)": r"silu_?mul|SiluMul", "policy (chwbl)": r"chwbl",
    "scheduler flag (tpot_budget)": r"tpot_budget", "gateway flag (resend_to_foreign)": r"resend_to_foreign",
}


def texts(revision):
    """{path: text} of what git tracks at the revision, or of what lies here."""
    if revision:
        archive = subprocess.run(["git", "archive", "--format=tar", revision], cwd=ROOT, check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            contents = {member.name: tar.extractfile(member).read() for member in tar.getmembers() if member.isfile()}
    else:
        names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        contents = {name: (ROOT / name).read_bytes() for name in set(names.split("\n")) if name and (ROOT / name).is_file()}
    return {path: content.decode("utf-8", "replace") for path, content in contents.items() if len(content) < 1 << 20}


def percent(part, whole):
    return f"{100 * part / max(whole, 1):.1f}"


def folder_rows(files):
    by_folder = collections.defaultdict(list)
    for path in files:
        by_folder[source.folder(path)].append(path)
    for folder, paths in sorted(by_folder.items()):
        lines = {path: files[path].count("\n") for path in paths}
        total = sum(lines.values())
        longest = max(paths, key=lines.get)
        own, trailing = (sum(counts) for counts in zip(*(source.comment_lines(files[path]) for path in paths)))
        yield (folder, len(paths), len({source.unit_of(path) for path in paths}), total, int(statistics.median(lines.values())),
               f"{lines[longest]} {longest.rpartition('/')[2]}", f"{percent(own, total)} + {percent(trailing, total)}")


def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def summary_rows(files, codes, tests):
    lines = [text.count("\n") for text in files.values()]
    sizes = [count for code in codes.values() for _, _, count in source.functions(code)]
    per_folder = collections.Counter(map(source.folder, files))
    blocks = [comment for text in files.values() for comment in source.comments(text) if not comment.trails]
    asserts = sum(len(ASSERT.findall(code)) for code in codes.values())
    headers = {source.unit_of(path) for path in files if path.endswith((".h", ".cuh"))}
    alone = sum(path.endswith((".cc", ".cu")) and not path.endswith("main.cc") and source.unit_of(path) not in headers for path in files)
    yield "files / units / lines", f"{len(files)} / {len({source.unit_of(path) for path in files})} / {sum(lines)}"
    yield "file: median / p90 / longest", f"{int(statistics.median(lines))} / {quantile(lines, 0.9)} / {max(lines)}"
    yield "files under 40 lines / under 25", f"{sum(n < 40 for n in lines)} / {sum(n < 25 for n in lines)}"
    yield "functions", len(sizes)
    yield "function: median / p90 / over 50 / over 70", \
        f"{int(statistics.median(sizes))} / {quantile(sizes, 0.9)} / {sum(n > 50 for n in sizes)} / {sum(n > 70 for n in sizes)}"
    yield "folders / files a folder, mean / largest", \
        f"{len(per_folder)} / {len(files) / len(per_folder):.1f} / {max(per_folder.values())} {per_folder.most_common(1)[0][0]}"
    yield ".cc and .cu without a header of their own", alone
    cycles = source.cycles(source.include_graph(files))
    yield "unit cycles (units in them)", f"{len(cycles)} ({sum(map(len, cycles))})"
    yield "asserts (a 100 lines)", f"{asserts} ({100 * asserts / sum(lines):.2f})"
    yield "static_cast", sum(len(re.findall(r"\bstatic_cast<", code)) for code in codes.values())
    yield "guarded members (ABSL_GUARDED_BY)", sum(len(re.findall(r"\bABSL_(?:PT_)?GUARDED_BY\(", code)) for path, code in codes.items()
                                                   if path != "common/core/mutex.h")
    opening = sum(bool(OPENING.match(comment.lines[0])) for comment in blocks)
    riddles = sum(bool(shape.RIDDLES.match(comment.lines[0])) for comment in blocks)
    yield "comment blocks / opening before their subject", f"{len(blocks)} / {opening} ({percent(opening, len(blocks))} %)"
    yield "… with What, Who, Whose, Whoever, Of, Those", riddles
    yield "tests: lines / of the product's", f"{sum(text.count(chr(10)) for text in tests.values())} / " \
        f"{sum(text.count(chr(10)) for text in tests.values()) / sum(lines):.2f}"


def touch_rows(everything):
    for what, pattern in TOUCHED.items():
        named = [path for path, text in everything.items() if not path.startswith("tests/tidy/") and re.search(pattern, text, re.I)]
        product = [path for path in named if source.CPP.search(path) and not path.startswith(("tests/", "examples/"))]
        config = [path for path in named if path.startswith(("configs/", "deploy/"))]
        yield what, len(product), len(config), sum(path.startswith("tests/") for path in named)


def table(head, rows):
    rows = [tuple(map(str, row)) for row in rows]
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def main():
    everything = texts(sys.argv[1] if len(sys.argv) > 1 else None)
    cpp = {path: text for path, text in everything.items() if source.CPP.search(path)}
    files = {path: text for path, text in cpp.items() if not path.startswith(("tests/", "examples/"))}
    tests = {path: text for path, text in cpp.items() if path.startswith("tests/")}
    codes = {path: source.strip_code(text) for path, text in files.items()}
    table(("folder", "files", "units", "lines", "median", "longest", "comment lines + trailing, %"), folder_rows(files))
    table(("figure", "value"), summary_rows(files, codes, tests))
    table(("class over two files and more", "files"), ((key, count) for key, (count, _, _) in sorted(
        shape.class_files(files, codes).items(), key=lambda entry: -entry[1][0])))
    by_functions, by_fields = shape.class_functions(files, codes), shape.class_fields(files, codes)
    wide = {key: (by_functions.get(key, ("≤ 25",))[0], by_fields.get(key, ("≤ 20",))[0]) for key in by_functions | by_fields}
    table(("wide class", "functions", "fields"), ((key, *counts) for key, counts in sorted(wide.items())))
    table(("files that name one", "product", "configs", "tests"), touch_rows(everything))


if __name__ == "__main__":
    main()
