#!/usr/bin/env python3
"""unity.py BATCH FILE...: which files may be compiled as one: a number for each file, in their order, separated by `;`.

Files of one number declare no name twice in their anonymous namespaces (or as `static` or macro), and are at most BATCH. So a
name that is a file's own stays free for every other file. The files are read as text: what this does not see (a name that is
ambiguous only beside another header's) the compiler does.
"""
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
    if found := re.match(r"using (\w+) =", head):
        return found[1]
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
    return {name for name in names if name and name not in NOT_NAMES and ":" not in name}


def groups_of(files, batch):
    groups, numbers = [], []  # of each group: how many files, their names
    for file in files:
        names = own_names(pathlib.Path(file).read_text("utf-8"))
        fitting = (i for i, (count, taken) in enumerate(groups) if count < batch and not taken & names)
        number = next(fitting, len(groups))
        if number == len(groups):
            groups.append((0, set()))
        groups[number] = (groups[number][0] + 1, groups[number][1] | names)
        numbers.append(number)
    return numbers


if __name__ == "__main__":
    print(";".join(map(str, groups_of(sys.argv[2:], int(sys.argv[1])))))
