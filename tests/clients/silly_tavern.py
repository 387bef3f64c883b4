"""SillyTavern's own server, started from a checkout (its folder with `npm install` done) on data of its own, and asked as its page asks
it: a session's cookie and the token that its forms carry. `with SillyTavern(checkout, scratch) as tavern: tavern.post(path, body)`."""
import json
import pathlib
import signal
import subprocess
import sys
import time

import httpx

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from fleet import die_with_parent  # noqa: E402
from ports import free_port  # noqa: E402

START_S, ANSWER_S = 180, 120


class SillyTavern:
    def __init__(self, checkout, scratch):
        self.checkout, self.scratch, self.port = pathlib.Path(checkout).resolve(), pathlib.Path(scratch), free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        log_path = self.scratch / "sillytavern.log"
        # (No pages opened, nothing downloaded: extensions and assets stay as they are.)
        command = ["node", "server.js", "--port", self.port, "--dataRoot", self.scratch / "data", "--configPath", self.scratch / "config.yaml",
                   "--browserLaunchEnabled", "false", "--listen", "false"]
        with open(log_path, "wb") as log:
            self.process = subprocess.Popen([str(part) for part in command], cwd=self.checkout, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True, preexec_fn=die_with_parent)
        self.client = httpx.Client(base_url=self.url, timeout=ANSWER_S, trust_env=False)
        deadline = time.monotonic() + START_S
        while True:
            try:
                answer = self.client.get("/csrf-token")
                break
            except httpx.TransportError:
                assert self.process.poll() is None and time.monotonic() < deadline, log_path.read_text("utf-8", "replace")[-3000:]
                time.sleep(0.2)
        self.client.headers["x-csrf-token"] = answer.json()["token"]
        return self

    def __exit__(self, *exc):
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)

    def post(self, path, body):
        answer = self.client.post(path, json=body)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[:500]}"
        return answer.json()

    def events(self, path, body):
        """The events' data of a streamed answer, but the last ([DONE])."""
        with self.client.stream("POST", path, json=body) as answer:
            assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.read()[:500]}"
            data = [line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: ")]
        return [json.loads(line) for line in data if line != "[DONE]"]

    def leave(self, path, body, events=2):
        """Begins to read a stream and goes."""
        with self.client.stream("POST", path, json=body) as answer:
            assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.read()[:500]}"
            for line in answer.iter_lines():
                events -= line.startswith("data: ")
                if events <= 0:
                    return
