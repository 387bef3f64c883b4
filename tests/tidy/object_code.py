#!/usr/bin/env python3
"""Did a commit that only moves files and gives other names change what is executed? Compares the machine code of two commits.

    tests/tidy/object_code.py BEFORE AFTER [--jobs N] [--only REGEX]

Both are checked out and configured as release without tests, and every .cc of the programs is compiled with its own flags, but
without optimisation (each function as it was written) and debug information, and with counted numbers for __LINE__. Of the
functions in the compiler's assembly the names of symbols and constants are left out, all else is compared: each body of the one must
be found in the other. (What is called by another name keeps its body; a text that a function prints keeps it, too, where its
length is the same.) Ends with the functions that only one of
the two has; exit 1 where there are any.
"""
import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ("common", "gateway", "kernels", "worker", "sim")
FLAGS = ["-O0", "-g0", "-frandom-seed=0", "-Wno-builtin-macro-redefined", "-D__LINE__=__COUNTER__", "-w"]
FUNCTION = re.compile(r"^\t\.type\t(\S+), @function\n\1:\n(.*?)^\t\.size\t\1, ", re.M | re.S)
# Not executed: directives, labels of unwind tables, the places of inline assembly.
DIRECTIVE = re.compile(r"\t\.|\.L(?:F|EH)|#")
# A symbol, or a label of the function: neither a register (%rax), nor a number ($12), nor an instruction.
NAME = re.compile(r"(?<![%$\w.])(?:\.L\w+|_Z[\w.]+)|(?<=\tcall\t)[\w.]+|(?<=\tjmp\t)[\w.]+|[\w.]+(?=[-+\d]*\(%rip\)|@)")


def checked_out(commit, folder):
    subprocess.run(["git", "worktree", "add", "--detach", "--force", folder, commit], cwd=ROOT, check=True, capture_output=True)
    subprocess.run(["cmake", "-S", folder, "-B", folder / "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DTROUPE_TESTS=OFF",
                    "-DTROUPE_UNITY=OFF", "-DCUDA=OFF", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"], check=True, capture_output=True)
    # Files that the build writes, which others include.
    subprocess.run(["cmake", "--build", folder / "build", "--target", "help"], check=True, capture_output=True)


def sources(folder, only):
    """(words of the compiler's command, file) of each file of the programs"""
    for entry in json.loads((folder / "build" / "compile_commands.json").read_text()):
        file = pathlib.Path(entry["file"])
        try:
            path = file.relative_to(folder)
        except ValueError:
            continue
        if path.parts[0] in PROGRAMS and file.suffix == ".cc" and only.search(str(path)):
            words = shlex.split(entry["command"])
            yield words[:words.index("-o")] + FLAGS, file


def functions(assembly):
    """{hash of a body: names} of what the compiler wrote for the assembler"""
    bodies = collections.defaultdict(set)
    for found in FUNCTION.finditer(assembly):
        own, labels = found[1], {}

        def shown(name):
            if name[0] == own:
                return "self"
            if name[0].startswith(".LC") or not name[0].startswith(".L"):
                return "name"
            return labels.setdefault(name[0], f".L{len(labels)}")

        lines = [NAME.sub(shown, line) for line in found[2].splitlines() if not DIRECTIVE.match(line)]
        bodies[hashlib.sha256("\n".join(lines).encode()).hexdigest()].add(own)
    return bodies


def compiled(words, file):
    done = subprocess.run([*words, "-S", "-o", "-", file], capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{file} does not compile, and is left out:\n{done.stderr[:1000]}", flush=True)
        return {}
    return functions(done.stdout)


def machine_code(commit, only, jobs, scratch):
    folder = pathlib.Path(scratch, re.sub(r"\W", "_", commit))
    try:
        checked_out(commit, folder)
        files, bodies = list(sources(folder, only)), collections.defaultdict(set)
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for done, found in enumerate(pool.map(lambda one: compiled(*one), files), 1):
                for body, names in found.items():
                    bodies[body] |= names
                if done % 20 == 0 or done == len(files):
                    print(f"{commit}: {done} of {len(files)} files", file=sys.stderr, flush=True)
        return bodies, len(files)
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", folder], cwd=ROOT, capture_output=True)


def demangled(names):
    return subprocess.run(["c++filt"], input="\n".join(sorted(names)), capture_output=True, text=True).stdout.split("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--only", type=re.compile, default=re.compile(""), help="files whose path has this regular expression")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="object_code.") as scratch:
        (before, files_before), (after, files_after) = (machine_code(commit, options.only, options.jobs, scratch)
                                                        for commit in (options.before, options.after))
    print(f"{options.before}: {len(before)} different bodies of functions in {files_before} files; {options.after}: {len(after)} in "
          f"{files_after}; in both: {len(before.keys() & after.keys())}")
    differ = False
    for commit, own, other in ((options.before, before, after), (options.after, after, before)):
        names = {min(own[body]) for body in own.keys() - other.keys()}
        differ = differ or bool(names)
        for name in demangled(names) if names else ():
            print(f"only {commit}: {name[:200]}")
    return differ


if __name__ == "__main__":
    sys.exit(main())
