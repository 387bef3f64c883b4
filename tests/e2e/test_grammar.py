"""Constrained decoding against others' programs: random answers drawn by our masks are valid by jsonschema, and masks are
llguidance's where both enforce the same (bin/grammar_probe is the bridge)."""
import json
import pathlib
import random
import subprocess

import jsonschema
import llguidance
import pytest

ROOT = pathlib.Path(__file__).parents[2]
WORDS = """{" ": ": " ", "," "} "}] },{ [{ ]} }} [] {} [[ true false null tr ue fal 00 123 1. .5 e+ -1 12 2, ab abc name na me": value val
\\n \\u \\" 00e9 id "id" "a "b": a" "a" "c the cat quick brown and or not in of it is was 2024 -02 T12 :00 Z" @ex .com http:// :// ://a""".split()
SPACED = [" ", "  ", "\n", "\n  ", " the", ", \"", "\": \"", ": ", ", ", ",\n", " a", " {", " \"", "é", "宋", "江", "é\""]
# (Byte 0xFF is no text: llguidance marks its special tokens with it.)
TOKENS = [b""] + [bytes([b]) for b in range(256) if b != 0xFF] + \
    sorted({word.encode() for word in WORDS + SPACED if len(word.encode()) > 1})

PERSON = {"type": "object", "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 12},
                                           "age": {"type": "integer", "minimum": 0, "maximum": 130},
                                           "mood": {"enum": ["happy", "sad", None]},
                                           "tags": {"type": "array", "items": {"type": "string", "maxLength": 4}, "maxItems": 3}},
          "required": ["name", "mood"], "additionalProperties": False}
SCHEMAS = [
    {}, {"type": "object"}, PERSON, {"type": "array", "items": PERSON, "minItems": 1, "maxItems": 2},
    {"type": "number", "minimum": -2.5, "exclusiveMaximum": 100}, {"type": "integer", "multipleOf": 12, "maximum": 5000},
    {"type": "integer", "exclusiveMinimum": -40, "maximum": -3},
    {"type": "string", "pattern": "^[a-c]{2,4}(-[0-9]+)?$"}, {"type": "string", "pattern": "ab|^x", "maxLength": 6},
    *({"type": "string", "format": name} for name in ("date", "time", "date-time", "ipv4", "ipv6", "uuid", "email", "uri")),
    {"anyOf": [{"type": "integer"}, {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]}]},
    {"oneOf": [{"properties": {"k": {"const": 1}, "v": {"type": "boolean"}}, "required": ["k", "v"], "type": "object"},
               {"properties": {"k": {"const": 2}, "v": {"type": "integer"}}, "required": ["k", "v"], "type": "object"}]},
    {"$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}},
                        "required": ["v", "next"], "additionalProperties": False}}, "$ref": "#/$defs/node"},
    {"type": "object", "patternProperties": {"^a": {"type": "integer"}, "b$": {"minimum": 3}}, "additionalProperties": {"type": "boolean"}, "maxProperties": 4},
    {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "minProperties": 2, "additionalProperties": False,
     "dependentRequired": {"a": ["c"]}},
    {"type": "array", "prefixItems": [{"type": "boolean"}, {"const": "x"}], "items": {"type": "integer"}, "minItems": 1},
    {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"a": {"minimum": 7}}}]},
    {"type": "object", "propertyNames": {"pattern": "^[ab]+$"}, "additionalProperties": {"type": "integer"}, "maxProperties": 2},
    {"enum": [1.5, "é\n", {"a": [1, {}]}, None]},
]


class Probe:
    def __init__(self, folder):
        path = folder / "vocabulary"
        path.write_text("".join((token.hex() or "-") + "\n" for token in TOKENS))
        self.process = subprocess.Popen([ROOT / "build/bin/grammar_probe", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, question):
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")

    def compile(self, kind, text):
        answer = self.ask(f"compile {kind} {json.dumps(text)}")
        assert answer.startswith("ok"), (text, answer)

    def mask(self):
        return set(map(int, self.ask("mask").split()[1:]))


@pytest.fixture(scope="module")
def probe(tmp_path_factory):
    bridge = Probe(tmp_path_factory.mktemp("grammar"))
    yield bridge
    bridge.process.stdin.close()
    bridge.process.wait()


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: json.dumps(schema)[:60])
def test_random_answers_are_valid(probe, schema):
    probe.compile("schema", json.dumps(schema))
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    ended = 0
    for seed in range(40):
        text = json.loads(probe.ask(f"sample {seed} {seed % 30} 600"))
        if text is not None:
            ended += 1
            assert not list(validator.iter_errors(json.loads(text))), text
    assert ended >= 5


class Tokenizer:
    """The vocabulary as llguidance's wrapper asks for it."""
    eos_token_id, bos_token_id = 0, None
    tokens = [b"\xff<end>"] + TOKENS[1:]
    special_token_ids = [0]

    def __call__(self, text):
        return [byte + 1 for byte in (text.encode() if isinstance(text, str) else text)]


# Both enforce all of these, with free whitespace off and in the same spellings.
COMMON = [("regex", "[a-c]{2,4}(-[0-9]+)?"), ("regex", "(the|cat) .{0,3}[^a-z]"), ("regex", "(a|ab|abc)+é?"),
          ("regex", "(true|tr+ue)(,[0-9]{1,3})*"),
          ("compact", {"type": "object", "properties": {"name": {"enum": ["ab", "abc"]}, "id": {"type": "boolean"}}, "required": ["name"],
                       "additionalProperties": False}),
          ("compact", {"type": "array", "items": {"enum": ["the", None, 12, 123]}, "minItems": 1, "maxItems": 3}),
          ("compact", {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"], "additionalProperties": False}]})]


@pytest.mark.parametrize("kind,grammar", COMMON, ids=lambda value: str(value)[:40])
def test_masks_are_those_of_llguidance(probe, kind, grammar):
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Tokenizer()))
    if kind == "regex":
        probe.compile("regex", grammar)
        other = llguidance.LLMatcher.grammar_from_regex(grammar)
    else:
        probe.compile("compact", json.dumps(grammar))
        options = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
        other = llguidance.LLMatcher.grammar_from_json_schema(grammar, defaults=options)
    generator = random.Random(5)
    compared = 0
    for _ in range(15):
        assert probe.ask("start") == "ok"
        matcher = llguidance.LLMatcher(tokenizer, other)
        assert not matcher.get_error(), matcher.get_error()
        for _ in range(12):
            ours = probe.mask()
            bits = matcher.compute_bitmask()
            theirs = {i for i in range(len(TOKENS)) if bits[i // 8] >> (i % 8) & 1}
            if len(theirs) == 1:  # forced text: of its tokens llguidance allows the tokenizer's own alone
                assert theirs <= ours
            else:
                assert ours == theirs, [TOKENS[i] for i in ours ^ theirs]
                compared += 1
            choice = sorted(ours)[generator.randrange(len(ours))]
            if choice == 0:
                break
            assert probe.ask(f"accept {choice}").startswith("1")
            assert matcher.consume_token(choice)
    assert compared > 20
