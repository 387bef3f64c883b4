"""The README's curl, pasted into a shell: its answer is right, and the second time out of the cache."""
import json
import re
import subprocess

from fleet import ROOT


def pasted(command):
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    return answer["choices"][0]["message"]["content"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_the_curl_of_the_readme_has_the_right_answer(start):
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)
    curls = [block for block in blocks if block.startswith("curl ")]
    assert len(curls) == 1
    here = curls[0].replace("http://127.0.0.1:30000", start(workers=3).url)
    assert here != curls[0], "the README names the gateway's default port"
    first, cold = pasted(here)
    again, cached = pasted(here)
    assert "one-eyed cat" in first and again == first and cold == 0 and cached > 0


def test_the_commands_of_the_readme_are_there():
    commands = re.findall(r"^((?:deploy|tests)/\S+\.sh)\b", (ROOT / "README.md").read_text("utf-8"), re.M)
    assert set(commands) >= {"deploy/local/run.sh", "tests/run.sh"}
    for command in set(commands):
        done = subprocess.run([str(ROOT / command), "--help"], capture_output=True, text=True, timeout=30)
        assert done.returncode == 0 and "usage:" in done.stdout
