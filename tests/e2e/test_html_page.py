"""troupe-sim's --html page as its readers meet it, in a real browser: everything drawn is the report's, what can be touched answers,
and it can be read on a phone, in the dark and without scripts."""
import json
import math
import re
import subprocess

import pytest

from browser import Browser
from fleet import BIN, wait_until

SMALL = ("--personas", 40, "--rate", 40, "--duration-s", 60, "--nodes", 4, "--seed", 7)
FAULTS = [{"at_s": 20, "kill": 1}, {"at_s": 30, "return": 1}, {"at_s": 40, "slow": 2, "factor": 4, "for_s": 5}]
PLOTS = {"hit": "hit_tokens", "ttft50": "ttft_p50_ms", "ttft99": "ttft_p99_ms", "waiting": "waiting", "arrived": "arrived"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """{name: (page, runs of its report)}"""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "faults.jsonl").write_text("".join(json.dumps(fault) + "\n" for fault in FAULTS))
    commands = {
        "compare": ("compare", "--policies", "affinity,round-robin,chwbl", *SMALL),
        "replay": ("replay", *SMALL),
        "faulted": ("replay", *SMALL, "--faults", folder / "faults.jsonl"),
        # Points of two seconds each, rows of two nodes each.
        "long": ("replay", "--personas", 200, "--rate", 150, "--duration-s", 300, "--warmup-s", 30, "--nodes", 130, "--seed", 7),
        "capacity": ("capacity", "--personas", 20, "--rate", 20, "--duration-s", 20, "--nodes", 2, "--steps", 1),
    }
    found = {}
    for name, command in commands.items():
        page, report = folder / f"{name}.html", folder / f"{name}.json"
        subprocess.run([str(part) for part in (BIN / "troupe-sim", *command, "--html", page, "--report", report)],
                       check=True, capture_output=True, timeout=60)
        told = json.loads(report.read_text())
        found[name] = page, told.get("runs", [told])
    return found


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.fixture
def show(made, browser):
    """show(name, **looks): that page; whatever it logs, throws or fetches by the test's end is a failure."""
    opened = []

    def show_page(name, **looks):
        page = browser.open(made[name][0], **looks)
        opened.append(page)
        return page

    yield show_page
    for page in opened:
        page.settle()
        assert not page.troubles, page.troubles
        assert len(page.requests) == 1 and page.requests[0].startswith("file:"), page.requests
        assert page.evaluate("!/NaN|Infinity|undefined/.test(document.body.outerHTML.replace(/<script[^]*?<\\/script>/g, ''))")
        page.close()


def name_of(run):
    return f"affinity ({run['mode']})" if run["policy"] == "affinity" else run["policy"]


def shown_seconds(run):
    """Up to the last arrival."""
    return max(second for second, arrived in enumerate(run["per_second"]["arrived"]) if arrived) + 1


def points_of(run, column, step):
    """What a plot draws of a run, a number a bucket. None: nothing there."""
    values = run["per_second"][column][:shown_seconds(run)]
    buckets = [values[begin:begin + step] for begin in range(0, len(values), step)]
    if column == "ttft_p50_ms":
        return [sum(some) / len(some) if (some := [v for v in bucket if v > 0]) else None for bucket in buckets]
    if column == "ttft_p99_ms":
        return [max(bucket) or None for bucket in buckets]
    return [sum(bucket) / len(bucket) for bucket in buckets]


def step_of(page):
    return page.evaluate("D.step_s")


# A plot as it stands: its lines' points, and the scale that its own labels tell.
READ_PLOT = """(id => {
  const svg = document.querySelector(`#${id} svg`), box = svg.getBoundingClientRect();
  const ticks = [...svg.querySelectorAll("text.tick")].map(e => ({text: e.textContent, at: +e.dataset.at}));
  return {width: box.width, height: box.height, ticks,
    faults: [...svg.querySelectorAll("line.fault")].map(e => +e.getAttribute("x1")),
    times: [...svg.querySelectorAll("text.time")].map(e => ({text: e.textContent, at: +e.getAttribute("x")})),
    lines: [...svg.querySelectorAll("path.run")].map(e => ({name: e.dataset.run, d: e.getAttribute("d"), length: e.getTotalLength()}))};
})"""


def value_of_label(text):
    number, unit = re.fullmatch(r"([\d.]+k?)(?: (\S+))?", text).groups()
    number = float(number[:-1]) * 1000 if number.endswith("k") else float(number)
    return number * {None: 1, "%": 0.01, "ms": 1, "s": 1000}[unit]


def straight(one, two):
    """The line through two (place, value) pairs, from value to place."""
    return lambda value: one[0] + (value - one[1]) * (two[0] - one[0]) / (two[1] - one[1])


def check_plot(plot, column, runs, step):
    assert plot["width"] > 250 and plot["height"] > 100
    scale = math.log10 if column.startswith("ttft") else float
    ticks = [(tick["at"], value_of_label(tick["text"])) for tick in plot["ticks"]]
    assert len(ticks) >= 2, plot["ticks"]
    y = straight((ticks[0][0], scale(ticks[0][1])), (ticks[-1][0], scale(ticks[-1][1])))
    times = [(time["at"], float(time["text"].removesuffix(" s"))) for time in plot["times"]]
    x = straight(times[0], times[-1])
    lines = {line["name"]: line for line in plot["lines"]}
    assert sorted(lines) == sorted(map(name_of, runs))
    for run in runs:
        line = lines[name_of(run)]
        drawn = [tuple(map(float, point)) for point in re.findall(r"[ML]([\d.]+) ([\d.]+)", line["d"])]
        wanted = [(bucket, value) for bucket, value in enumerate(points_of(run, column, step)) if value is not None]
        assert len(drawn) == len(wanted) and line["length"] > 100, (column, run["policy"])
        assert ticks[0][1] <= min(value for _, value in wanted) and max(value for _, value in wanted) <= ticks[-1][1] * 1.0001, \
            "no line leaves the labelled scale"
        for (at_x, at_y), (bucket, value) in zip(drawn, wanted):
            assert at_x == pytest.approx(x((bucket + 0.5) * step), abs=0.2)
            if column != "hit_tokens" or step == 1:  # the report has shares of seconds, not what a bucket's mean is weighed with
                assert at_y == pytest.approx(y(scale(value)), abs=0.2), (column, bucket, value)


@pytest.mark.parametrize("name", ["compare", "replay", "faulted", "long", "capacity"])
def test_every_plot_draws_the_reports_numbers(show, made, name):
    page, runs = show(name), made[name][1]
    step = step_of(page)
    assert step == (2 if name == "long" else 1)
    for id, column in PLOTS.items():
        plot = page.evaluate(f"{READ_PLOT}('{id}')")
        check_plot(plot, column, runs, step)
        assert len(plot["faults"]) == (len(FAULTS) if name == "faulted" else 0)


READ_HEAT = """[...document.querySelectorAll("#heat > div")].filter(e => e.offsetHeight > 0).map(e => {
  const canvas = e.querySelector("canvas"), box = canvas.getBoundingClientRect();
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", {willReadFrequently: true});
  copy.drawImage(canvas, 0, 0);
  return {name: e.querySelector("h3").textContent, columns: canvas.width, rows: canvas.height, width: box.width, height: box.height,
    pixels: [...copy.getImageData(0, 0, canvas.width, canvas.height).data]};
})"""


def heat_of(run, step, rows_max=96):
    """Work of every row against the mean of all nodes, a list a row; None: dead, or not there yet. Idle is the coldest, or even where
    nobody works."""
    series = [node["work_per_s"] for node in run["per_node"]]
    alive = [node["up"] for node in run["per_node"]]
    seconds = shown_seconds(run)
    joined = math.ceil(len(series) / rows_max)
    bucket = lambda values, begin: sum(values[begin:min(begin + step, seconds)])
    rows = []
    for first in range(0, len(series), joined):
        nodes, row = series[first:first + joined], []
        for begin in range(0, seconds, step):
            own = sum(bucket(values, begin) for values in nodes) / len(nodes)
            mean = sum(bucket(values, begin) for values in series) / len(series)
            up = any(any(seconds_up[begin:min(begin + step, seconds)]) for seconds_up in alive[first:first + joined])
            row.append(own / mean if own > 0 else None if not up else 0.05 if mean > 0 else 1)
        rows.append(row)
    return rows


def check_heat(page, runs, step):
    colours = page.evaluate("['--cold', '--mid', '--hot', '--none'].map(rgb)")
    cold, mid, hot, none = colours
    maps = page.evaluate(READ_HEAT)
    assert [heat["name"] for heat in maps] == [name_of(run) for run in runs]
    for heat, run in zip(maps, runs):
        wanted = heat_of(run, step)
        assert (heat["rows"], heat["columns"]) == (len(wanted), len(wanted[0]))
        assert heat["width"] > 200 and heat["height"] >= 60
        for row, ratios in enumerate(wanted):
            for column, ratio in enumerate(ratios):
                at = (row * heat["columns"] + column) * 4
                pixel = heat["pixels"][at:at + 3]
                if ratio is None:
                    assert pixel == none
                    continue
                share = min(abs(math.log2(max(ratio, 0.05))), 1)
                colour = [m + (to - m) * share for m, to in zip(mid, cold if ratio < 1 else hot)]
                # Levels of 0.05: below the mean that is up to 0.08 of the way to the coldest.
                assert pixel == pytest.approx(colour, abs=20), (row, column, ratio)
    return maps


@pytest.mark.parametrize("name", ["compare", "faulted", "long"])
def test_the_heat_maps_colours_are_the_nodes_work(show, made, name):
    page, runs = show(name), made[name][1]
    check_heat(page, runs, step_of(page))
    if name == "faulted":
        assert any(None in row[20:30] for row in heat_of(runs[0], 1)), "a dead node is seen in this test"
        assert None not in heat_of(runs[0], 1)[0], "and those that lived are none, however idle"


def test_a_page_tells_its_answer_and_origin(show, made):
    page, (run,) = show("capacity"), made["capacity"][1]
    first = page.evaluate("document.querySelector('h1 + p').innerText")
    assert first.startswith(f"2 nodes of study bear {run['sustainable_rate']:.1f} requests/s, {run['load']:.3g} times what was asked for: "
                            f"{run['goodput'] * 100:.2f} % of them are answered inside both limits."), first
    made = page.evaluate("document.querySelector('.made').innerText")
    assert re.search(r"troupe-sim [0-9.]+, 20\d\d-\d\d-\d\d \d\d:\d\d UTC: troupe-sim capacity --personas 20 --rate 20", made), made
    assert "made-up persona traffic" in page.evaluate("document.body.innerText")


def ms_text(ms):
    return f"{ms / 1000:.1f} s" if ms >= 1000 else f"{ms:.{1 if ms < 100 else 0}f} ms"


@pytest.mark.parametrize("name", ["compare", "replay", "faulted"])
def test_the_tables_numbers_are_the_reports(show, made, name):
    page, runs = show(name), made[name][1]
    rows = page.evaluate("[...document.querySelector('table').rows].map(row => [...row.cells].map(cell => cell.textContent))")
    assert rows[0] == ["policy", "requests", "lost", "hit", "of possible", "imbalance", "TTFT p50", "p90", "p99", "TPOT", "good"]
    for row, run in zip(rows[1:], runs, strict=True):
        assert row == [name_of(run), str(run["requests"]), str(run["lost"]), f"{run['hit_tokens'] * 100:.1f} %",
                       f"{run['hit_tokens'] / run['pooled_lru_hit'] * 100:.1f} %", f"{run['work_cov']:.3f}",
                       *(ms_text(run["ttft_ms"][p]) for p in ("p50", "p90", "p99")), ms_text(run["tpot_ms"]["mean"]), f"{run['goodput'] * 100:.2f} %"]
    best = page.evaluate("[...document.querySelectorAll('table td.best')].map(cell => [cell.cellIndex, cell.parentNode.rowIndex])")
    if len(runs) == 1:
        assert not best and not page.evaluate("document.body.innerText.includes('the best of a column')")
        return
    assert all(run["goodput"] == 1 for run in runs) and page.evaluate("document.body.innerText.includes('all of them answered the same share')")
    by_hit = max(range(len(runs)), key=lambda index: runs[index]["hit_tokens"])
    assert [3, by_hit + 1] in best
    for column in range(1, len(rows[0])):
        same = len({row[column] for row in rows[1:]}) == 1
        assert any(cell[0] == column for cell in best) != (same or column in (1, 4)), f"best of {rows[0][column]}, unless all are alike"


def place(page, id, second, of="svg"):
    """Where on the screen a plot has that second."""
    page.evaluate(f"document.querySelector('#{id} {of}').scrollIntoView({{block: 'center'}})")
    page.settle()
    box = page.evaluate(f"(b => [b.left, b.top, b.width, b.height])(document.querySelector('#{id} {of}').getBoundingClientRect())")
    if of == "canvas":
        return box[0] + box[2] * second / 60, box[1] + 1
    times = page.evaluate(f"{READ_PLOT}('{id}')")["times"]
    x = straight((times[0]["at"], float(times[0]["text"][:-2])), (times[-1]["at"], float(times[-1]["text"][:-2])))
    return box[0] + x(second), box[1] + box[3] / 2


TIP = "(tip => tip.hidden ? null : {text: tip.textContent, box: (b => [b.left, b.top, b.right, b.bottom])(tip.getBoundingClientRect())})(document.getElementById('tip'))"


def tip_of(page):
    page.settle()
    return page.evaluate(TIP)


def short(value):
    return f"{value / 1000:.3g}k" if value >= 1e4 else f"{float(f'{value:.3g}'):g}"


def tip_lines(runs, second):
    return [f"{name_of(run)}: {run['per_second']['hit_tokens'][second] * 100:.1f} %" for run in runs]


@pytest.mark.parametrize("width", [1200, 400])
def test_the_pointer_tells_the_numbers_under_it(show, made, width):
    page, runs = show("compare", width=width, touch=width < 500), made["compare"][1]
    for second in (0, 31, 59):
        page.mouse(*place(page, "hit", second + 0.5))
        tip = tip_of(page)
        assert tip["text"].splitlines() == [f"{second} s", *tip_lines(runs, second)]
        left, top, right, bottom = tip["box"]
        assert left >= 0 and top >= 0 and right <= width and bottom <= 900, "the whole of it is on the screen"
    page.mouse(*place(page, "ttft99", 31.5))
    assert f"affinity (exact): {short(runs[0]['per_second']['ttft_p99_ms'][31])} ms" in tip_of(page)["text"]
    page.mouse(*place(page, "heat", 31.5, of="canvas"))
    ratio = heat_of(runs[0], 1)[0][31]
    text = tip_of(page)["text"]
    assert text.startswith("n0, 31 s: ") and float(re.search(r"([\d.]+) × the mean", text).group(1)) == pytest.approx(ratio, abs=0.03)
    page.mouse(2, 2)
    assert tip_of(page) is None, "gone with the pointer"


def test_the_keyboard_tells_them_too(show, made):
    page, runs = show("compare"), made["compare"][1]
    page.evaluate("document.querySelector('#hit svg').focus()")
    for _ in range(4):
        page.press("ArrowRight")
    page.press("ArrowLeft")
    assert tip_of(page)["text"].splitlines() == ["2 s", *tip_lines(runs, 2)]
    assert tip_lines(runs, 2)[1] in page.evaluate("document.querySelector('#hit svg').getAttribute('aria-label')")
    page.evaluate("document.activeElement.blur()")
    assert tip_of(page) is None


def test_a_fault_is_told_where_it_is_seen(show):
    page = show("faulted")
    page.mouse(*place(page, "hit", 40.5))
    assert "⚡3 slow: node 2, 4 times as slow, for 5 s" in tip_of(page)["text"]
    page.mouse(*place(page, "hit", 45.5))
    assert "⚡" not in tip_of(page)["text"]
    faults = page.evaluate("[...document.querySelectorAll('ol li')].map(e => e.textContent)")
    assert [float(fault.split(" ")[0]) for fault in faults] == [fault["at_s"] for fault in FAULTS]


def click(page, selector):
    page.evaluate(f"document.querySelector('{selector}').scrollIntoView({{block: 'center'}})")
    page.settle()
    page.click(*page.evaluate(f"(b => [b.left + b.width / 2, b.top + b.height / 2])(document.querySelector('{selector}').getBoundingClientRect())"))
    page.settle()


SHOWN = "[...document.querySelectorAll('#hit path.run')].map(e => e.dataset.run).sort()"


def test_policies_are_hidden_and_shown_by_their_buttons(show, made):
    page, names = show("compare"), [name_of(run) for run in made["compare"][1]]
    assert page.evaluate("[...document.querySelectorAll('#legend button')].map(e => e.textContent)") == names
    for index, name in enumerate(names):
        button = f"#legend button:nth-child({index + 1})"
        click(page, button)
        left = sorted(names[index + 1:])
        assert page.evaluate(SHOWN) == left and [heat["name"] for heat in page.evaluate(READ_HEAT)] == names[index + 1:]
        assert page.evaluate(f"document.querySelector('{button}').getAttribute('aria-pressed')") == "false"
    for index in range(len(names)):  # all are hidden, which is no fault of the page's
        click(page, f"#legend button:nth-child({index + 1})")
    assert page.evaluate(SHOWN) == sorted(names)
    check_plot(page.evaluate(f"{READ_PLOT}('hit')"), "hit_tokens", made["compare"][1], 1)


def test_there_is_nothing_to_hide_of_one_policy(show):
    assert show("replay").evaluate("document.getElementById('legend').offsetHeight") == 0


def test_what_is_folded_unfolds(show):
    page = show("compare")
    for index in (1, 2):
        details = f"details:nth-of-type({index})"
        before = page.evaluate(f"document.querySelector('{details} dl').checkVisibility()")
        click(page, f"{details} summary")
        wait_until(lambda: page.evaluate(f"document.querySelector('{details} dl').checkVisibility()") != before, 2, "unfolded")
    assert "hash ring" in page.evaluate("document.body.innerText")


# What sticks out to the right, unless a box of its own scrolls it; labels too small to read, or over each other.
BADLY_SET = """(() => {
  const bad = [], right = document.documentElement.clientWidth;
  for (const e of document.body.querySelectorAll("*")) {
    const box = e.getBoundingClientRect();
    if (box.width && !e.closest(".scroll table") && (box.right > right + 0.5 || box.left < -0.5)) bad.push(`${e.tagName} ${e.id} sticks out: ${e.textContent.slice(0, 40)}`);
  }
  for (const svg of document.querySelectorAll("svg")) {
    const labels = [...svg.querySelectorAll("text")].map(e => ({text: e.textContent, box: e.getBoundingClientRect()}));
    for (const {text, box} of labels) if (box.height < 11) bad.push(`'${text}' is ${box.height} px high`);
    for (const kind of ["tick", "time"]) {
      const boxes = [...svg.querySelectorAll("text." + kind)].map(e => e.getBoundingClientRect());
      boxes.forEach((a, i) => boxes.slice(i + 1).forEach(b => {
        if (a.left < b.right + 2 && b.left < a.right + 2 && a.top + 3 < b.bottom && b.top + 3 < a.bottom) bad.push(`${kind} labels of ${svg.parentNode.id} overlap`);
      }));
    }
  }
  if (document.scrollingElement.scrollWidth > right) bad.push("the page scrolls sideways");
  return bad;
})()"""


@pytest.mark.parametrize("name", ["compare", "faulted", "long", "capacity"])
def test_it_reads_on_a_phone(show, made, name):
    page = show(name, width=400, touch=True)
    assert not page.evaluate(BADLY_SET)
    for id, column in PLOTS.items():
        check_plot(page.evaluate(f"{READ_PLOT}('{id}')"), column, made[name][1], step_of(page))
    page.look(width=1200)  # turned, or the window made wider
    page.settle()
    assert not page.evaluate(BADLY_SET)
    assert page.evaluate(f"{READ_PLOT}('hit')")["times"][-1]["at"] > 800, "drawn anew for the width there is"
    assert page.evaluate("document.querySelector('caption, .scroll').getBoundingClientRect().left") < 400


def contrast(one, two):
    """Of two rgb() colours, as WCAG 2 counts."""
    def luminance(colour):
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    light, dark = sorted((luminance(one), luminance(two)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_it_reads_in_the_dark(show, made):
    page = show("compare")
    look = "['body', 'figcaption', 'td.best', '.dim'].map(s => (e => getComputedStyle(e).color)(document.querySelector(s)))"
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    assert all(contrast(colour, light) >= 4.5 for colour in page.evaluate(look))
    before = page.evaluate(READ_HEAT)[0]["pixels"]
    page.look(dark=True)  # the evening comes while it is open
    dark = page.evaluate(ground)
    assert contrast(light, dark) > 10
    assert all(contrast(colour, dark) >= 4.5 for colour in page.evaluate(look)), page.evaluate(look)
    lines = page.evaluate("[...document.querySelectorAll('#hit path.run')].map(e => getComputedStyle(e).stroke)")
    assert all(contrast(colour, dark) >= 3 for colour in lines), lines
    assert check_heat(page, made["compare"][1], 1)[0]["pixels"] != before


def test_without_scripts_the_table_is_there_and_says_what_is_not(browser, made):
    page = browser.open(made["compare"][0])
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    page.go(made["compare"][0].as_uri())
    text = page.evaluate("document.body.innerText")
    page.close()
    assert "The plots need JavaScript" in text and "round-robin" in text
