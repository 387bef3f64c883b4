"""configs/simulator.yaml holds every setting of `troupe-sim replay` with its default, and the program takes the file."""
import re
import subprocess

import yaml

from fleet import BIN, ROOT

CONFIG = ROOT / "configs/simulator.yaml"


def defaults():
    """key -> default, as --help tells it: a long flag is described on the next line."""
    text = subprocess.run([BIN / "troupe-sim", "replay", "--help"], check=True, capture_output=True, text=True).stdout
    told = re.findall(r"^  --(?:\[no-\])?([a-z0-9.-]+)(?: ([A-Z,]+))?(?: |\n +).*default ([^;)]*)(?:; changes on SIGHUP)?\)$", text, re.MULTILINE)
    empty = lambda kind: "[]" if kind == "A,B" else '""'
    return {name.replace("-", "_"): yaml.safe_load(empty(kind) if value == "empty" else value) for name, kind, value in told}


def flat(node, before=""):
    for key, value in node.items():
        if isinstance(value, dict):
            yield from flat(value, f"{before}{key}.")
        else:
            yield before + key, value


def test_the_file_names_every_key_with_its_default():
    known = defaults()
    assert len(known) > 60 and known["nodes"] == 16 and known["route.sets_max"] == 16384
    assert dict(flat(yaml.safe_load(CONFIG.read_text()))) == known


def test_the_program_takes_the_file_and_refuses_a_key_that_it_does_not_know(tmp_path):
    for command in ("replay", "compare", "capacity"):
        assert subprocess.run([BIN / "troupe-sim", command, "--config", CONFIG, "--check-config"], capture_output=True).returncode == 0
    other = tmp_path / "other.yaml"
    other.write_text(CONFIG.read_text().replace("\nnodes:", "\nnoeds:"))
    refused = subprocess.run([BIN / "troupe-sim", "replay", "--config", other, "--check-config"], capture_output=True, text=True)
    assert refused.returncode == 2 and "noeds" in refused.stderr
