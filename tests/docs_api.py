#!/usr/bin/env python3
"""Holds docs/api.md against the sources: every path with its methods, error code, x-troupe-* header, field of a request that is
accepted or refused, and branch of a decision stands in both.

    tests/docs_api.py    exit 1 and a line for each that one of the two lacks
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = "docs/api.md"
# Tables of routes: {"GET, HEAD", "/path" or the name of a constant}; and what the gateway passes on as it comes.
ROUTE_TABLES = ["gateway/proxy/routes.cc", "gateway/admin.cc", "worker/http/server.cc", "common/dialects/routes.cc"]
PASSED = "common/api/passed_paths.h"
# Tables of fields, and the readers of those that have no row, each with what a name stands in.
FIELD_TABLES = {
    "common/api/parse.cc": r'\{"(\w+)", (?:true|false), (?:true|false), read_',
    "common/api/read_format.cc": r'\{"(\w+)", Kind::',
    "common/api/unsupported.cc": r'\{"(\w+)", k(?:Chat|Completion|Both), ',
    "common/api/read_samplers.cc": r'\{"([a-z_]+)", SamplerField',
    "common/api/tokenize.cc": r'name == "(\w+)"',
    "common/api/prefix.cc": r'name == "(\w+)"',
    "common/api/embeddings.cc": r'name == "(\w+)"',
    "gateway/proxy/passed_request.cc": r'(?:string_member\([^,"]*, |kKeptThere\{|kKeptThere\{"\w+", )"(\w+)"',
}
BRANCHES = "gateway/route/policy/candidates.cc"
METHODS = {"GET", "POST", "PUT", "PATCH", "DELETE"}
# Written in the page with their words in place of numbers, or the same as another.
ALIASES = {"/v1/models/": "/v1/models"}


def sources():
    """path -> text, of the programs' code without comments"""
    files = sorted(path for folder in ("common", "gateway", "worker") for path in (ROOT / folder).rglob("*") if path.suffix in (".h", ".cc"))
    return {str(path.relative_to(ROOT)): re.sub(r"(?m)^\s*//.*|(?<=[;{},)]) +// .*$", "", path.read_text()) for path in files}


def routes(code):
    """path -> methods"""
    constants = {name: value for text in code.values() for name, value in re.findall(r'\b(k\w+) = "(/[^"]*)"', text)}
    found = {}
    for table in ROUTE_TABLES:
        rows = re.findall(r'\{"((?:GET|POST|DELETE|PUT|PATCH)[A-Z, ]*)", (?:"(/[^"]*)"|(k\w+))[,}]', code[table])
        if len(rows) < 5:
            raise SystemExit(f"{table}: its table of routes is not where this test looks for it")
        for methods, path, constant in rows:
            path = path or constants[constant]
            found.setdefault(ALIASES.get(path, path), set()).update(set(methods.split(", ")) & METHODS)
    for path in re.findall(r'"(/[^"]+)"', code[PASSED]):
        found.setdefault(path, set()).add("POST")
    return found


def error_codes(code):
    codes = set()
    for text in code.values():
        for expression in re.findall(r"\b\w*\.code = ([^;]*);", text):
            codes |= set(re.findall(r'"([a-z_]+)"', expression))
        codes |= {name for name in re.findall(r'[,(]\s*"[a-z_]+_error",\s*"([a-z_]*)"\)', text) if name}
    return codes


def headers(code):
    return {name for text in code.values() for name in re.findall(r'"(x-troupe-[a-z-]*[a-z])"', text)}


def fields(code):
    """field -> the file that reads it"""
    found = {}
    for table, pattern in FIELD_TABLES.items():
        names = re.findall(pattern, code[table])
        if len(names) < 2:
            raise SystemExit(f"{table}: its fields are not where this test looks for them")
        found.update({name: table for name in names})
    return found


def branches(code):
    body = code[BRANCHES].split("branch_name(Branch branch) {")[1].split("\n}")[0]
    return set(re.findall(r'return "([a-z-]+)"', body))


def documented_fields(page):
    """all that is named, and what the table of fields has in its first column"""
    words = {word for quoted in re.findall(r"`([^`\n]+)`", page) for word in re.findall(r"[a-z_]+", quoted)}
    table = page.split("\n## Fields of a request")[1].split("\n\n")[1]
    rows = {name.split(".")[-1] for row in re.findall(r"(?m)^\|([^|]*)\|", table) for name in re.findall(r"`([^`/]+)`", row)}
    return words, rows


def documented_branches(page):
    table = page.split("| branch |")[1].split("\n\n")[0]
    return {name for row in re.findall(r"(?m)^\|([^|]*)\|", table) for name in re.findall(r"`([^`]+)`", row)}


def documented_routes(page):
    """path -> the methods that are written before it"""
    found = {}
    for quoted in re.findall(r"`([^`]+)`", page.split("\n## Errors")[0]):
        match = re.fullmatch(r"((?:(?:GET|POST|PUT|PATCH|DELETE)(?:, )?)+ )?(/[a-z0-9_/{}-]+)", quoted)
        if match:
            found.setdefault(match[2], set()).update(set(re.findall(r"[A-Z]+", match[1] or "")))
    return found


def documented_codes(page):
    """Of the table of errors' second column."""
    rows = re.findall(r"(?m)^\| [0-9, ]+ \|(.*)\|$", page)
    return {name for row in rows for name in re.findall(r"`([a-z]+(?:_[a-z]+)*)`", row)}


def differences(page, code):
    lines = []

    def compare(what, written, coded):
        lines.extend(f"{PAGE}: lacks the {what} {name}" for name in sorted(coded - written))
        lines.extend(f"{PAGE}: has the {what} {name}, which the sources do not" for name in sorted(written - coded))

    coded, written = routes(code), documented_routes(page)
    compare("path", set(written), set(coded))
    for path, methods in sorted(written.items()):
        lines.extend(f"{PAGE}: has {method} {path}, which is not answered" for method in sorted(methods - coded.get(path, methods)))
        if path in coded and path not in re.findall(r'"(/[^"]+)"', code[PASSED]):
            lines.extend(f"{PAGE}: lacks {method} {path}" for method in sorted(coded[path] - methods))
    compare("error code", documented_codes(page), error_codes(code))
    named, rows = documented_fields(page)
    read = fields(code)
    lines.extend(f"{PAGE}: lacks the field {name}, which {table} reads" for name, table in sorted(read.items()) if name not in named)
    quoted = set(re.findall(r'"([a-z_]+)"', "".join(text for path, text in code.items() if path.startswith("common/api/"))))
    lines.extend(f"{PAGE}: has the field {name}, which the sources do not" for name in sorted(rows - set(read) - quoted))
    compare("branch", documented_branches(page), branches(code))
    compare("header", set(re.findall(r"x-troupe-[a-z-]*[a-z]", page)), headers(code))
    return lines


def main():
    code = sources()
    page = (ROOT / PAGE).read_text()
    # The test itself: nothing that is left out of the page goes unnoticed.
    for part in ("`POST /v1/chat/completions`", "`overloaded`", "x-troupe-retry", "`top_p`", "`typical_p`", "`copy`", "`ttl_s`"):
        if part not in page or differences(page.replace(part, ""), code) == differences(page, code):
            sys.exit(f"tests/docs_api.py: does not notice that {part} is absent")
    lines = differences(page, code)
    print("\n".join(lines) or f"{PAGE}: {len(routes(code))} paths, {len(error_codes(code))} error codes, {len(headers(code))} headers, "
          f"{len(fields(code))} fields, {len(branches(code))} branches")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
