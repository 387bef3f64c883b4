#!/usr/bin/env python3
"""unity.py BATCH PREFIX FILE...: writes PREFIX_0.cc, PREFIX_1.cc, ..., each of which includes up to BATCH of the files, and PREFIX.cmake,
which sets `asked` (BATCH and the files), `written` (their paths), and `read` (the files that this depends on). The working directory
is the root of the repository.

Includes are relative to that root, so that __FILE__ is too (CMake's own batches have absolute paths) and ccache serves every clone.

A name that two files of a batch declare in their anonymous namespaces (or as `static`) is another name in the second of them: a
macro around its include adds a number. So a name that is a file's own stays free for every other file. Where a macro would also reach
what is no file's own (a name that a header, a member or another namespace has, too; a macro; a suite of tests), the files go to different batches. The
files are read as text: what this does not see (a name that is ambiguous only beside another header's) the compiler does.
"""
import functools
import os
import pathlib
import re
import sys

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


class Source:
    """A file to compile: the names that are its own, and which of them a macro may stand for."""

    def __init__(self, path, headers):
        self.path, self._headers, self._renames = path, headers, {}
        self._text = pathlib.Path(path).read_text("utf-8")
        self.names = {name.split(" = ")[0]: name for name in own_names(self._text)}

    @functools.cached_property
    def _code(self):
        return re.sub(r'"(\\.|[^"\\\n])*"|//[^\n]*', " ", self._text)

    @functools.cached_property
    def _words(self):
        return self._headers.words_of(self._headers.root / self.path)

    def may_rename(self, name):
        if name not in self._renames:
            # (A plain word is likely to be a system header's, too.)
            self._renames[name] = bool(re.search(r"^k[A-Z]|\w_\w|^[A-Z]", name)) and name not in self._words and not re.search(
                rf"(?:::|\.|->)\s*{name}\b|#\s*define\s+{name}\b|##|(?:\bTEST|_[FPT]\w*)\((?:\s*\w+\s*,)?\s*{name}\b", self._code)
        return self._renames[name]


def can_share(name, source, others):
    """others: files of a batch that declare the name, too"""
    if " = " in source.names[name] and all(other.names[name] == source.names[name] for other in others):
        return True  # two files may say the same
    return source.may_rename(name) and all(" = " in other.names[name] or other.may_rename(name) for other in others)


def groups_of(files, batch, headers):
    """[(files, {name: those that declare it}, {file: names that are others there})]"""
    groups = []
    for file in files:
        source = Source(file, headers)
        for members, owners, renamed in groups:
            clashes = [name for name in source.names if name in owners]
            if len(members) < batch and all(can_share(name, source, owners[name]) for name in clashes):
                break
        else:
            members, owners, renamed, clashes = [], {}, {}, []
            groups.append((members, owners, renamed))
        members.append(file)
        renamed[file] = sorted(name for name in clashes
                               if " = " not in source.names[name] or any(other.names[name] != source.names[name] for other in owners[name]))
        for name in source.names:
            owners.setdefault(name, []).append(source)
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
    root, headers, written = pathlib.Path.cwd(), Headers(pathlib.Path.cwd()), []
    sources = [os.path.relpath(file, root) for file in files]
    for number, (members, _, renamed) in enumerate(groups_of(sources, int(batch), headers)):
        path, text = pathlib.Path(f"{prefix}_{number}.cc"), batch_text(members, renamed)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
        written.append(str(path))
    for left in pathlib.Path(prefix).parent.glob(f"{pathlib.Path(prefix).name}_[0-9]*.cc"):
        if str(left) not in written:
            left.unlink()
    read = sorted({os.path.abspath(__file__), *(str(root / path) for path in [*sources, *headers.words])})
    lists = {"asked": [batch, *files], "read": read, "written": written}
    pathlib.Path(f"{prefix}.cmake").write_text("".join(f'set({name} "{";".join(words)}")\n' for name, words in lists.items()), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
