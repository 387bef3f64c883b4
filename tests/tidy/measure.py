#!/usr/bin/env python3
"""The code in figures, of any revision, so that a before and an after can be quoted.

    tests/tidy/measure.py               of the files as they lie here
    tests/tidy/measure.py REV           of a commit
    tests/tidy/measure.py REV .         side by side: a commit and the files as they lie here (or more commits)

Product code is C++ and CUDA outside tests/ and examples/. A unit is x.h with x.cc (and its x_impl.h); comments are counted by lines
of their own and, after the plus, by lines of code that carry one. The touch table says how many files name one policy, setting, op, …:
about what adding another one touches. The names come from the revision's own registries and configuration files; for each kind the
table has the median over all names and, in brackets, the extremes.
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
HERE = "."
ASSERT = re.compile(r"\b(?:assert|static_assert|require|check_failed|TROUPE_CHECK|abort)\s*\(")
# Openings that make a reader wait for the subject.
OPENING = re.compile(r"\s*(What|Of|Where|How|From|As|In|For|Who|By|Until|So|Which|Those|Whose|Whoever)\b")
UNITS = re.compile(r"_(ms|s|secs|seconds|bytes|mib|gib)$")


def texts(revision):
    """{path: text} of what git tracks at the revision, or of what lies here."""
    if revision != HERE:
        archive = subprocess.run(["git", "archive", "--format=tar", revision], cwd=ROOT, check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            contents = {member.name: tar.extractfile(member).read() for member in tar.getmembers() if member.isfile()}
    else:
        names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        contents = {name: (ROOT / name).read_bytes() for name in set(names.split("\n")) if name and (ROOT / name).is_file()}
    return {path: content.decode("utf-8", "replace") for path, content in contents.items() if len(content) < 1 << 20}


def lines_in(files):
    return sum(text.count("\n") for text in files.values())


def percent(part, whole):
    return f"{100 * part / max(whole, 1):.1f}"


def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0


def spread(values):
    """median / p90 / max"""
    return f"{int(statistics.median(values or [0]))} / {quantile(values, 0.9)} / {max(values, default=0)}"


class Tree:
    """One revision's files, by what they are."""

    def __init__(self, everything):
        self.everything = everything
        cpp = {path: text for path, text in everything.items() if source.CPP.search(path)}
        self.product = {path: text for path, text in cpp.items() if not path.startswith(("tests/", "examples/"))}
        self.tests = {path: text for path, text in cpp.items() if path.startswith("tests/")}
        self.configs = {path: text for path, text in everything.items() if path.startswith(("configs/", "deploy/"))}
        self.python = {path: text for path, text in everything.items() if path.startswith("tests/") and path.endswith(".py")}
        self.codes = {path: source.strip_code(text) for path, text in self.product.items()}


def folder_rows(tree):
    by_folder = collections.defaultdict(list)
    for path in tree.product:
        by_folder[source.folder(path)].append(path)
    for folder, paths in sorted(by_folder.items()):
        lines = {path: tree.product[path].count("\n") for path in paths}
        total = sum(lines.values())
        longest = max(paths, key=lines.get)
        own, trailing = (sum(counts) for counts in zip(*(source.comment_lines(tree.product[path]) for path in paths)))
        yield (folder, len(paths), len({source.unit_of(path) for path in paths}), total, int(statistics.median(lines.values())),
               f"{lines[longest]} {longest.rpartition('/')[2]}", f"{percent(own, total)} + {percent(trailing, total)}")


def cycles_of(files, name_of):
    found = source.cycles(source.include_graph(files, name_of))
    return f"{len(found)} ({sum(map(len, found))})"


def width_rows(codes):
    """Of classes and structs: how many functions and fields each declares. Settings and protocol records are no measure of fields."""
    functions, fields = [], []
    for path, name, _, body in shape.classes(codes):
        members = list(source.members(body))
        functions.append(sum(kind == "function" for kind, _ in members))
        if not shape.is_wide_record(path, name):
            fields.append(sum(source.field_count(text) for kind, text in members if kind == "field"))
    yield "functions of a class that has some: median / p90 / max", spread([n for n in functions if n])
    yield "fields of a class that has some: median / p90 / max", spread([n for n in fields if n])
    yield f"classes over {shape.CLASS_FUNCTIONS_MAX} functions / over {shape.CLASS_FIELDS_MAX} fields", \
        f"{sum(n > shape.CLASS_FUNCTIONS_MAX for n in functions)} / {sum(n > shape.CLASS_FIELDS_MAX for n in fields)}"


def comment_rows(tree):
    own, trailing = (sum(counts) for counts in zip((0, 0), *map(source.comment_lines, tree.product.values())))
    yield "comment lines + trailing, %", f"{percent(own, lines_in(tree.product))} + {percent(trailing, lines_in(tree.product))}"
    blocks = [comment for text in tree.product.values() for comment in source.comments(text) if not comment.trails]
    opening = sum(bool(OPENING.match(comment.lines[0])) for comment in blocks)
    riddles = sum(bool(shape.RIDDLES.match(comment.lines[0])) for comment in blocks)
    yield "comment blocks / opening before their subject", f"{len(blocks)} / {opening} ({percent(opening, len(blocks))} %)"
    yield "… with What, Which, Who, Whose, Whoever, Of, Those", f"{riddles} ({percent(riddles, len(blocks))} %)"


def summary_rows(tree):
    files, codes = tree.product, tree.codes
    lines = [text.count("\n") for text in files.values()]
    sizes = [count for code in codes.values() for _, _, count in source.functions(code)]
    per_folder = collections.Counter(map(source.folder, files)) or collections.Counter({"none": 0})
    headers = {source.unit_of(path) for path in files if path.endswith((".h", ".cuh"))}
    alone = sum(path.endswith((".cc", ".cu")) and not path.endswith("main.cc") and source.unit_of(path) not in headers for path in files)
    asserts = sum(len(ASSERT.findall(code)) for code in codes.values())
    guarded = sum(len(re.findall(r"\bABSL_(?:PT_)?GUARDED_BY\(", code)) for path, code in codes.items() if path != "common/core/mutex.h")
    readme = tree.everything.get("README.md", "")
    yield "files / units / lines", f"{len(files)} / {len({source.unit_of(path) for path in files})} / {sum(lines)}"
    yield "file lines: median / p90 / max", spread(lines)
    yield "files under 25 / under 40 / over 400 lines", f"{sum(n < 25 for n in lines)} / {sum(n < 40 for n in lines)} / {sum(n > 400 for n in lines)}"
    yield "functions", len(sizes)
    yield "function lines: median / p90 / max", spread(sizes)
    yield "functions over 50 / over 70 lines", f"{sum(n > 50 for n in sizes)} / {sum(n > 70 for n in sizes)}"
    yield "folders / files in one: mean / largest", \
        f"{len(per_folder)} / {len(files) / len(per_folder):.1f} / {max(per_folder.values())} {per_folder.most_common(1)[0][0]}"
    yield "include cycles of files (files in them)", cycles_of(files, lambda path: path)
    yield "… of units (units in them)", cycles_of(files, source.unit_of)
    yield "… of folders (folders in them)", cycles_of(files, source.folder)
    yield ".cc and .cu without a header of their own", alone
    yield from width_rows(codes)
    spread_classes = shape.class_files(files, codes)
    yield f"classes defined in over {shape.CLASS_FILES_MAX} files / in most", \
        f"{len(spread_classes)} / {max((count for count, _, _ in spread_classes.values()), default=0)}"
    yield from comment_rows(tree)
    yield "asserts (per 100 lines)", f"{asserts} ({100 * asserts / max(sum(lines), 1):.2f})"
    yield "static_cast", sum(len(re.findall(r"\bstatic_cast<", code)) for code in codes.values())
    yield "members guarded by a mutex (ABSL_GUARDED_BY)", guarded
    yield "test : code, C++ / with Python", f"{lines_in(tree.tests) / max(sum(lines), 1):.2f} / " \
        f"{(lines_in(tree.tests) + lines_in(tree.python)) / max(sum(lines), 1):.2f}"
    yield "README lines / words", f"{readme.count(chr(10))} / {len(readme.split())}"


def listed(tree, table, entry):
    """What the pattern `entry` finds in the braces of a constant named `table`, wherever it is defined."""
    for text in tree.product.values():
        found = re.search(rf"\b{table}\b(?:\[\])?\s*=?\s*\{{(.*?)\}};", text, re.S)
        if found and re.search(entry, found.group(1)):
            return re.findall(entry, found.group(1))
    return []


def keys_of(tree, config):
    """A configuration file's keys of two words and more (others are words of prose, too), without units."""
    keys = re.findall(r"^\s*([a-z]\w*):", tree.configs.get(f"configs/{config}.yaml", ""), re.M)
    return sorted({UNITS.sub("", key) for key in keys if "_" in UNITS.sub("", key)})


def as_words(text):
    """`kPowerOfTwo`, `power-of-two` and `power_of_two_` are all " power of two " among its words; other signs are no part of a word."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[-_]", " ", text)
    return " " + re.sub(r"[^A-Za-z0-9 ]+", " | ", text).lower() + " "


def in_words(name):
    words = f" {as_words(name).strip()} "
    return lambda text, its_words: words in its_words


def quoted(path):
    return lambda text, its_words: f'"{path}"' in text


def named_things(tree):
    """kind: {name: test of a text and of its words} of what stands in the revision's registries."""
    ops = [name for text in tree.product.values() for name in re.findall(r"virtual void (\w+_\w+)\(const \w+Params& params\) = 0;", text)]
    families = listed(tree, "kFamilies", r"&(k\w+Family)")
    policies = listed(tree, "kPolicies", r'\{(?:\.name = )?"([\w-]+)"')
    gateway, worker, simulator = (keys_of(tree, program) for program in ("gateway", "worker", "simulator"))
    forwarded = [path for text in tree.product.values() for path in re.findall(r'== "(/[^"]+)"\) return parse_', text)]
    routes = listed(tree, "kRoutes", r'\{"[A-Z, ]+", "(/[^"]+)", ')
    return {
        "model family": {name: in_words(name) for name in families},
        "op": {name: in_words(name) for name in ops},
        "routing policy": {name: in_words(name) for name in policies},
        "setting of the gateway": {name: in_words(name) for name in gateway},
        "setting of the worker": {name: in_words(name) for name in worker},
        "setting of worker and simulator": {name: in_words(name) for name in worker if name in simulator},
        "endpoint that the gateway forwards": {path: quoted(path) for path in forwarded},
        "endpoint of the worker": {path: quoted(path) for path in routes},
    }


def median_of(counts):
    """The (lower) median, and the extremes where they differ."""
    if not counts:
        return "–"
    middle = statistics.median_low(counts)
    return str(middle) if min(counts) == max(counts) else f"{middle} ({min(counts)}–{max(counts)})"


def touch_rows(tree):
    """(kind, files of the product, of configs and deploy, of tests that name one), comments left out."""
    tests = {path: text for path, text in (tree.tests | tree.python).items() if not path.startswith("tests/tidy/")}
    groups = []
    for files in (tree.product, tree.configs, tests):
        plain = [source.strip_comments(text) if source.CPP.search(path) else text for path, text in files.items()]
        groups.append([(text, as_words(text)) for text in plain])
    for kind, names in named_things(tree).items():
        yield (kind, *(median_of([sum(test(*texts) for texts in group) for test in names.values()]) for group in groups))


def table(head, rows):
    rows = [tuple(map(str, row)) for row in rows]
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def side_by_side(columns):
    """[{row: value} of each revision] as (row, value, …); the last revision's order."""
    for row in columns[-1]:
        yield (row, *(column.get(row, "–") for column in columns))


def details(tree):
    table(("folder", "files", "units", "lines", "median", "longest", "comment lines + trailing, %"), folder_rows(tree))
    table((f"class in over {shape.CLASS_FILES_MAX} files", "files"), ((key, count) for key, (count, _, _) in sorted(
        shape.class_files(tree.product, tree.codes).items(), key=lambda entry: (-entry[1][0], entry[0]))))
    by_functions, by_fields = shape.class_functions(tree.product, tree.codes), shape.class_fields(tree.product, tree.codes)
    wide = {key: (by_functions.get(key, (f"≤ {shape.CLASS_FUNCTIONS_MAX}",))[0], by_fields.get(key, (f"≤ {shape.CLASS_FIELDS_MAX}",))[0])
            for key in by_functions | by_fields}
    table(("wide class", "functions", "fields"), ((key, *counts) for key, counts in sorted(wide.items())))


def main(revisions):
    revisions = revisions or [HERE]
    names = ["here" if revision == HERE else revision for revision in revisions]
    trees = [Tree(texts(revision)) for revision in revisions]
    for name, tree in zip(names, trees):
        if len(trees) > 1:
            print(f"## {name}\n")
        details(tree)
    table(("figure", *names), side_by_side([dict(summary_rows(tree)) for tree in trees]))
    touched = [{kind: f"{product} + {configs}; {tests}" for kind, product, configs, tests in touch_rows(tree)} for tree in trees]
    table(("files that name one: product + configs; tests", *names), side_by_side(touched))


if __name__ == "__main__":
    main(sys.argv[1:])
