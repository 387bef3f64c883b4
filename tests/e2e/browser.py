"""A real browser, headless, told what to do over a pair of pipes (Chromium's --remote-debugging-pipe): no port, no driver, no
package. `with Browser(folder) as browser: page = browser.open(path, width=400, dark=True); page.evaluate("1 + 1")`.

Every answer has a time limit, and what is ended is the browser that was started here with its own children, nothing else.
"""
import base64
import collections
import fcntl
import json
import os
import pathlib
import select
import signal
import subprocess
import time

from fleet import die_with_parent

PROGRAM = "chromium"  # Debian's; tests/run.sh installs it
ANSWER_S, MESSAGE_BYTES_MAX = 10, 64 << 20
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--force-device-scale-factor=1",
         "--remote-debugging-pipe")


def _pipe():
    """A pipe whose ends are above 9, so that handing them on as 3 and 4 overwrites neither."""
    low = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in low]
    for end in low:
        os.close(end)
    return high


class Browser:
    def __init__(self, folder, flags=(), answer_s=ANSWER_S):
        self.folder, self.flags, self.answer_s = pathlib.Path(folder), flags, answer_s
        self.last_id, self.answers, self.pages, self.unread = 0, {}, {}, b""

    def __enter__(self):
        its_input, self.to = _pipe()
        self.of, its_output = _pipe()
        with open(self.folder / "chromium.log", "wb") as log:
            # It reads from 3 and writes to 4.
            command = ["bash", "-c", f'exec "$@" 3<&{its_input} 4>&{its_output}', "browser", PROGRAM, *FLAGS, *self.flags, f"--user-data-dir={self.folder}/profile", "about:blank"]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(its_input, its_output),
                                            start_new_session=True, preexec_fn=die_with_parent)
        os.close(its_input)
        os.close(its_output)
        self.call("Browser.getVersion", seconds=20)
        return self

    def __exit__(self, *exc):
        try:
            self.call("Browser.close", seconds=5)
            self.process.wait(5)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            pass
        finally:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)  # its session is its own (start_new_session)
            except ProcessLookupError:
                pass
            self.process.wait(5)
            os.close(self.to)
            os.close(self.of)

    def call(self, method, session=None, seconds=None, **parameters):
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
        rest = json.dumps(message).encode() + b"\0"
        while rest:
            rest = rest[os.write(self.to, rest):]
        deadline = time.monotonic() + (seconds or self.answer_s)
        while self.last_id not in self.answers:
            self.read(deadline - time.monotonic(), method)
        answer = self.answers.pop(self.last_id)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def read(self, seconds, waiting_for):
        """What it has sent by now, an answer or an event."""
        ready = select.select([self.of], [], [], max(seconds, 0))[0]
        assert ready, f"{waiting_for}: no answer in time"
        part = os.read(self.of, 1 << 20)
        assert part, f"{waiting_for}: the browser is gone (see {self.folder}/chromium.log)"
        self.unread += part
        assert len(self.unread) < MESSAGE_BYTES_MAX
        *messages, self.unread = self.unread.split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self.answers[message["id"]] = message
            elif message.get("sessionId") in self.pages:
                self.pages[message["sessionId"]].heard(message["method"], message["params"])

    def open(self, path, **looks):
        """A page of a file of this machine, loaded; see Page.look for `looks`."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        page = Page(self, self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"], target)
        self.pages[page.session] = page
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.look(**looks)
        page.go(pathlib.Path(path).resolve().as_uri())
        return page


class Page:
    def __init__(self, browser, session, target):
        self.browser, self.session, self.target = browser, session, target
        self.troubles, self.requests, self.events = [], [], collections.Counter()

    def heard(self, event, what):
        self.events[event] += 1
        if event == "Runtime.exceptionThrown":
            details = what["exceptionDetails"]
            self.troubles.append(details.get("exception", {}).get("description") or details["text"])
        elif event == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning", "assert"):
            self.troubles.append(f"console.{what['type']}: {[argument.get('value') for argument in what['args']]}")
        elif event == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
            self.troubles.append(what["entry"]["text"])
        elif event == "Network.requestWillBeSent":
            self.requests.append(what["request"]["url"])

    def call(self, method, **parameters):
        return self.browser.call(method, session=self.session, **parameters)

    def look(self, width=1200, height=900, dark=False, touch=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=touch)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.settle()

    def go(self, url):
        loaded = self.events["Page.loadEventFired"]
        self.call("Page.navigate", url=url)
        deadline = time.monotonic() + self.browser.answer_s
        while self.events["Page.loadEventFired"] == loaded:
            self.browser.read(deadline - time.monotonic(), f"load of {url}")

    def settle(self):
        """Until what was done to the page is on the screen: two frames later."""
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")

    def evaluate(self, script):
        """Its value (a promise's, once it has one), as JSON."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"].get("exception", {}).get("description", answer["exceptionDetails"]["text"]))
        return answer["result"].get("value")

    def mouse(self, x, y, kind="mouseMoved", **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        self.mouse(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(x, y, kind, button="left", clickCount=1)

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def screenshot(self, path):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True,
                            clip={"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1})
        pathlib.Path(path).write_bytes(base64.b64decode(picture["data"]))

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)
        self.browser.pages.pop(self.session, None)
