"""A grammar made of a JSON Schema, asked whether instances are answers under it (tests/common/grammar/grammar_probe.cc)."""
import itertools
import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).parents[2]
ORDERS_MAX = 120


def orders(value):
    """The value with the members of its objects in every order."""
    if isinstance(value, dict):
        for names in itertools.permutations(value):
            for values in itertools.product(*(list(itertools.islice(orders(value[name]), ORDERS_MAX)) for name in names)):
                yield dict(zip(names, values))
    elif isinstance(value, list):
        yield from (list(items) for items in itertools.product(*(list(itertools.islice(orders(item), ORDERS_MAX)) for item in value)))
    else:
        yield value


def places(schema, found):
    """{name of a member: its place among those that the schema declares and asks for}"""
    if isinstance(schema, dict):
        for names in (schema.get("properties"), schema.get("required")):
            for name in names if isinstance(names, (dict, list)) else ():
                if isinstance(name, str):
                    found.setdefault(name, len(found))
        for value in schema.values():
            places(value, found)
    elif isinstance(schema, list):
        for value in schema:
            places(value, found)
    return found


def in_order(value, found):
    """The value with the members of its objects as declared, others behind them."""
    if isinstance(value, dict):
        return {name: in_order(value[name], found) for name in sorted(value, key=lambda name: found.get(name, len(found)))}
    return [in_order(item, found) for item in value] if isinstance(value, list) else value


def keywords(schema):
    if isinstance(schema, dict):
        return set(schema).union(*map(keywords, schema.values()))
    return set().union(*map(keywords, schema)) if isinstance(schema, list) else set()


class Probe:
    def __init__(self, folder):
        path = folder / "vocabulary"
        path.write_text("-\n" + "".join(f"{byte:02x}\n" for byte in range(255)))
        self.process = subprocess.Popen([ROOT / "build/bin/grammar_probe", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)

    def ask(self, question):
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")

    def accepts(self, value, schema):
        tried = itertools.chain([in_order(value, places(schema, {}))], itertools.islice(orders(value), ORDERS_MAX))
        texts = (json.dumps(order, ensure_ascii=False) for order in tried)
        return any(self.ask(f"accepts {json.dumps(text)}") == "1" for text in texts)

    def close(self):
        self.process.stdin.close()
        self.process.wait()
