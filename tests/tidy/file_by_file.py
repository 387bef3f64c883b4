#!/usr/bin/env python3
"""Checks that files compile one by one: a unity build, which CI makes, hides a missing include, a name that another file of the batch
brought, and a local that shadows a member (-Wshadow is off there).

    tests/tidy/file_by_file.py [--build DIR] [--cpu-s N] [--all] [FILE…]

Every .cc of the compilation database goes through the compiler's front end alone (-fsyntax-only), with its target's flags and
-Wshadow. A file is checked again only when it, a header that it includes or its flags have changed (stamps in DIR/file_by_file).
All of them for the first time take half an hour, so a run has a budget of CPU time: the files that changed last come first, in the
order of the commits, and what is left over is taken up by the next run. Files named, or --all: no budget.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import resource
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
# Of a unity build alone, and what only code generation or ccache needs.
DROPPED = {"-Wno-shadow", "-Wno-subobject-linkage", "-c"}
COMMITS = 300


def flags_by_source(build):
    """{source: compile command without its file and output}; a batch's flags are those of each of its files."""
    flags = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        if words[0].endswith("ccache"):
            words = words[1:]
        file = pathlib.Path(entry["directory"], entry["file"])
        if file.suffix not in (".cc", ".cxx") or "-x" in words:
            continue
        output = words.index("-o")
        words = [word for word in words[:output] + words[output + 2:] if word not in DROPPED and not word.endswith(str(file))]
        sources = [file]
        if build in file.parents:
            sources = [ROOT / name for name in INCLUDE.findall(file.read_text())]
        for source in sources:
            if ROOT in source.parents and source.exists() and build not in source.parents:
                flags.setdefault(source, words)
    return flags


def recent_first(sources):
    """The sources in the order in which they changed, the last first: not committed yet, then by commit, then all others."""
    def lines(*command):
        done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True)
        return done.stdout.split("\n") if done.returncode == 0 else []
    changed = [line[3:] for line in lines("status", "--porcelain", "--untracked-files=all")]
    changed += lines("log", f"-{COMMITS}", "--name-only", "--format=")
    place = {}
    for name in changed:
        place.setdefault(name, len(place))
    return sorted(sources, key=lambda source: (place.get(str(source.relative_to(ROOT)), len(place)), str(source)))


class Digests:
    """Of a file with all of the repository that it includes."""

    def __init__(self):
        self.texts = {}

    def text_and_includes(self, path):
        if path not in self.texts:
            text = path.read_bytes()
            names = INCLUDE.findall(text.decode("utf-8", "replace"))
            found = [(ROOT / name, path.parent / name) for name in names]
            self.texts[path] = text, [next((one for one in pair if one.is_file()), None) for pair in found]
        return self.texts[path]

    def of(self, source, flags):
        digest, seen, open_files = hashlib.sha256("\0".join(flags).encode()), set(), [source]
        while open_files:
            path = open_files.pop()
            if path is None or path in seen:
                continue
            seen.add(path)
            text, includes = self.text_and_includes(path)
            digest.update(text)
            open_files += includes
        return digest.hexdigest()


def check(source, flags):
    """What the compiler says of it; empty: nothing."""
    command = [*flags, "-fsyntax-only", "-Wshadow", str(source)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stderr[-4000:] or f"exit {done.returncode}"


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=ROOT / "build", type=pathlib.Path)
    parser.add_argument("--cpu-s", default=60, type=float)
    parser.add_argument("--jobs", default=1, type=int)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    args = parser.parse_args()
    flags = flags_by_source(args.build.resolve())
    asked = {path.resolve() for path in args.files}
    if asked - set(flags):
        sys.exit(f"error: {', '.join(map(str, asked - set(flags)))}: not in {args.build}/compile_commands.json")
    stamps = args.build / "file_by_file"
    stamps.mkdir(exist_ok=True)
    digests = Digests()
    stamp_of = lambda source: stamps / str(source.relative_to(ROOT)).replace("/", "+")

    def is_known(source):
        stamp = stamp_of(source)
        return stamp.exists() and stamp.read_text() == digests.of(source, flags[source])

    due = [source for source in recent_first(asked or flags) if asked or not is_known(source)]
    failed, checked = [], 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        running = {}
        while due or running:
            has_budget = args.all or asked or cpu_seconds() < args.cpu_s
            while due and has_budget and len(running) < args.jobs:
                source = due.pop(0)
                running[pool.submit(check, source, flags[source])] = source
            if not running:
                break
            done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for one in done:
                source, checked = running.pop(one), checked + 1
                if one.result():
                    failed.append((source, one.result()))
                else:
                    stamp_of(source).write_text(digests.of(source, flags[source]))
    for source, said in failed:
        print(f"{source.relative_to(ROOT)} does not compile alone:\n{said}")
    print(f"{len(flags)} files: {checked} checked in {cpu_seconds():.0f} CPU seconds, {len(failed)} failed, "
          f"{len(due)} left to the next run, the others as they were when last checked")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
