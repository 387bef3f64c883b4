#!/usr/bin/env python3
"""Did a commit that only moves files and gives other names change what is executed? Compares the machine code of two commits.

    tests/tidy/object_code.py BEFORE AFTER [--jobs N] [--only REGEX]

Both are checked out and configured as release without tests, and every .cc of the programs is compiled with its own flags, but
without optimisation (each function as it was written) and debug information, and with counted numbers for __LINE__. The functions of
all objects are then disassembled; the names of symbols and where constants lie are left out, all else is compared: each body of the
one must be found in the other. (What is called by another name keeps its body; a text that a function prints keeps it, too, where its
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
FLAGS = ["-O0", "-g0", "-ffunction-sections", "-frandom-seed=0", "-Wno-builtin-macro-redefined", "-D__LINE__=__COUNTER__", "-w"]
HEAD = re.compile(r"^(?:[0-9a-f]+ )?<(.+)>:$")
TARGET = re.compile(r"<([^<>]*?)(\+0x[0-9a-f]+)?>")
COMMENT = re.compile(r"\s+#.*$")
RELOCATION = re.compile(r"^\s+(R_X86_64_\w+)\s+(\S+?)([-+]0x[0-9a-f]+)?$")


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


def functions(text):
    """{hash of a body: names} of what objdump printed"""
    bodies, name, lines = collections.defaultdict(set), None, []

    def close():
        while lines and re.fullmatch(r"\s*(nop.*|xchg\s+%ax,%ax|data16.*|cs nop.*|int3)", lines[-1]):
            lines.pop()
        if name:
            bodies[hashlib.sha256("\n".join(lines).encode()).hexdigest()].add(name)

    for line in text.splitlines():
        head = HEAD.match(line)
        if head:
            close()
            name, lines = head[1], []
            continue
        relocation = RELOCATION.match(line)
        if relocation:
            section = relocation[2].startswith(".")
            lines.append(f"{relocation[1]} {'' if section else relocation[3] or ''}")
        elif line.startswith((" ", "\t")):
            own = name
            line = COMMENT.sub("", line)
            lines.append(TARGET.sub(lambda found: f"<{'self' if found[1] == own else ''}{found[2] or ''}>", line).strip())
    close()
    return bodies


def compiled(words, file, scratch):
    with tempfile.NamedTemporaryFile(suffix=".o", dir=scratch) as made:
        subprocess.run([*words, "-o", made.name, "-c", file], check=True)
        shown = subprocess.run(["objdump", "-dr", "--no-show-raw-insn", "--no-addresses", made.name], check=True, capture_output=True,
                               text=True).stdout
    return functions(shown)


def machine_code(commit, only, jobs, scratch):
    folder = pathlib.Path(scratch, re.sub(r"\W", "_", commit))
    try:
        checked_out(commit, folder)
        files, bodies = list(sources(folder, only)), collections.defaultdict(set)
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for done, found in enumerate(pool.map(lambda one: compiled(*one, scratch), files), 1):
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
