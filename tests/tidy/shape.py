"""How wide code may be: each rule counts by key, and a count over the budget may only shrink.

A rule is a function from {path: text} and {path: code} (code: strip_code) to {key: (count, path, line)} for every key over its
budget. ratchet.json holds today's counts, a section a rule; what has shrunk is written there by `tidy.py --ratchet`.
"""
import collections
import re

import source

FILE_LINES_MAX, FUNCTION_LINES_MAX = 400, 70
FOLDER_UNITS_MAX, CLASS_FILES_MAX, CLASS_FUNCTIONS_MAX, CLASS_FIELDS_MAX = 30, 2, 25, 20
COMMENT_COLUMNS = 110
# As wide as what they describe: a setting or a field of a protocol is added without asking.
WIDE_RECORDS = re.compile(r"(Options|Settings|Config|Flags)$")
WIDE_FOLDERS = {"common/api"}
# Decisions of a live program that the simulator must not take itself (it drives the machines that take them).
LIVE_RULES = re.compile(r"\bdecide_retry\b|\bNodeView\s*\{|\bClusterView\s*\(|\bNodeHealth\b")
RIDDLES = re.compile(r"\s*(What|Which|Who|Whose|Whoever|Of|Those)\b")


def file_lines(files, codes):
    return {path: (text.count("\n"), path, 1) for path, text in files.items() if text.count("\n") > FILE_LINES_MAX}


def function_lines(files, codes):
    found = {}
    for path, code in codes.items():
        for name, first, count in source.functions(code):
            key = f"{path}:{name}"
            if count > FUNCTION_LINES_MAX and count > found.get(key, (0,))[0]:
                found[key] = (count, path, first)
    return found


def unit_cycles(files, codes):
    """Units that include one another, by unit; the count is of those in its cycle."""
    found = {}
    for cycle in source.cycles(source.include_graph(files)):
        for unit in cycle:
            path = next(path for path in sorted(files, reverse=True) if source.unit_of(path) == unit)
            found[unit] = (len(cycle), path, 1)
    return found


def folder_units(files, codes):
    units = collections.defaultdict(set)
    for path in files:
        units[source.folder(path)].add(source.unit_of(path))
    return {folder: (len(names), folder, 1) for folder, names in units.items() if len(names) > FOLDER_UNITS_MAX}


def class_files(files, codes):
    """The .cc (or .cu) files in which functions of one class are defined; a class nested in another counts by itself."""
    names = {(source.folder(path), name) for path, code in codes.items() for name, _, _ in source.classes(code)}
    spread = collections.defaultdict(dict)
    for path, code in codes.items():
        if not path.endswith((".cc", ".cu")):
            continue
        for name, first, _ in source.functions(code):
            owner = (source.folder(path), re.sub(r"<[^<>]*>", "", name.rpartition("::")[0]))
            if owner in names:
                spread[owner].setdefault(path, first)
    found = {}
    for (folder, name), places in spread.items():
        if len(places) > CLASS_FILES_MAX:
            path = sorted(places)[-1]
            found[f"{folder}:{name}"] = (len(places), path, places[path])
    return found


def classes(codes):
    """(path, name, line, body) of every class."""
    for path, code in codes.items():
        for name, line, body in source.classes(code):
            yield path, name, line, body


def is_wide_record(path, name):
    return bool(WIDE_RECORDS.search(name)) or source.folder(path) in WIDE_FOLDERS


def class_functions(files, codes):
    found = {}
    for path, name, line, body in classes(codes):
        count = sum(kind == "function" for kind, _ in source.members(body))
        if count > CLASS_FUNCTIONS_MAX:
            found[f"{source.folder(path)}:{name}"] = (count, path, line)
    return found


def class_fields(files, codes):
    found = {}
    for path, name, line, body in classes(codes):
        if is_wide_record(path, name):
            continue
        count = sum(source.field_count(text) for kind, text in source.members(body) if kind == "field")
        if count > CLASS_FIELDS_MAX:
            found[f"{source.folder(path)}:{name}"] = (count, path, line)
    return found


def live_rules_in_sim(files, codes):
    found = {}
    for path, code in codes.items():
        places = [match.start() for match in LIVE_RULES.finditer(code)] if path.startswith("sim/") else []
        if places:
            found[path] = (len(places), path, source.line_of(code, places[0]))
    return found


def riddles(files, codes):
    found = {}
    for path, text in files.items():
        lines = [comment.first for comment in source.comments(text) if not comment.trails and RIDDLES.match(comment.lines[0])]
        if lines:
            found[path] = (len(lines), path, lines[0])
    return found


def torn_comments(files, codes):
    """A line of one or two words that the line before it had no room for, and that goes on: clang-format broke it off."""
    found = {}
    for path, text in files.items():
        torn = []
        for comment in source.comments(text):
            before_after = zip(comment.lines, comment.lines[1:], comment.lines[2:])
            for number, (before, line, after) in enumerate(before_after, comment.first + 1):
                words = line.split()
                goes_on = len(words) in (1, 2) and re.match(r" \S", line) and before.strip() and after.strip()
                if goes_on and not re.match(r" *[-*] ", line) and not re.match(r" *[-*] ", after) and \
                        comment.indent + 3 + len(before) + len(words[0]) > COMMENT_COLUMNS:
                    torn.append(number)
        if torn:
            found[path] = (len(torn), path, torn[0])
    return found


# section: (rule, whether tests obey it, budget, what to say of a count over it)
RULES = {
    "file lines": (file_lines, False, FILE_LINES_MAX, "lines: split it by what changes together"),
    "function lines": (function_lines, False, FUNCTION_LINES_MAX, "lines in function {key}: name its parts"),
    "unit cycles": (unit_cycles, False, 1, "units include one another, {key} among them: move what both need into a third"),
    "folder units": (folder_units, False, FOLDER_UNITS_MAX, "units in a folder: divide it by what may include what"),
    "class files": (class_files, False, CLASS_FILES_MAX,
                    "files define functions of {key}: divide the class (a state and what works on it), not its text"),
    "class functions": (class_functions, False, CLASS_FUNCTIONS_MAX, "functions in {key}: divide it"),
    "class fields": (class_fields, False, CLASS_FIELDS_MAX, "fields in {key}: group those that change together"),
    "live rules in sim": (live_rules_in_sim, False, 0,
                          "mentions of a decision of the live program: drive its machine (gateway/route) instead"),
    "riddles": (riddles, True, 0, "comments begin with What, Which, Who, Whose, Whoever, Of or Those: begin with the subject"),
    "torn comments": (torn_comments, True, 0, "lines torn off by the formatter: fill the paragraph anew"),
}


def check(report, ratchet, files, codes):
    """Reports what is over its budget and its ratchet, and what has shrunk below the latter; returns all that is over a budget."""
    own = {path: text for path, text in files.items() if not path.startswith("tests/")}
    own_codes = {path: codes[path] for path in own}
    counts = {}
    for section, (rule, with_tests, budget, words) in RULES.items():
        old = ratchet.get(section, {})
        found = rule(files, codes) if with_tests else rule(own, own_codes)
        counts[section] = {key: count for key, (count, _, _) in found.items()}
        for key, (count, path, line) in found.items():
            limit = old.get(key, budget)
            if count > limit:
                report(path, line, f"{count} {words.format(key=key)} (at most {limit})")
        shrunk = [f"'{key}' {counts[section].get(key, 'within the budget')} from {limit}" for key, limit in old.items()
                  if counts[section].get(key, 0) < limit]
        if shrunk:
            report("tests/tidy/ratchet.json", 1, f"{section}, down: {'; '.join(shrunk[:3])}{'; …' if shrunk[3:] else ''} ({len(shrunk)} in all): "
                   "run tidy.py --ratchet to keep it there")
    return {section: found for section, found in counts.items() if found}


def tighten(ratchet, counts):
    """The ratchet with every count that has shrunk, and none that has grown."""
    lower = {section: {key: min(limit, counts[section][key]) for key, limit in old.items() if key in counts.get(section, {})}
             for section, old in ratchet.items()}
    return {section: entries for section, entries in lower.items() if entries}
