// The script draws the figures of html_data.cc (its data block is described there). It uses only what every
// browser of the last years has: no library, no network. Colours come from the style sheet's variables, so
// that light and dark differ in one place. Plots are drawn in the screen's own pixels, anew when the window's
// width changes: labels scaled down with a picture of fixed width cannot be read on a phone.

#include "sim/report/html_assets.h"

namespace troupe::sim {

const std::string_view kPageStyle = R"css(
:root { color-scheme: light dark; --bg: #fbfbfd; --fg: #1c2026; --dim: #5c6573; --line: #d8dde5; --card: #fff;
  --best: #e6f3ea; --mark: #b3261e; --shade: #8894a514; --mid: #e9ecf1; --cold: #1d6fd0; --hot: #c8321f;
      --none: #23272e; }
@media (prefers-color-scheme: dark) { :root { --bg: #14171c; --fg: #e6e9ee; --dim: #9aa4b2; --line: #343b46;
  --card: #1b1f26; --best: #1d3a28; --mark: #ff8a80; --shade: #aab4c31a; --mid: #2b313b; --cold: #58a6ff;
  --hot: #ff7a5c; --none: #000; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1180px; padding: 1.5rem 1rem 3rem; background: var(--bg); color: var(--fg);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.45rem; margin: 0 0 .3rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .2rem; }
h3 { font-size: .95rem; margin: .9rem 0 .2rem; }
p { margin: .3rem 0; max-width: 80ch; } .answer { font-size: 1.15rem; font-weight: 600; }
.made code { overflow-wrap: anywhere; } .dim, figcaption { color: var(--dim); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; background: var(--card); font-variant-numeric: tabular-nums;
    margin: .6rem 0; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } thead th { color: var(--dim); font-weight: 600;
    vertical-align: bottom; }
td.best { background: var(--best); font-weight: 600; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: .6rem 0; }
dt { font-weight: 600; } dd { margin: 0; max-width: 80ch; }
details { margin: .6rem 0; } summary { cursor: pointer; color: var(--dim); }
figure { margin: .5rem 0; padding: .6rem; background: var(--card); border: 1px solid var(--line);
    border-radius: 8px; }
svg { display: block; width: 100%; height: auto; } svg text { fill: var(--dim); font: 12px system-ui,
    sans-serif; }
svg:focus, canvas:focus { outline: 2px solid var(--cold); }
caption { text-align: left; }
[hidden] { display: none !important; }
.legend { display: flex; flex-wrap: wrap; gap: .35rem .6rem; margin: .6rem 0; }
.legend button { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line);
  border-radius: 99px; padding: .1rem .7rem; cursor: pointer; }
.legend button[aria-pressed=false] { opacity: .4; } .legend i { display: inline-block; width: 1.1em;
    height: .28em;
  border-radius: 2px; vertical-align: middle; margin-right: .4em; }
.heat { display: grid; grid-template-columns: 4.2rem 1fr; gap: 0 .5rem; margin: .2rem 0 .6rem; }
.heat canvas { width: 100%; image-rendering: pixelated; border: 1px solid var(--line); grid-column: 2; }
.heat span { display: flex; flex-direction: column; justify-content: space-between; align-items: flex-end;
  color: var(--dim); font-size: 12px; line-height: 1.1; }
.heat svg { grid-column: 2; overflow: visible; }
.ramp { display: inline-block; width: 11rem; height: .8em; border: 1px solid var(--line);
    vertical-align: middle;
  background: linear-gradient(90deg, var(--cold), var(--mid), var(--hot)); margin: 0 .4em; }
.hole { display: inline-block; width: 1.2em; height: .8em; background: var(--none); vertical-align: middle;
    margin: 0 .4em; }
#tip { position: fixed; pointer-events: none; background: var(--card); border: 1px solid var(--line);
    border-radius: 6px;
  padding: .3rem .6rem; font-size: 13px; white-space: pre; box-shadow: 0 2px 8px #0003;
      font-variant-numeric: tabular-nums; }
)css";

const std::string_view kPageScript = R"js(
"use strict";
const D = JSON.parse(document.getElementById("data").textContent);
const COLORS = ["#0b84d8", "#e07b00", "#2a9d4a", "#c23b3b", "#8b5cf6", "#a0662d", "#d6479c", "#77808d",
    "#9a9700",
  "#0fa3a3", "#5b6ee1", "#d08770"];
const shown = D.runs.map(() => true), redraws = [];
const tip = document.getElementById("tip");
const NS = "http://www.w3.org/2000/svg", LEFT = 62, RIGHT = 24, TOP = 18, BOTTOM = 30, LABEL = 56;
const span = Math.max(D.step_s * Math.max(...D.runs.map(r => r.arrived.length)), 1);
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
function add(parent, tag, attributes, text) {
  const e = document.createElementNS(NS, tag);
  for (const key in attributes) e.setAttribute(key, attributes[key]);
  if (text !== undefined) e.textContent = text;
  parent.appendChild(e);
  return e;
}
function steps(max, count) {  // round numbers from 0 to max, about `count` of them
  const raw = max / count, ten = 10 ** Math.floor(Math.log10(raw));
  const step = ten * [1, 2, 5, 10].find(m => m * ten >= raw * 0.999);
  const out = [];
  for (let v = 0; v <= max * 1.0001; v += step) out.push(+v.toPrecision(6));
  return out;
}
const short = v => v >= 1e4 ? +(v / 1e3).toPrecision(3) + "k" : String(+v.toPrecision(3));
function showTip(event, text) {
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const left = event.clientX + 14 + tip.offsetWidth > innerWidth ?
      event.clientX - 14 - tip.offsetWidth : event.clientX + 14;
  tip.style.left = Math.max(0, left) + "px";
  tip.style.top = Math.min(event.clientY + 12, innerHeight - tip.offsetHeight - 4) + "px";
}
const labels = width => Math.max(Math.min(Math.floor(width / LABEL), 10), 1);  // that fit beside each other
function timeAxis(svg, height, x) {
  for (const t of steps(span, labels(x(span) - x(0)))) {
    add(svg, "text", {class: "time", x: x(t), y: height - 10, "text-anchor": "middle"}, short(t) + " s");
  }
}
function marks(svg, height, x) {
  if (D.warmup_s > 0) {
    add(svg, "rect", {x: LEFT, y: TOP, width: x(Math.min(D.warmup_s, span)) - LEFT,
        height: height - TOP - BOTTOM, fill: "var(--shade)"});
    add(svg, "text", {x: LEFT + 4, y: height - BOTTOM - 5}, "warm-up: not counted");
  }
  D.faults.forEach((fault, i) => {
    if (fault.at_s > span) return;
    add(svg, "line", {class: "fault", x1: x(fault.at_s), x2: x(fault.at_s), y1: TOP, y2: height - BOTTOM,
        stroke: "var(--mark)", "stroke-dasharray": "4 3"});
    const label = add(svg, "text", {x: x(fault.at_s), y: TOP - 5, "text-anchor": "middle"}, "⚡" + (i + 1));
    label.style.fill = "var(--mark)";
  });
}
// The faults in the bucket that begins at that second, a line each.
function faultLines(second) {
  return D.faults.map((fault, i) => fault.at_s >= second && fault.at_s < second + D.step_s ?
      "\n⚡" + (i + 1) + " " + fault.text : "").join("");
}
// o: {id, column, unit, log, max, limit: {at, text}}
function chart(o) {
  const H = 250, figure = document.getElementById(o.id), svg = add(figure, "svg", {role: "img", tabindex: 0,
    viewBox: `0 0 1000 ${H}`, "aria-label": figure.dataset.label});
  let at = -1, W = 0;
  const x = seconds => LEFT + (W - LEFT - RIGHT) * seconds / span;
  const label = v => o.unit === "%" ? Math.round(v * 100) + " %" : o.unit !== "ms" ? short(v) :
      v >= 1000 ? short(v / 1000) + " s" : short(v) + " ms";
  function draw() {
    W = Math.max(Math.floor(svg.getBoundingClientRect().width), LEFT + RIGHT + LABEL);
    svg.setAttribute("viewBox", `0 0 ${W} ${H}`);
    svg.replaceChildren();
    const live = D.runs.filter((r, i) => shown[i]);
    const values = live.flatMap(r => r[o.column]).filter(v => v !== null && (!o.log || v > 0));
    let low = 0, high = o.max || Math.max(...values, 0) || 1;
    if (!o.log) {  // up to a labelled line
      const [, step] = steps(high, 5);
      high = Math.ceil(high / step * 0.9999) * step;
    } else {
      low = 10 ** Math.floor(Math.log10(Math.min(...values, o.limit ? o.limit.at : 1e9)));
      high = 10 ** Math.ceil(Math.log10(Math.max(...values, o.limit ? o.limit.at : 0, low * 10)));
    }
    const y = v => TOP + (H - TOP - BOTTOM) * (1 - (o.log ? Math.log(Math.max(v,
        low) / low) / Math.log(high / low) : v / high));
    const ticks = o.log ? Array.from({length: Math.round(Math.log10(high / low)) + 1}, (_,
        i) => low * 10 ** i) : steps(high, 5);
    for (const v of ticks) {
      add(svg, "line", {x1: LEFT, x2: W - RIGHT, y1: y(v), y2: y(v), stroke: "var(--line)"});
      add(svg, "text", {class: "tick", "data-at": y(v), x: LEFT - 6, y: y(v) + 4, "text-anchor": "end"},
          label(v));
    }
    timeAxis(svg, H, x);
    marks(svg, H, x);
    if (o.limit && o.limit.at > 0) {
      add(svg, "line", {x1: LEFT, x2: W - RIGHT, y1: y(o.limit.at), y2: y(o.limit.at),
          stroke: "var(--mark)", "stroke-width": 1});
      add(svg, "text", {x: W - RIGHT, y: y(o.limit.at) - 4, "text-anchor": "end"}, o.limit.text);
    }
    D.runs.map((r, i) => i).reverse().filter(i => shown[i]).forEach(i => {  // the first one on top
      let path = "", pen = false;
      D.runs[i][o.column].forEach((v, k) => {
        if (v === null || (o.log && v <= 0)) { pen = false; return; }
        path += (pen ? "L" : "M") + x((k + 0.5) * D.step_s).toFixed(1) + " " + y(v).toFixed(1);
        if (!pen) path += "h.01";  // a lone point shows, too
        pen = true;
      });
      add(svg, "path", {class: "run", "data-run": D.runs[i].name, d: path, fill: "none",
        stroke: COLORS[i % COLORS.length], "stroke-width": i ? 1.4 : 2.4,
        "stroke-linejoin": "round", "stroke-linecap": "round", "stroke-dasharray": i >= COLORS.length ?
            "5 3" : "none"});
    });
    if (at >= 0) add(svg, "line", {x1: x((at + 0.5) * D.step_s), x2: x((at + 0.5) * D.step_s), y1: TOP,
        y2: H - BOTTOM, stroke: "var(--dim)"});
  }
  function text() {
    const value = v => v === null || v === undefined ? "–" : o.unit === "%" ? (v * 100).toFixed(1) +
        " %" : short(v) + " " + o.unit;
    return (at * D.step_s).toFixed(0) + " s\n" + D.runs.filter((r, i) => shown[i]).map(r => r.name + ": " +
        value(r[o.column][at])).join("\n") + faultLines(at * D.step_s);
  }
  function move(event) {
    const box = svg.getBoundingClientRect(), px = event.clientX - box.left;
    const seconds = (px - LEFT) / (W - LEFT - RIGHT) * span;
    at = seconds < 0 || seconds >= span ? -1 : Math.floor(seconds / D.step_s);
    draw();
    showTip(event, at < 0 ? "" : text());
  }
  svg.addEventListener("pointermove", move);
  svg.addEventListener("pointerleave", () => { at = -1; tip.hidden = true; draw(); });
  svg.addEventListener("blur", () => { at = -1; tip.hidden = true; draw(); });
  svg.addEventListener("keydown", event => {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!step) return;
    event.preventDefault();
    at = Math.min(Math.max(at + step, 0), Math.floor(span / D.step_s) - 1);
    draw();
    const box = svg.getBoundingClientRect();
    showTip({clientX: box.left + x(at * D.step_s), clientY: box.top + 20}, text());
    svg.setAttribute("aria-label", figure.dataset.label + " " + text());
  });
  redraws.push(draw);
}
const LEVELS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const ratio = c => c === "=" ? 1 : c === "-" ? D.level : LEVELS.indexOf(c) * D.level;
const idle = c => c === "-" || c === "=";
function rgb(name) {
  const full = css(name).replace(/^#(.)(.)(.)$/, "#$1$1$2$2$3$3");
  return [1, 3, 5].map(i => parseInt(full.slice(i, i + 2), 16));
}
function heat(run, i) {
  const host = document.createElement("div");
  host.innerHTML = '<h3></h3><div class="heat"><span><b></b><b></b></span><canvas role="img"></canvas></div>';
  host.querySelector("h3").textContent = run.name;
  const canvas = host.querySelector("canvas"), rows = run.rows.length, columns = rows ?
      run.rows[0].length : 0;
  if (!rows || !columns) return;
  canvas.width = columns;
  canvas.height = rows;
  canvas.style.height = Math.min(Math.max(rows * 9, 60), 260) + "px";
  canvas.setAttribute("aria-label", "Work of every node of " + run.name +
      " over time against the mean of all nodes");
  const ends = host.querySelectorAll("b");
  ends[0].textContent = run.row_names[0];
  ends[1].textContent = rows > 1 ? run.row_names[rows - 1] : "";
  document.getElementById("heat").appendChild(host);
  const axis = add(host.querySelector(".heat"), "svg", {"aria-hidden": "true"});
  const end = columns * D.step_s, axisHeight = D.faults.length ? 34 : 20;
  function drawAxis() {
    const width = Math.max(Math.floor(canvas.getBoundingClientRect().width), LABEL);
    axis.setAttribute("viewBox", `0 0 ${width} ${axisHeight}`);
    axis.replaceChildren();
    for (const t of steps(end, labels(width))) {
      if (t < end - end * LABEL / 2 / width) add(axis, "text", {class: "time", x: width * t / end, y: 14,
          "text-anchor": t ? "middle" : "start"}, short(t) + " s");
    }
    D.faults.forEach((fault, k) => {
      if (fault.at_s > end) return;
      const label = add(axis, "text", {x: width * fault.at_s / end, y: 29, "text-anchor": "middle"},
        "⚡" + (k + 1));
      label.style.fill = "var(--mark)";
    });
  }
  canvas.addEventListener("pointermove", event => {
    const box = canvas.getBoundingClientRect();
    const c = Math.min(Math.floor((event.clientX - box.left) / box.width * columns), columns - 1);
    const r = Math.min(Math.floor((event.clientY - box.top) / box.height * rows), rows - 1);
    if (c < 0 || r < 0) return;
    const cell = run.rows[r][c], v = ratio(cell);
    showTip(event, run.row_names[r] + ", " + c * D.step_s + " s: " + (idle(cell) ? "idle" : v ? v.toFixed(2) +
        " × the mean" : "dead, or not there") + faultLines(c * D.step_s));
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  redraws.push(() => {
    host.hidden = !shown[i];
    if (!shown[i]) return;
    drawAxis();
    const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
    const cold = rgb("--cold"), mid = rgb("--mid"), hot = rgb("--hot"), none = rgb("--none");
    for (let r = 0; r < rows; ++r) for (let c = 0; c < columns; ++c) {
      const v = ratio(run.rows[r][c]), t = Math.min(Math.abs(Math.log2(v || 1)), 1);
      const to = v < 1 ? cold : hot, color = v ? mid.map((m, k) => m + (to[k] - m) * t) : none;
      image.data.set([...color, 255], (r * columns + c) * 4);
    }
    context.putImageData(image, 0, 0);
  });
}
const legend = document.getElementById("legend");
D.runs.forEach((run, i) => {
  const button = document.createElement("button"), line = document.createElement("i");
  line.style.background = COLORS[i % COLORS.length];
  button.append(line, run.name);
  button.setAttribute("aria-pressed", "true");
  button.addEventListener("click", () => {
    shown[i] = !shown[i];
    button.setAttribute("aria-pressed", shown[i]);
    redraw();
  });
  legend.appendChild(button);
});
legend.hidden = D.runs.length < 2;
function redraw() { for (const draw of redraws) draw(); }
chart({id: "hit", column: "hit", unit: "%", max: 1});
const limit = {at: D.slo_ttft_ms, text: "limit " + short(D.slo_ttft_ms) + " ms"};
chart({id: "ttft50", column: "ttft_p50_ms", unit: "ms", log: true, limit});
chart({id: "ttft99", column: "ttft_p99_ms", unit: "ms", log: true, limit});
D.runs.forEach(heat);
chart({id: "waiting", column: "waiting", unit: "requests"});
chart({id: "arrived", column: "arrived", unit: "requests/s"});
redraw();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("resize", redraw);
)js";

}  // namespace troupe::sim
