"""C++ text as the rules and the measurements read it: code without comments, functions, classes, comment blocks, units.

No compiler: the house style (one declaration a line, closing namespaces commented, formatted by clang-format) is regular enough
for walking braces, and what tidy_test.py shows of each reader is all that the rules rely on.
"""
import bisect
import functools
import re

CPP = re.compile(r"\.(h|cc|cu|cuh)$")
_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)


def strip_code(text):
    """The code with comments and literals blanked, lines kept."""

    def blank(match):
        token = match.group(0)
        if token.startswith("'") and len(token) > 8:
            return token
        if token[0] in "\"'R":
            return '""' + "\n" * token.count("\n")
        return "\n" * token.count("\n")

    return _TOKEN.sub(blank, text)


def strip_comments(text):
    """The code without its comments, lines and literals kept."""
    return _TOKEN.sub(lambda match: "\n" * match.group(0).count("\n") if match.group(0).startswith("/") else match.group(0), text)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def unit_of(path):
    """x.h and x.cc are one unit, x; its private x_impl.h belongs to it."""
    stem = re.sub(r"\.(h|cc|cuh|cu)$", "", path)
    return re.sub(r"_impl$", "", stem) if path.endswith("_impl.h") else stem


def folder(path):
    return path.rpartition("/")[0]


def kind_of(header, parent):
    if parent not in ("scope", "type"):
        return "block"
    if re.match(r"(inline )?namespace\b|extern \"\"", header) or re.search(r"extern\s*\"\"$", header):
        return "scope"
    if re.search(r"\b(class|struct|union|enum)\b[^()]*$", header) and not header.endswith(")"):
        return "type"
    if "(" in header and not re.search(r"=\s*$", header):
        return "function"
    return "block"


class Block:
    """What stands between a pair of braces: its kind (scope, type, function, block), the text before it, and where it lies."""

    def __init__(self, kind, header, start, opened):
        self.kind, self.header, self.start, self.opened = kind, header, start, opened
        self.closed, self.parent = None, None

    def type_name(self):
        """Of a type its name, without what it derives from; empty for an enumeration or a type without a name."""
        if re.search(r"\benum\b", self.header):
            return ""
        name = re.search(r"\b(?:class|struct|union)\s+(?:alignas\s*\S+\s+|\[\[\w+\]\]\s+|[A-Z_]{4,}\s+)*((?:\w+::)*\w+)", self.header)
        return name.group(1) if name else ""

    def full_type_name(self):
        outer = self.parent
        while outer and outer.kind not in ("type",):
            outer = outer.parent if outer.kind in ("function", "block") else None
        return (outer.full_type_name() + "::" if outer else "") + self.type_name()


@functools.lru_cache(maxsize=None)
def blocks(code):
    """Every braced block of code (strip_code), inner ones first. Lines of the preprocessor are not code."""
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda found: re.sub(r"[^\n]", " ", found.group(0)), code, flags=re.M)
    stack, found, start = [], [], 0
    for match in re.finditer(r"[{};]", code):
        char, index = match.group(0), match.start()
        if char == "{":
            header = " ".join(code[start:index].split())
            block = Block(kind_of(header, stack[-1].kind if stack else "scope"), header, start, index)
            block.parent = stack[-1] if stack else None
            stack.append(block)
            start = index + 1
        elif char == "}" and stack:
            block = stack.pop()
            block.closed = index
            found.append(block)
            start = index + 1
        elif char == ";":
            start = index + 1
    return found


def lines_of(code):
    """offset -> line, faster than counting anew for each."""
    ends = [match.start() for match in re.finditer("\n", code)]
    return lambda offset: bisect.bisect_left(ends, offset) + 1


def functions(code):
    """(name, first line, lines) of every function body."""
    line = lines_of(code)
    for block in blocks(code):
        if block.kind == "function":
            before = code[block.start:block.opened]
            first = line(block.start + len(before) - len(before.lstrip()))
            name = re.findall(r"([\w~:<>]+|operator\S+)\s*\(", re.sub(r"__launch_bounds__\s*\([^()]*\)", "", block.header))
            yield (name[0] if name else block.header[:40]), first, line(block.closed) - first + 1


def _without_templates(text):
    """`std::function<void(int)> f_` -> `std::function f_`: parentheses of template arguments are no parameters."""
    while True:
        shorter = re.sub(r"<[^<>;{}]*>", "", text)
        if shorter == text:
            return text
        text = shorter


def members(body):
    """The declarations of a class's body (strip_code) as ('function' | 'field', text), without nested types, aliases and constants."""
    depth, start, texts, after = 0, 0, [], re.compile(r"\s*[;,){]")
    for match in re.finditer(r"[{};]", body):
        char = match.group(0)
        depth += {"{": 1, "}": -1}.get(char, 0)
        if depth == 0 and char in ";}":
            text = body[start:match.end()]
            if char == "}" and after.match(body, match.end()):
                continue  # the end of an initialiser, of a default or of a nested type: the declaration goes on
            texts.append(text)
            start = match.end()
    for text in texts:
        text = " ".join(re.sub(r"^\s*#.*$", "", text, flags=re.M).split())
        text = re.sub(r"^(?:(?:public|private|protected)\s*:\s*)+", "", text)
        text = re.sub(r"\bABSL_\w+(?:\([^()]*\))?|\[\[[^\]]*\]\]|\balignas\s*\([^()]*\)", "", text).strip()
        plain = _without_templates(text)
        head = re.split(r"[={]", plain, maxsplit=1)[0]
        if text in (";", "") or re.match(r"(using|typedef|friend|static_assert|enum)\b", text):
            continue
        if re.match(r"(template\s*)?(class|struct|union)\b", plain) and ("{" in plain or re.match(r"(template\s*)?(class|struct|union) [\w:]+;", plain)):
            continue
        if "(" in head or re.search(r"\boperator\b", head):
            if not re.search(r"=\s*(default|delete)\s*;$", plain):
                yield "function", text
        elif not re.match(r"(inline )?static\b", text):
            yield "field", text


def field_count(text):
    """`int a = 0, b = f(1, 2);` -> 2."""
    depth, count = 0, 1
    for char in _without_templates(text):
        depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(char, 0)
        count += char == "," and depth == 0
    return count


def classes(code):
    """(name, line, body) of every class and struct that has one; a nested one as Outer::Inner."""
    line = lines_of(code)
    for block in blocks(code):
        if block.kind == "type" and block.type_name():
            yield block.full_type_name(), line(block.opened), code[block.opened + 1:block.closed]


class Comment:
    """Whole lines of comment without a gap: first line's number, and the text after each `//`."""

    def __init__(self, first, indent):
        self.first, self.indent, self.lines = first, indent, []


def comments(text):
    """Every comment block that stands on lines of its own; the further lines of a trailing comment are none."""
    current, previous, in_raw = None, "", False
    for number, line in enumerate(text.split("\n"), 1):
        if in_raw:
            in_raw = ')"' not in line and not re.search(r'\)\w+"', line)
        elif 'R"' in line and not re.search(r'R"(\w*)\(.*\)\1"', line):
            in_raw = True
        found = None if in_raw else re.match(r"(\s*)//(.*)$", line)
        if found:
            indent = len(found.group(1))
            if current is None or current.indent != indent:
                if current:
                    yield current
                trails = re.search(r"\S.*?//", previous) and previous.rfind("//") == indent
                current = Comment(number, indent)
                current.trails = bool(trails)
            current.lines.append(found.group(2))
        elif current:
            yield current
            current = None
        previous = line
    if current:
        yield current


def comment_lines(text):
    """How many lines are comments, and how many lines of code carry one."""
    own = trailing = 0
    for match in _TOKEN.finditer(text):
        if match.group(0).startswith("//"):
            before = text[text.rfind("\n", 0, match.start()) + 1:match.start()]
            own, trailing = (own, trailing + 1) if before.strip() else (own + 1, trailing)
    return own, trailing


def include_graph(files, name_of=unit_of):
    """unit -> units that it includes, among those of files; by the paths from the root. Another name_of(path): by folders, …"""
    graph = {name_of(path): set() for path in files}
    for path, text in files.items():
        for target in re.findall(r'^\s*#include\s*"([^"]+)"', text, re.M):
            name = name_of(target)
            if name in graph and name != name_of(path):
                graph[name_of(path)].add(name)
    return graph


def cycles(graph):
    """The sets of nodes that reach one another (Tarjan's, without recursion), of two nodes and more."""
    index, low, on_stack, stack, found = {}, {}, set(), [], []
    for root in sorted(graph):
        if root in index:
            continue
        work = [(root, iter(sorted(graph[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(sorted(graph[target]))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    group = set()
                    while not group or node not in group:
                        group.add(stack.pop())
                    on_stack -= group
                    if len(group) > 1:
                        found.append(sorted(group))
    return found
