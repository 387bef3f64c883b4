#!/usr/bin/env python3
"""unity.py BATCH PREFIX FILE...: writes PREFIX_0.cc, PREFIX_1.cc, ..., each of which includes up to BATCH of the files, and prints
their paths, separated by `;`. The working directory is the root of the repository.

Includes are relative to that root, so that __FILE__ is too (CMake's own batches have absolute paths) and ccache serves every clone.

A name that two files of a batch declare in their anonymous namespaces (or as `static`) is another name in the second of them: a
macro around its include adds a number. So a name that is a file's own stays free for every other file. Where a macro would also reach
what is no file's own (a name that a header, a member or another namespace has, too; a macro; a suite of tests), the files go to different batches. The
files are read as text: what this does not see (a name that is ambiguous only beside another header's) the compiler does.
"""
import os
import pathlib
import re
import sys

FIXED = "no macro may stand for it"
NOT_NAMES = {"static_assert", "TEST", "TEST_F", "TEST_P", "INSTANTIATE_TEST_SUITE_P", "TYPED_TEST", "MATCHER", "MATCHER_P",
             "TYPED_TEST_SUITE", "using", "if", "for", "while", "switch", "decltype", "alignas", "requires", "operator"}


def plain(text):
    """The code without comments, literals, and preprocessor lines."""
    text = re.sub(r'R"([^(\s]*)\(.*?\)\1"', '""', text, flags=re.S)
    text = re.sub(r'"(\\.|[^"\\\n])*"|\'(\\.|[^\'\\\n])+\'|//[^\n]*|/\*.*?\*/', lambda m: '""' if m[0][0] in "\"'" else " ", text, flags=re.S)
    return re.sub(r"^[ \t]*#(?:.*\\\n)*.*", "", text, flags=re.M)


def name_of(declaration):
    """The name that a declaration's head (what stands before its first `{` or `;`) declares, or None."""
    head = re.sub(r"\[\[.*?\]\]", " ", declaration)
    while (shorter := re.sub(r"<[^<>(){}]*>|<[^<>]*\([^<>]*>", " ", head)) != head:
        head = shorter
    head = " ".join(re.sub(r"template |__launch_bounds__ ?\([^()]*\)", " ", head).split())
    if found := re.search(r"^(?:struct|class|union|enum(?: class)?) (?:alignas ?\(\w+\) )?(\w+)", head):
        return found[1]
    if found := re.match(r"using (\w+) = ", head):
        return head[len("using "):]  # with its type: two files may say the same
    if head.startswith("using "):
        return None  # of another namespace's name, which files may share
    head = head.split("=")[0]
    if found := re.search(r"([\w:~]+) ?\(", head):
        return found[1]
    found = re.search(r"([A-Za-z_]\w*) ?(?:\[[^\]]*\] ?)*$", head)
    return found[1] if found and " " in head else None


def own_names(text):
    """Names that a file declares for itself alone."""
    names = set(re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", text, flags=re.M))
    code = plain(text)
    for static in re.finditer(r"^(?:template <.*>\s+)?(?:inline |constexpr )*static [^;{=]*", code, flags=re.M):
        names.add(name_of(static[0]))
    for space in re.finditer(r"namespace \{", code):
        depth, begin = 1, space.end()
        for sign in re.compile(r"[{};]").finditer(code, begin):
            if sign[0] != "}" and depth == 1:
                names.add(name_of(code[begin:sign.start()]))
            depth += (sign[0] == "{") - (sign[0] == "}")
            if depth == 1:
                begin = sign.end()
            if depth == 0:
                break
    return {name for name in names if name and name not in NOT_NAMES and (" = " in name or ":" not in name)}


class Headers:
    """Words of the repository's headers that a file includes, directly or not."""

    def __init__(self, root):
        self.root, self.words, self.included = root, {}, {}

    def _read(self, path):
        if path not in self.words:
            text = path.read_text("utf-8")
            self.words[path] = set(re.findall(r"\w+", plain(text)))
            found = re.findall(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', text, flags=re.M)
            near = [(self.root / name, path.parent / name) for name in found]
            self.included[path] = [next((one for one in pair if one.is_file()), None) for pair in near]

    def words_of(self, file):
        words, open_files, seen = set(), [file], set()
        while open_files:
            path = open_files.pop()
            self._read(path)
            if path != file:
                words |= self.words[path]
            fresh = {one for one in self.included[path] if one} - seen
            seen |= fresh
            open_files += fresh
        return words


def may_rename(name, code, words):
    """code: the file's, without comments and literals; words: those of its headers."""
    if name in words or not re.search(r"^k[A-Z]|\w_\w|^[A-Z]", name):  # (A plain word is likely to be a system header's, too.)
        return False
    return not re.search(rf"(?:::|\.|->)\s*{name}\b|#\s*define\s+{name}\b|##|(?:\bTEST|_[FPT]\w*)\((?:\s*\w+\s*,)?\s*{name}\b", code)


def groups_of(files, batch, headers):
    """[(files, names that they take, {file: names that are others there})]"""
    groups = []
    for file in files:
        text = pathlib.Path(file).read_text("utf-8")
        code = re.sub(r'"(\\.|[^"\\\n])*"|//[^\n]*', " ", text)
        names = {name.split(" = ")[0]: name for name in own_names(text)}
        words = headers.words_of(headers.root / file)
        fixed = {name for name in names if not may_rename(name, code, words)}
        for members, taken, renamed in groups:  # taken: {name: its declarations}
            clashes = [name for name in names if name in taken and not (" = " in names[name] and taken[name] == {names[name]})]
            if len(members) < batch and not any(name in fixed or FIXED in taken[name] for name in clashes):
                break
        else:
            members, taken, renamed, clashes = [], {}, {}, []
            groups.append((members, taken, renamed))
        members.append(file)
        renamed[file] = sorted(clashes)
        for name, declared in names.items():
            taken.setdefault(name, set()).update({declared, FIXED} if name in fixed and " = " not in declared else {declared})
    return groups


def batch_text(members, renamed):
    lines = []
    for number, file in enumerate(members):
        names = renamed[file]
        lines += [f"#define {name} {name}_{number}" for name in names]
        lines.append(f'#include "{file}"')
        lines += [f"#undef {name}" for name in names]
    return "\n".join(lines) + "\n"


def main(batch, prefix, *files):
    root = pathlib.Path.cwd()
    files = [os.path.relpath(file, root) for file in files]
    written = []
    for number, (members, _, renamed) in enumerate(groups_of(files, int(batch), Headers(root))):
        path, text = pathlib.Path(f"{prefix}_{number}.cc"), batch_text(members, renamed)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
        written.append(str(path))
    for left in pathlib.Path(prefix).parent.glob(f"{pathlib.Path(prefix).name}_[0-9]*.cc"):
        if str(left) not in written:
            left.unlink()
    print(";".join(written))


if __name__ == "__main__":
    main(*sys.argv[1:])
