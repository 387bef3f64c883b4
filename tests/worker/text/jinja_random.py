"""Random templates, expressions and chats for jinja_oracle.py: small grammars, everything by one seeded generator."""

ATOMS = ["1", "0", "-3", "2.5", "1e3", "''", "'a b'", "'Äb\\n'", "true", "false", "none", "[]", "[3, 1, 2]", "['b', 'A', 'c']",
         "{'k': 1, 'j': 'v'}", "(1, 2)", "(1,)", "x", "n", "nested", "nested.list", "nested.b.c", "missing", "messages",
         "messages[0]", "messages[-1].content", "messages[0]['role']", "big", "empty", "tools", "nested.items", "nested['items']",
         "'x'|safe", "range(4)", "'a,b,,c'", "12345", "'%s and %d'", "'{} {k:>4}'", "('a', 2)", "joiner('+')", "cycler(1, 2)", "'Word up'", "dict(a=1)", "'  pad '", "1.0", "7", "'<&>'", "nested.list[3]"]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
FILTERS = ["length", "upper", "lower", "title", "capitalize", "trim", "string", "int", "float", "abs", "round", "round(1)", "first",
           "last", "list", "reverse|list", "sort", "unique|list", "join", "join(', ')", "tojson", "tojson(indent=2)", "default('d')",
           "default('d', true)", "items|list", "dictsort", "replace('b', 'XX')", "safe", "indent", "indent(2, true)", "min", "max",
           "sum", "map('upper')|list", "map(attribute='role')|list", "select|list", "reject('none')|list", "wordcount",
           "selectattr('role')|list", "selectattr('role', 'equalto', 'user')|list", "rejectattr('content', 'none')|list",
           "select('string')|list", "batch(2)|list", "escape", "tojson(sort_keys=true, separators=(',', ':'))", "count",
           "map('length')|list", "sort(reverse=true)", "attr('upper')", "round(0, 'floor')", "round(method='ceil')", "trim('a ')",
           "groupby('role')", "groupby('role', default='x')|map(attribute='list')|list", "groupby('content', case_sensitive=true)|length",
           "sort(attribute='role,content')|list", "slice(2)|list", "slice(3, 'f')|list", "format(1)", "format('a', 2)", "format(k=3)",
           "center(9)", "truncate(5)", "truncate(3, true, '')", "truncate(6, leeway=0)", "urlencode", "forceescape", "int(7, 16)",
           "int(base=8)", "int(-1, 0)", "map('replace', 'a', 'b')|list", "map(attribute='content', default='?')|list",
           "select('defined')|list", "sum(start=10)", "sum(attribute='k')", "dictsort(by='value')", "dictsort(true, reverse=true)",
           "min(attribute='role')", "max(case_sensitive=true)", "unique(attribute='role')|list", "batch(2, '-')|list",
           "replace('a', 'b', 1)", "join('-', attribute='role')", "tojson(ensure_ascii=true)", "tojson(indent=0)", "indent(width='> ')",
           "map(*['upper'])|list", "default(**{'default_value': 3})"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "sequence", "iterable", "true",
         "false", "odd", "even", "divisibleby 3", "divisibleby(2)", "eq 1", "equalto('a b')", "in [1, 2.5, none]", "sameas none",
         "upper", "lower", "callable", "ne 0", "gt 1", "escaped", "filter", "test", "lt 3", "ge(2)", "le 'b'", "sameas true", "!= 1", "== 2",
         "lessthan 5", "greaterthan(0)"]
SUFFIXES = [".strip()", ".split()", ".split(',')", ".split('b', 1)", ".rsplit(None, 1)", ".upper()", ".title()", ".lower()", "[0]", "[-1]",
            "[1:]", "[:-1]", "[::-1]", "[::2]", "[-2:]", "['k']", ".k", ".role", ".items()", ".keys()|list", ".values()|list",
            ".get('k')", ".get('q', 5)", ".startswith('a')", ".endswith(('b', 'c'))", ".replace('a', '')", ".lstrip('a')", ".rstrip('\\n')",
            ".find('b')", ".count('a')", ".join(['p', 'q'])", ".foo", ".foo.bar", "[99]", ".append(1)", ".capitalize()", ".splitlines()",
            ".removeprefix('a')", ".isdigit()", ".index(1)", ".rsplit('b', 1)", ".rsplit()", ".split(None, 1)", ".split(maxsplit=1)",
            ".split(sep='a', maxsplit=2)", ".partition(' ')", ".rpartition('a')", ".center(7)", ".center(8, '*')", ".ljust(5, '.')",
            ".rjust(6)", ".zfill(5)", ".swapcase()", ".casefold()", ".isalnum()", ".isupper()", ".islower()", ".istitle()",
            ".isascii()", ".isdecimal()", ".isidentifier()", ".isprintable()", ".expandtabs(4)", ".format(1, k=2)", ".format('x', k='y')",
            ".format(*[1, 2], **{'k': 3})", ".startswith(('p', ' '))", ".strip('a b')", ".removesuffix('b')", ".rfind('a')",
            ".count('')", ".find('', 2)", ".replace('a', 'bb', 1)", ".splitlines(true)", "[1:4:2]", "[-1:0:-1]", "[5:1]", "[none:2]",
            ".next()", ".current", ".name", ".keys()", ".values()|list|length", "['role']", "[1, 2]", ".pop('k')", ".update({})", ".copy()"]


def expression(rng, depth):
    kind = rng.random()
    if depth == 0 or kind < 0.25:
        return rng.choice(ATOMS)
    if kind < 0.45:
        return f"({expression(rng, depth - 1)} {rng.choice(BINARY)} {expression(rng, depth - 1)})"
    if kind < 0.65:
        return f"({expression(rng, depth - 1)})|{rng.choice(FILTERS)}"
    if kind < 0.75:
        return f"({expression(rng, depth - 1)}) is {rng.choice(['', 'not '])}{rng.choice(TESTS)}"
    if kind < 0.92:
        return f"({expression(rng, depth - 1)}){rng.choice(SUFFIXES)}"
    if kind < 0.94:
        return f"({expression(rng, depth - 1)} if {expression(rng, depth - 1)} else {expression(rng, depth - 1)})"
    if kind < 0.97:
        return percent(rng, depth)
    return rng.choice([f"[{expression(rng, depth - 1)}, {expression(rng, depth - 1)}]", f"(not {expression(rng, depth - 1)})",
                       f"(-{expression(rng, depth - 1)})", f"{{'k': {expression(rng, depth - 1)}}}"])


def percent(rng, depth):
    """Either way to put values into a text."""
    value = lambda: expression(rng, depth - 1)  # noqa: E731
    if rng.random() < 0.6:
        conversion = lambda: (rng.choice(["%s", "%d", "%r", "%x", "%c", "%5s", "%-6s|", "%05d", "%+d", "% d", "%.2f", "%8.3e", "%g", "%#x",  # noqa: E731
                                          "%.1s", "%%", "%i", "%*d", "%o", "%X", "%.0f", "%06.2f", "%5.1f%%", "%G", "%(k)s", "%(k)5d", "%"]))
        right = rng.choice([f"({value()}, {value()})", f"({value()},)", value(), f"{{'k': {value()}}}"])
        return f"('{conversion()} {rng.choice(['', conversion()])}' % {right})"
    field = lambda: rng.choice(["{}", "{0}", "{1}", "{k}", "{:>6}", "{:<6}|", "{:^7}", "{:*^9}", "{:05}", "{:.2f}", "{:d}", "{:x}", "{:,}",  # noqa: E731
                                "{!r}", "{!s:>5}", "{k[0]}", "{k.upper}", "{k[a]}", "{{}}", "{:{k}}", "{:e}", "{:.3}", "{:+}", "{:%}", "{:#b}",
                                "{:=+6}", "{", "}", "{:s}", "{:c}", "{:_}", "{:.1%}", "{0:g}", "{:G}", "{:n}", "{:08.3f}", "{:06}"])
    return f"'{field()} {rng.choice(['', field()])}'.format({value()}, {value()}, k={value()})"


def tag(rng, text):
    return f"{{%{rng.choice(['', '-', '', '+'])} {text} {rng.choice(['', '-', '', '+'])}%}}"


def space(rng):
    return rng.choice(["", " ", "\n", "  \n", "\t", "t", "\n  x\n", "{# c #}", "{#- c -#}\n", " {{- 'v' -}} "])


def template(rng, depth):
    """Statements around random expressions, with white space and signs in all places."""
    kind = rng.random()
    body = "".join([space(rng), template(rng, depth - 1) if depth > 0 else "", space(rng)])
    value = expression(rng, 2)
    if depth == 0 or kind < 0.35:
        return f"{space(rng)}{{{{{rng.choice(['', '-'])} {expression(rng, 3)} {rng.choice(['', '-'])}}}}}{space(rng)}"
    if kind < 0.5:
        middle = rng.choice(["", tag(rng, "else") + space(rng), tag(rng, f"elif {value}") + "E"])
        return tag(rng, f"if {expression(rng, 2)}") + body + middle + tag(rng, "endif")
    if kind < 0.68:
        inside = rng.choice(["{{ loop.index }}{{ loop.last }}", "{{ i }}", "{% set x = i %}{{ x }}", "{{ loop.previtem is defined }}",
                             "{% if loop.index0 == 1 %}{% continue %}{% endif %}{{ i }}", "{% if loop.index == 2 %}{% break %}{% endif %}",
                             "{{ loop.revindex }}{{ loop.cycle('a', 'b') }}", "{{ loop.length }}{{ loop.changed(i) }}",
                             "{{ loop.revindex0 }}{{ loop.first }}{{ loop.nextitem }}", "{{ loop.depth }}{{ loop.depth0 }}{{ loop.previtem }}",
                             "{% for j in [1, 2] %}{{ loop.index }}{% if j == x %}{% break %}{% endif %}{% else %}e{% endfor %}{{ loop.index }}"])
        return (tag(rng, f"for i in {value}{rng.choice(['', '', ' if i'])}") + inside + body +
                rng.choice(["", tag(rng, "else") + "none"]) + tag(rng, "endfor"))
    if kind < 0.78:
        return tag(rng, f"set v = {value}") + body + "{{ v }}"
    if kind < 0.84:
        return tag(rng, "set v") + body + tag(rng, "endset") + "{{ v|upper }}"
    if kind < 0.92:
        return (tag(rng, "macro m(a, b=2)") + "{{ a }}" + body + "{{ b }}" + tag(rng, "endmacro") +
                rng.choice(["{{ m(1) }}", "{{ m(b='q', a=x) }}", "{{ m() }}", "{{ m(1, 2, 3) }}", "{{ m(c=1) }}", "{{ m(*[1, 2]) }}",
                            "{{ m(**{'b': 5}) }}", "{{ m(1, a=2) }}", "{{ m(*messages) }}", "{% call m(1) %}in{% endcall %}",
                            "{{ m.arguments }}{{ m.name }}{{ m.catch_kwargs }}"]))
    if kind < 0.94:
        return (f"{{% macro v(a) %}}{{{{ a }}}}{rng.choice(['{{ varargs }}', '{{ kwargs }}', '{{ kwargs.k }}{{ varargs|length }}', '{{ caller() }}', '{{ caller(2) if caller }}'])}"
                f"{body}{{% endmacro %}}" + rng.choice(["{{ v(1, 2, 3) }}", "{{ v(k=1, a=2) }}", "{{ v(1, 2, k=4) }}", "{{ v() }}", "{{ v(1, a=2) }}",
                                                        "{% call v(1) %}in{{ x }}{% endcall %}", "{% call(q) v(1) %}in{{ q }}{% endcall %}"]))
    if kind < 0.96:
        return (f"{{% set ns = namespace(a={value}, l=[]) %}}{{% for q in [1, 2] %}}{{% set ns.l = ns.l + [q] %}}{body}{{% endfor %}}"
                "{{ ns.l }}{{ ns.a }}")
    return rng.choice([tag(rng, "filter upper") + body + tag(rng, "endfilter"), tag(rng, "raw") + "{{ x }}\n" + tag(rng, "endraw"),
                       tag(rng, f"with w = {value}") + "{{ w }}" + body + tag(rng, "endwith"),
                       tag(rng, "generation") + body + tag(rng, "endgeneration")])


# What a chat may look like when its sender is careless.
TEXTS = ["", " ", "Hi", " Hallo  Welt\n", "宋江\t👩‍🎨", "1 < 2 & 'x' \"q\"", "<think>\nhm\n</think>\n\nja", "a\n\n  b", "</think>", "[INST] x [/INST]", "<|im_end|>",
         "{{ x }}", "\u00a0pad\u2028", "e\u0301 ﬁ ß", "\\n", "</s>", "[TOOL_CALLS]", "```json\n{}\n```"]
SCALARS = [None, True, False, 0, 1, -7, 3.5, 1e22, 1e-7, 0.1, 2**53, -2**63, 2**63 - 1, "", "x", [], {}]
ROLES = ["system", "user", "assistant", "tool", "developer", "function", "ipython", "", "User"]
NAMES = ["f", "get_weather", "f<x>", "größe", "brave_search", "internet_search"]


def json_value(rng, depth):
    kind = rng.random()
    if depth == 0 or kind < 0.5:
        return rng.choice(SCALARS + TEXTS)
    if kind < 0.75:
        return [json_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {rng.choice(["a", "b", "type", "description", "größe", "items", "x y"]): json_value(rng, depth - 1) for _ in range(rng.randrange(4))}


def content(rng):
    kind = rng.random()
    if kind < 0.65:
        return rng.choice(TEXTS)
    if kind < 0.75:
        return None
    if kind < 0.92:
        return [rng.choice([{"type": "text", "text": rng.choice(TEXTS)}, {"type": "image"}, {"type": "image_url", "image_url": {"url": "u"}},
                            {"text": rng.choice(TEXTS)}, rng.choice(TEXTS), {"type": "text"}]) for _ in range(rng.randrange(4))]
    return json_value(rng, 2)


def tool_call(rng):
    function = {"name": rng.choice(NAMES), "arguments": rng.choice([json_value(rng, 3), {"q": rng.choice(TEXTS), "n": rng.choice(SCALARS)}, '{"a": 1}'])}
    call = rng.choice([{"type": "function", "function": function}, {"function": function}, function, {"id": "abcdef123", "type": "function", "function": function}])
    return {key: value for key, value in call.items() if rng.random() < 0.95}


def message(rng, role):
    made = {"role": role, "content": content(rng)}
    if rng.random() < 0.12:
        made["tool_calls"] = rng.choice([[tool_call(rng) for _ in range(rng.randrange(3))], None])
    if role == "tool" or rng.random() < 0.05:
        made.update({"name": rng.choice(NAMES), "tool_call_id": rng.choice(["abcdef123", "1", None])})
    if rng.random() < 0.08:
        made["reasoning_content"] = rng.choice(TEXTS + [None])
    for key in list(made):
        if rng.random() < 0.03:
            del made[key]
    return made


def tool(rng):
    properties = {rng.choice(["b", "A", "größe", "n"]): rng.choice([{"type": "string", "description": rng.choice(TEXTS)}, {"type": ["number", "null"]},
                                                                   {"type": "array", "items": {"type": "integer"}}, {"type": "object", "properties": {}},
                                                                   {"enum": ["x", 1, None]}, {}]) for _ in range(rng.randrange(4))}
    function = {"name": rng.choice(NAMES), "description": rng.choice(TEXTS), "parameters": {"type": "object", "properties": properties,
                                                                                           "required": list(properties)[:1]}}
    if rng.random() < 0.3:
        function["return"] = {"type": "string", "description": "d"}
    if rng.random() < 0.1:
        del function[rng.choice(list(function))]
    return rng.choice([{"type": "function", "function": function}, {"type": "function", "function": function}, function])


def chat_context(rng, now):
    """A chat as templates get it: mostly in order, with one thing or another missing or of another kind."""
    roles = (["system"] if rng.random() < 0.5 else []) + ["user", "assistant"] * rng.randrange(4) + (["user"] if rng.random() < 0.8 else [])
    if rng.random() < 0.4:
        roles.insert(rng.randrange(len(roles) + 1), rng.choice(ROLES))
    context = {"now": now, "bos_token": "<s>", "eos_token": "</s>", "messages": [message(rng, role) for role in roles],
               "add_generation_prompt": rng.random() < 0.5, "tools": rng.choice([None, None, [], [tool(rng)], [tool(rng), tool(rng)]]),
               "documents": rng.choice([None, None, None, [{"title": "t", "text": rng.choice(TEXTS)}]])}
    for name in ("enable_thinking", "thinking", "date_string", "tools_in_user_message", "builtin_tools", "custom_tools", "preserve_thinking", "unk_token"):
        if rng.random() < 0.1:
            context[name] = rng.choice([True, False, None, "x", [], ["code_interpreter"]])
    for name in list(context):
        if name != "now" and rng.random() < 0.02:
            del context[name]
    return context
