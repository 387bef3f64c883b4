#!/usr/bin/env python3
"""The house rules as a test: each finding names file, line, rule and what to do instead.

    tests/tidy/tidy.py                  check everything git tracks (or would track)
    tests/tidy/tidy.py --ratchet        lower the counts in tests/tidy/ratchet.json to today's: do this after making one smaller
    tests/tidy/tidy.py --ratchet=anew   write them anew, larger ones too: only where files have other names, and read the difference

Rules: dependency rules between folders (by #include), purity of gateway/route, worker/schedule and worker/kv, coroutine rules of this
toolchain (g++ 12 miscompiles the rest silently), words with a better replacement, guarded mutexes, sizes and widths as a ratchet
(shape.py), formatting, dead headers, shell syntax, the README's length, links, paths and names in README and docs, and the repository's size.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

import shape
import source
from source import line_of, strip_code

ROOT = pathlib.Path(__file__).resolve().parents[2]
RATCHET = ROOT / "tests/tidy/ratchet.json"
FORMATTED = ROOT / ".cache/tidy/formatted"  # names by content what was found well formatted, for the next run in this clone
COLUMNS_MAX, REPOSITORY_MB_MAX = 110, 30
LARGE_FILE_KB, LARGE_FILES_ALLOWED = 1024, {"configs/demo-model/model.safetensors"}

# What a folder (or a unit: a path without extension) may include, besides itself, the standard library and packages. Nothing else
# of ours. The longest row that fits a file counts. "X/*" allows X and all folders below it.
_LOW = ["common/core", "common/json", "common/settings", "common/api"]
_NET = [*_LOW, "common/net"]
_ROUTE = ["common/core", "common/json", "common/api", "common/settings", "gateway/route/options"]
_KERNELS = ["common/core", "kernels", "kernels/ops", "kernels/kernels"]
_FACE = ["kernels", "kernels/kernels"]  # what is seen of the kernels: kernels.h, tensors, sampling
MAY_INCLUDE = {
    "common/core": [],
    "common/json": ["common/core"],
    "common/settings": ["common/core", "common/json"],
    "common/api": ["common/core", "common/json"],
    # regex <- rules, tokens <- schema <- front
    "common/grammar": ["common/core", "common/grammar/*"],
    "common/grammar/regex": ["common/core", "common/json"],
    "common/grammar/rules": ["common/core", "common/grammar/regex"],
    "common/grammar/tokens": ["common/core", "common/grammar/regex"],
    "common/grammar/schema": ["common/core", "common/json", "common/grammar/regex", "common/grammar/rules"],
    "common/grammar/front": ["common/core", "common/json", "common/grammar/regex", "common/grammar/rules", "common/grammar/schema"],
    "common/net": _LOW,
    # body, answer <- anthropic | responses | kobold | probes <- dialect, translator <- dialect_exchange
    "common/dialects": [*_NET, "common/dialects/*"],
    "common/dialects/dialect_exchange": [*_NET, "common/dialects"],
    "common/dialects/anthropic": ["common/core", "common/json", "common/api", "common/dialects"],
    "common/dialects/responses": ["common/core", "common/json", "common/api", "common/dialects"],
    "common/dialects/kobold": ["common/core", "common/json", "common/api", "common/dialects"],
    "common/dialects/probes": ["common/core", "common/json", "common/api", "common/dialects"],
    "common/etcd": _NET,
    # key <- fleet <- placement <- policy <- router <- request, fleet <- admission
    "gateway/route/options": ["common/core"],
    "gateway/route/key": _ROUTE,
    "gateway/route/fleet": [*_ROUTE, "gateway/route/key"],
    "gateway/route/admission": [*_ROUTE, "gateway/route/fleet"],
    "gateway/route/placement": [*_ROUTE, "gateway/route/key", "gateway/route/fleet"],
    "gateway/route/policy": [*_ROUTE, "gateway/route/key", "gateway/route/fleet", "gateway/route/placement", "gateway/route/policy/baselines"],
    "gateway/route/policy/baselines": [*_ROUTE, "gateway/route/key", "gateway/route/fleet", "gateway/route/placement", "gateway/route/policy"],
    "gateway/route": [*_ROUTE, "gateway/route/key", "gateway/route/fleet", "gateway/route/placement", "gateway/route/policy"],
    "gateway/route/request": [*_ROUTE, "gateway/route", "gateway/route/admission", "gateway/route/fleet", "gateway/route/key", "gateway/route/policy"],
    "gateway/access/api_key_file": ["common/core", "common/settings", "gateway/route/admission"],
    "gateway/access": [*_LOW, "gateway/access/api_key_file", "gateway/route/admission", "gateway/route/fleet"],
    # late_text, lore_matcher <- definition <- prompt_parts <- registry <- record
    "gateway/persona": ["common/core", "common/json", "common/api"],
    "gateway/telemetry": [*_NET, "common/dialects", "gateway/route/*", "gateway/access"],
    "gateway/upstream": [*_NET, "common/dialects/*", "gateway/route/*", "gateway/telemetry"],
    "gateway/cluster": [*_NET, "common/etcd", "gateway/route/*", "gateway/upstream", "gateway/persona"],
    "gateway/proxy": [*_NET, "common/dialects/*", "gateway/route/*", "gateway/upstream", "gateway/cluster", "gateway/telemetry", "gateway/access", "gateway/persona"],
    "gateway": [*_NET, "common/etcd", "gateway/*"],
    # kv <- schedule <- engine <- input <- http
    "worker/kv": ["common/core"],
    "worker/schedule": ["common/core", "common/settings", "common/json", "worker/kv"],
    "worker/text": ["common/core", "common/json"],
    "worker/text/jinja": ["common/core", "common/json", "worker/text"],
    "worker/text/tokenizer": ["common/core", "common/json", "worker/text", "worker/text/own_mark", "worker/text/tokenizer/stop_matcher"],
    "worker/text/tokenizer/stop_matcher": [],
    # template_roles <- chat_messages <- chat_context <- template_probe <- chat_template
    "worker/text/answer": ["common/core", "common/json", "common/api", "worker/text", "worker/text/tokenizer/stop_matcher"],
    "worker/text/own_mark": [],
    "worker/text/final_words": ["common/core", "common/api", "worker/text/own_mark"],
    "worker/text/template_roles": ["common/core", "common/api"],
    "worker/text/chat_messages": ["common/core", "common/json", "common/api", "worker/text/template_roles"],
    "worker/text/chat_context": ["common/core", "common/json", "common/api", "worker/text/chat_messages", "worker/text/jinja"],
    "worker/text/template_probe": ["common/core", "common/json", "worker/text/template_roles", "worker/text/chat_context"],
    "worker/text/chat_template": ["common/core", "common/json", "common/api", "worker/text", "worker/text/template_probe", "worker/text/template_roles", "worker/text/jinja"],
    "worker/text/render_command": ["common/core", "common/json", "worker/text", "worker/text/chat_template", "worker/text/jinja"],
    "worker/model": ["common/core", "common/json", "common/settings", *_FACE, "kernels/backends", "worker/kv", "worker/schedule", "worker/model/families", "worker/model/load"],
    "worker/model/families": ["common/core", "common/json", *_FACE, "worker/model", "worker/model/load"],
    "worker/model/load": ["common/core", "common/json", *_FACE, "worker/model"],
    "worker/engine": [*_LOW, "common/grammar", "common/grammar/*", *_FACE, "worker/kv", "worker/schedule", "worker/model", "worker/text/*"],
    "worker/input": [*_LOW, "common/grammar", "common/grammar/*", "worker/kv", "worker/schedule", "worker/model", "worker/text/*", "worker/engine"],
    "worker/sim_device": [*_NET, "worker/kv", "worker/schedule", "worker/model", "worker/text/*", "worker/engine"],
    "worker/http": [*_NET, "common/dialects/*", "worker/text/*", "worker/engine", "worker/input", "worker/sim_device"],
    "worker": [*_NET, "common/etcd", *_FACE, "kernels/backends", "worker/*"],
    # tensor, sampling, tune … <- ops <- kernels.h <- host <- ref | cpu | cuda <- backends
    "kernels": ["common/core"],
    "kernels/ops": ["common/core", "kernels"],
    "kernels/kernels": ["common/core", "kernels", "kernels/ops"],
    "kernels/host": _KERNELS,
    "kernels/ref": [*_KERNELS, "kernels/host"],
    "kernels/cpu": [*_KERNELS, "kernels/host"],
    # device <- step <- attention | gemm | ops <- backend
    "kernels/cuda/device": _KERNELS,
    "kernels/cuda/step": [*_KERNELS, "kernels/cuda/device"],
    "kernels/cuda/attention": [*_KERNELS, "kernels/cuda/device", "kernels/cuda/step"],
    "kernels/cuda/gemm": [*_KERNELS, "kernels/cuda/device", "kernels/cuda/step", "kernels/cuda/ops"],
    "kernels/cuda/ops": [*_KERNELS, "kernels/cuda/device", "kernels/cuda/step"],
    "kernels/cuda": [*_KERNELS, "kernels/host", "kernels/cuda/*"],
    "kernels/backends": [*_KERNELS, "kernels/host", "kernels/ref", "kernels/cpu"],
    # trace <- workload, fleet <- report, live, sizing <- cli
    "sim/trace": _LOW,
    "sim/workload": [*_LOW, "sim/trace"],
    "sim/fleet": [*_LOW, "gateway/route/*", "worker/kv", "worker/schedule", "sim/trace", "sim/workload"],
    "sim/report": [*_LOW, "gateway/route/policy", "sim/fleet", "sim/trace"],
    "sim/sizing": [*_LOW, "worker/schedule"],
    "sim/live": [*_NET, "sim/trace", "sim/fleet"],
    "sim/cli": [*_NET, "gateway/access/api_key_file", "gateway/route/*", "worker/schedule", "sim/*"],
    "sim": [*_LOW, "sim/*"],
}
# The other backends' insides are hidden behind kernels.h; backends may use kernels/ and kernels/host.
OUR_FOLDERS = {"common", "gateway", "kernels", "sim", "tests", "worker"}
PURE = ["gateway/route", "gateway/persona", "worker/schedule", "worker/kv"]
IMPURE = [
    (r"#include\s*[<\"](boost/(asio|beast)|thread|mutex|condition_variable|future|atomic|cuda|random>|ctime|sys/|unistd)",
     "a pure folder knows no sockets, threads, clocks or devices; take what you need as an argument"),
    (r"\bnow\(\)", "take `TimePoint now` as an argument"),
    (r"\bstd::(random_device|mt19937\w*|rand|time)\b", "take randomness as an argument"),
    (r"\bthread_local\b|^\s*static\s+(?!const\b|constexpr\b|inline\b)[^(;{=]*[;={]",
     "no state outside objects"),
]
NO_ASIO = ["common/core", "common/json", "common/settings", "common/api", "kernels", "worker/text", "worker/model", "gateway/route", "gateway/persona", "worker/schedule", "worker/kv"]
COROUTINE = [
    (r"\bco_await\b[^;{}]*[(,=]\s*(?:[A-Za-z_][\w:<>, ]*)?\{",
     "a braced temporary inside a co_await expression (g++ 12 destroys it twice): name the argument first"),
    (r"\?[^;{}]*\bco_await\b|\bco_await\b[^;{}]*\?", "co_await inside ?: : use if/else"),
    (r"(?:[=(,]|\breturn|[\w>])\s*\{[^;{}]*\bco_await\b[^;{}]*\}", "co_await inside braces: name the result first"),
    (r"\[[^\]\[]+\]\s*(?:\([^)]*\))?\s*(?:mutable\s*)?(?:noexcept\s*)?->\s*(?:asio::awaitable|Task)<",
     "a capturing lambda coroutine: make it a named function with its state as parameters"),
    (r"\[[^\]\[]+\]\s*(?:\([^)]*\))?\s*(?:mutable\s*)?(?:->\s*[\w:<>]+\s*)?\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\bco_(?:await|return|yield)\b",
     "a capturing lambda coroutine: make it a named function with its state as parameters"),
]
WORDS = [
    (r"\basio::detached\b|\bboost::asio::detached\b", "nothing is detached: spawn into a TaskGroup"),
    (r"\bgetenv\b", "settings come from common/settings"),
    (r"\bGetInstance\b|\bSingleton\b", "no singletons: pass it down from main"),
    (r"\b(TODO|FIXME|XXX|HACK)\b", "do it, or leave it out and say so in the issue"),
    (r"\bshared_ptr<\s*\w*Request\b", "a request has one owner"),
    (r"-march=native", "x86-64-v2 and run-time dispatch"),
    (r"\bstd::(cout|cerr)\b", "log through Logger; programs print through the streams main passes"),
]
WORDS_EXEMPT = {r"\bstd::(cout|cerr)\b": re.compile(r"(^|/)main\.cc$|^tests/"),
                # Tests are told where the published data lies (TROUPE_DATA); secrets and the machine's libraries may be in the
                # environment.
                r"\bgetenv\b": re.compile(r"^tests/|^common/core/environment\.cc$")}
PATHS = (r"(?<![\w.$}])/(work|root|home)/\w", "a path of somebody's machine")

findings = []


def report(path, line, rule):
    findings.append(f"{path}:{line}: {rule}")


def tracked():
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return sorted(path for path in set(out.split("\n")) if path and (ROOT / path).is_file())


def folder_of(path):
    """The longest row of MAY_INCLUDE that path belongs to: a unit, or a folder that holds it."""
    return max((row for row in MAY_INCLUDE if path.startswith((row + "/", row + "."))), key=len, default=None)


def may_include(folder, other):
    return any(allowed == other or allowed.endswith("/*") and (other + "/").startswith(allowed[:-1]) for allowed in MAY_INCLUDE[folder])


def check_includes(path, text):
    folder = folder_of(path)
    if folder is None:
        return
    for match in re.finditer(r'^\s*#include\s*"([^"]+)"', text, re.M):
        target, line = match.group(1), line_of(text, match.start())
        if target.split("/")[0] not in OUR_FOLDERS:
            continue
        if not (ROOT / target).is_file():
            report(path, line, f'#include "{target}": write the path from the root')
            continue
        other = folder_of(target)
        if other != folder and not may_include(folder, other):
            report(path, line, f"{folder} must not include {other or target} (it may: {', '.join(MAY_INCLUDE[folder]) or 'nothing of ours'})")
        backend = re.match(r"kernels/(ref|cpu|cuda)/", target)
        if backend and not path.startswith(backend.group(0)) and not re.match(r"kernels/[^/]+$", path):
            report(path, line, "a backend's insides are seen by kernels/ alone; use kernels/kernels.h")
    if not path.startswith("kernels/cuda/"):
        for match in re.finditer(r"#include\s*[<\"](cuda|cublas|nccl)", text):
            report(path, line_of(text, match.start()), "only kernels/cuda includes CUDA headers")
    if any(path.startswith(row + "/") for row in NO_ASIO):
        for match in re.finditer(r"#include\s*<boost/(asio|beast)", text):
            report(path, line_of(text, match.start()), f"{folder} knows no Asio")
    if "boost/beast" in text and folder != "common/net":
        report(path, 1, "Beast is included by common/net alone (it costs a minute a file)")


def check_words(path, code):
    for pattern, instead in WORDS:
        exempt = WORDS_EXEMPT.get(pattern)
        if exempt and exempt.search(path):
            continue
        for match in re.finditer(pattern, code):
            report(path, line_of(code, match.start()), f"'{match.group(0).strip()}': {instead}")
    for pattern, instead in COROUTINE:
        for match in re.finditer(pattern, code):
            report(path, line_of(code, match.start()), instead)
    if any(path.startswith(folder + "/") for folder in PURE):
        for pattern, instead in IMPURE:
            for match in re.finditer(pattern, code, re.M):
                report(path, line_of(code, match.start()), f"'{match.group(0).strip()}': {instead}")


def check_headers(files, every_text):
    for path in files:
        if path.endswith(".h"):
            # *_body.h is included once an instruction set, on purpose.
            if "#pragma once" not in files[path] and not path.endswith("_body.h"):
                report(path, 1, "a header begins with #pragma once (or is named *_body.h if it is included several times)")
            if f'"{path}"' not in every_text:
                report(path, 1, "no file includes this header: it is dead")


def check_one_definition(files):
    """Two types of one full name in two files break the one-definition rule silently: the linker keeps one of their inline functions."""
    defined = {}
    for path, text in files.items():
        scopes = []
        for number, line in enumerate(text.split("\n"), 1):
            opened = re.match(r"(?:inline )?namespace\s*([\w:]*)\s*\{\s*(\}?)", line)
            if opened and not opened.group(2):
                scopes.append(opened.group(1))
            elif re.match(r"\}\s+// namespace", line) and scopes:
                scopes.pop()
            match = re.match(r"(?:class|struct|enum class|union) (\w+)\b(?!.*;\s*$)(?!::)", line)
            if match and "" not in scopes:
                name = "::".join([*scopes, match.group(1)])
                other = defined.setdefault(name, path)
                if other != path:
                    report(path, number, f"{name} is also defined in {other}: give one of them another name or namespace")


def check_mutexes(path, code):
    """A mutex says what it guards, where clang can read it (-Wthread-safety, in the build of the fuzzers)."""
    if path == "common/core/mutex.h":
        return
    for match in re.finditer(r"\bstd::(recursive_|shared_|timed_)?mutex\b|\bstd::condition_variable\w*", code):
        report(path, line_of(code, match.start()), f"'{match.group(0)}': use Mutex, MutexLock and CondVar of common/core/mutex.h")
    for name, line, body in source.classes(code):
        for mutex in re.findall(r"^\s*(?:mutable )?Mutex (\w+);", body, re.M):
            if not re.search(rf"\bABSL_(?:PT_)?GUARDED_BY\({mutex}\)", body):
                report(path, line, f"no member of {name} is ABSL_GUARDED_BY({mutex}): say what it guards")


def check_format(paths):
    """By clang-format-14, many files a process; what an earlier run has passed is known by its content."""
    style = subprocess.run(["clang-format-14", "--version"], check=True, capture_output=True).stdout + (ROOT / ".clang-format").read_bytes()
    names = {path: hashlib.sha1(style + path.encode() + b"\0" + (ROOT / path).read_bytes()).hexdigest() for path in paths}
    passed = set(FORMATTED.read_text().split()) if FORMATTED.exists() else set()
    rest = [path for path in paths if names[path] not in passed]
    batches = [rest[first:first + 40] for first in range(0, len(rest), 40)]

    def one(batch):
        out = subprocess.run(["clang-format-14", "--dry-run", *batch], cwd=ROOT, capture_output=True, text=True)
        wrong = set(re.findall(r"^(.+?):\d+:\d+: (?:warning|error):", out.stderr, re.M))
        return set(batch) if out.returncode and not wrong else wrong

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = set().union(*pool.map(one, batches))
    for path in sorted(wrong):
        report(path, 1, "not formatted: clang-format-14 -i " + path)
    FORMATTED.parent.mkdir(parents=True, exist_ok=True)
    FORMATTED.write_text("\n".join(sorted(names[path] for path in paths if path not in wrong)) + "\n")


def check_repository(paths):
    total = 0
    for path in paths:
        size = (ROOT / path).stat().st_size
        total += size
        if size > LARGE_FILE_KB * 1024 and path not in LARGE_FILES_ALLOWED:
            report(path, 1, f"{size // 1024} KB: generate it by a script instead")
    if total > REPOSITORY_MB_MAX * 1e6:
        report(".", 1, f"the repository holds {total / 1e6:.1f} MB; it must stay under {REPOSITORY_MB_MAX}")
    for path in paths:
        if path.endswith(".sh") or path == ".ci/run":
            result = subprocess.run(["bash", "-n", path], cwd=ROOT, capture_output=True, text=True)
            if result.returncode:
                report(path, 1, result.stderr.strip())
    check_scripts(paths)


def check_scripts(paths, root=ROOT):
    """README and docs print scripts as commands: a file that names its interpreter can be run as it is."""
    for path in paths:
        if path.endswith((".py", ".sh")) and not os.access(root / path, os.X_OK):
            with open(root / path, "rb") as file:
                if file.read(2) == b"#!":
                    report(path, 1, f"begins with #! and cannot be run: git update-index --chmod=+x {path}, or drop that line")


README_LINES_MAX, README_WORDS_MAX, TABLE_COLUMNS_MAX = 100, 900, 160


def read_pages():
    return {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]}


def check_names_in_pages(pages, codes):
    """A `Class::member` that README or docs name is there: a newcomer searches for it."""
    bodies = {}
    for _, name, _, body in shape.classes(codes):
        bodies.setdefault(name.rpartition("::")[2], []).append(body)
    every_code = "\n".join(codes.values())
    for page, text in pages.items():
        for match in re.finditer(r"\b([A-Z]\w+)::(\w+)(?=[^`\n]*`)", text):
            owner, member = match.groups()
            inside = any(re.search(rf"\b{member}\b", body) for body in bodies.get(owner, []))
            if not inside and not re.search(rf"\b{owner}::{member}\b", every_code):
                report(page, line_of(text, match.start()), f"'{match.group(0)}' is not in the code: name what is there now")
        # `name` (`path/to/file.cc`): in that file.
        for match in re.finditer(r"`(?:\w+::)*(\w+)(?:\(\))?` \(`([\w./-]+\.(?:cc|h|cu|cuh|py|sh))`\)", text):
            name, path = match.groups()
            if path in codes and not re.search(rf"\b{name}\b", codes[path]):
                report(page, line_of(text, match.start()), f"there is no '{name}' in {path}: name the file that has it now")


def check_readme(pages=None):
    """README.md is short; no page has a table line too long to read; what pages link to, and paths in `code`, exist."""
    if pages is None:
        pages = read_pages()
    for page, text in pages.items():
        if page == "README.md" and text.count("\n") >= README_LINES_MAX:
            report(page, 1, f"{text.count(chr(10))} lines; a stranger reads under {README_LINES_MAX}")
        if page == "README.md" and len(text.split()) >= README_WORDS_MAX:
            report(page, 1, f"{len(text.split())} words; a stranger reads under {README_WORDS_MAX}: move some to docs/")
        for number, line in enumerate(text.split("\n"), 1):
            if line.startswith("|") and len(line) > TABLE_COLUMNS_MAX:
                report(page, number, f"{len(line)} characters in a line of a table; at most {TABLE_COLUMNS_MAX}")
        for match in re.finditer(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)|\bsrc=\"([^\"]+)\"", text):
            target = match.group(1) or match.group(2)
            if not target.startswith("http") and not (ROOT / page).parent.joinpath(target).exists():
                report(page, line_of(text, match.start()), f"link to '{target}', which does not exist")
        for match in re.finditer(r"`((?:common|configs|deploy|docs|examples|gateway|kernels|sim|tests|worker)/[\w./-]*)`", text):
            if not (ROOT / match.group(1)).exists():
                report(page, line_of(text, match.start()), f"'{match.group(1)}' does not exist: name what is there now")


def main():
    paths = tracked()
    cpp = [path for path in paths if source.CPP.search(path)]
    files = {path: (ROOT / path).read_text("utf-8") for path in cpp}
    codes = {path: strip_code(text) for path, text in files.items()}
    own = {path: text for path, text in files.items() if not path.startswith("tests/")}
    for path, text in files.items():
        check_includes(path, text)
        check_words(path, codes[path])
        if path in own:
            check_mutexes(path, codes[path])
        for number, line in enumerate(text.split("\n"), 1):
            if len(line) > COLUMNS_MAX and "http" not in line and 'R"' not in line:
                report(path, number, f"{len(line)} columns; at most {COLUMNS_MAX}")
    for path in paths:
        if re.search(r"\.(h|cc|cu|cuh|py|sh|md|yaml|txt|cmake|json)$", path) and (ROOT / path).stat().st_size < 1 << 20:
            text = (ROOT / path).read_text("utf-8", "replace")
            for match in re.finditer(PATHS[0], text):
                report(path, line_of(text, match.start()), f"'{match.group(0)}…': {PATHS[1]}")
    ratchet = json.loads(RATCHET.read_text()) if RATCHET.exists() else {}
    counts = shape.check(report, ratchet, files, codes)
    if len(sys.argv) > 1:
        changed = counts if sys.argv[1] == "--ratchet=anew" else shape.tighten(ratchet, counts)
        RATCHET.write_text(json.dumps(changed, indent=1, sort_keys=True) + "\n")
        print(f"{RATCHET.relative_to(ROOT)}: {sum(map(len, changed.values()))} counts over the budget")
        return 0
    check_one_definition(own)
    check_headers(own, "\n".join(files.values()))
    check_format(cpp)
    check_repository(paths)
    check_readme()
    check_names_in_pages(read_pages(), codes)
    print("\n".join(findings) or f"tidy: {len(cpp)} C++ files, {sum(text.count(chr(10)) for text in files.values())} lines, nothing to say")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
