"""SillyTavern's page in a real Chromium: connected by its own forms, and used by its own buttons. `with tavern_page(tavern, scratch) as
page: page.connect_chats(url, model); page.begin(avatar); page.send("Hi")`."""
import contextlib
import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from browser import Browser  # noqa: E402

LOAD_S, GENERATE_S = 300, 240
TYPED = """((selector, value) => {
  const field = $(selector);
  if (!field.length) throw new Error(`no ${selector}`);
  if (field.is(":checkbox")) field.prop("checked", value); else field.val(value);
  field.trigger("input").trigger("change");
})"""


@contextlib.contextmanager
def tavern_page(tavern, scratch):
    with Browser(scratch, answer_s=LOAD_S) as browser:
        page = browser.open("/dev/null")
        page.go(tavern.url)
        yield TavernPage(page)
        page.close()


class TavernPage:
    def __init__(self, page):
        self.page = page
        # (A first visit asks for the user's name.)
        self.until("""(() => { document.querySelector('dialog[open] .popup-button-ok')?.click();
                       return !!window.SillyTavern && !document.querySelector('#preloader') && SillyTavern.getContext().characters.length > 0; })()""",
                   LOAD_S, "the page is ready")

    def until(self, condition, seconds, what):
        deadline = time.monotonic() + seconds
        while not self.page.evaluate(condition):
            assert time.monotonic() < deadline, f"{what}: not within {seconds} s; {self.page.troubles[-5:]}"
            time.sleep(0.2)

    def type(self, selector, value):
        self.page.evaluate(f"{TYPED}({json.dumps(selector)}, {json.dumps(value)})")

    def click(self, selector):
        found = self.page.evaluate(f"(() => {{ const at = $({json.dumps(selector)}); at.trigger('click'); return at.length; }})()")
        assert found, f"no {selector} to click"

    def is_online(self):
        self.until("SillyTavern.getContext().onlineStatus !== 'no_connection'", 60, "the connection")

    def connect_chats(self, url, model, extra_body=""):
        self.type("#main_api", "openai")
        self.type("#chat_completion_source", "custom")
        self.type("#custom_api_url_text", f"{url}/v1")
        self.type("#custom_model_id", model)
        self.page.evaluate(f"SillyTavern.getContext().chatCompletionSettings.custom_include_body = {json.dumps(extra_body)}")
        self.click("#api_button_openai")
        self.is_online()
        self.type("#stream_toggle", True)
        self.type("#openai_max_tokens", 24)
        self.type("#temp_openai", 0)

    def connect_texts(self, kind, url):
        self.type("#main_api", "textgenerationwebui")
        self.type("#textgen_type", kind)
        self.type(f"#{kind}_api_url_text", url)
        self.click("#api_button_textgenerationwebui")
        self.is_online()
        self.type("#streaming_textgenerationwebui", True)
        self.type("#amount_gen", 24)

    def begin(self, avatar):
        """A new chat with a character."""
        self.page.evaluate(f"""(async () => {{ const context = SillyTavern.getContext(); await context.getCharacters();
            const at = context.characters.findIndex(one => one.avatar === {json.dumps(avatar)});
            await context.selectCharacterById(at); await context.doNewChat?.(); return at; }})()""")
        self.until("SillyTavern.getContext().characterId !== undefined", 60, "the character's chat")

    def last(self):
        return self.page.evaluate("(() => { const one = SillyTavern.getContext().chat.at(-1); return {mes: one.mes, user: one.is_user, swipes: one.swipes?.length ?? 0}; })()")

    def count(self):
        return self.page.evaluate("SillyTavern.getContext().chat.length")

    def settled(self, seconds=GENERATE_S):
        """Until nothing is generated any more."""
        self.until("!document.body.dataset.generating && !$('#mes_stop').is(':visible')", seconds, "the answer's end")

    def started(self):
        self.until("!!document.body.dataset.generating || $('#mes_stop').is(':visible')", 60, "an answer's beginning")

    def send(self, text):
        before = self.count()
        self.type("#send_textarea", text)
        self.click("#send_but")
        self.until(f"SillyTavern.getContext().chat.length >= {before + 2} && !SillyTavern.getContext().chat.at(-1).is_user", GENERATE_S, "an answer")
        self.settled()
        return self.last()

    def swipe(self):
        before = self.last()["swipes"]
        self.click(".last_mes .swipe_right")
        self.until(f"(SillyTavern.getContext().chat.at(-1).swipes?.length ?? 0) > {before}", GENERATE_S, "another answer")
        self.settled()
        return self.last()

    def go_on(self):
        before = self.last()["mes"]
        self.click("#option_continue")
        self.until(f"SillyTavern.getContext().chat.at(-1).mes.length > {len(before)}", GENERATE_S, "the answer's continuation")
        self.settled()
        return before, self.last()["mes"]

    def stop(self, text):
        """Sends, and presses stop once the answer has begun."""
        before = self.count()
        self.type("#send_textarea", text)
        self.click("#send_but")
        self.until(f"SillyTavern.getContext().chat.length >= {before + 2} && SillyTavern.getContext().chat.at(-1).mes.length > 8", GENERATE_S, "an answer's beginning")
        self.click("#mes_stop")
        self.settled(30)
        return self.last()
