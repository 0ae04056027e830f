// The latest warnings and errors of this broker, and of other brokers and bookies that can be reached; live.

import { follow } from "../api.js";
import { h, put } from "../dom.js";
import { count } from "../format.js";
import { badge, card, empty, problem } from "../parts.js";

const BASE = "/console/api/cluster";
const LINES_MAX = 1000;
const SHOWN_MAX = 300;

export async function show(root, context) {
  context.title("Logs");
  const lines = [];
  let sources = [];
  let paused = false;
  let waiting = 0;
  const status = h("p", { class: "lead" }, "Reading…");
  const list = h("ol", { class: "lines", "aria-label": "Warnings and errors, newest first" });
  const others = h("div", { class: "card-body" });
  const text = h("input", { id: "text", value: context.query.get("text") || "", autocomplete: "off", spellcheck: "false", placeholder: "part of a line" });
  const level = h("select", { id: "level" }, [["", "warnings and errors"], ["error", "errors only"]].map(([key, title]) => h("option", { value: key, selected: key === context.query.get("level") }, title)));
  const source = h("select", { id: "source" }, h("option", { value: "" }, "all processes"));
  const hold = h("button", { type: "button", "aria-pressed": "false", onclick: () => {
    paused = !paused;
    hold.setAttribute("aria-pressed", String(paused));
    if (!paused) { waiting = 0; draw(); }
    name();
  } });
  for (const each of [text, level, source]) each.addEventListener("input", draw);
  root.append(
    h("div", { class: "page-head" }, h("div", {}, h("h1", {}, "Logs"), status)),
    card("Latest warnings and errors", h("div", { class: "toolbar" },
      h("label", { class: "field" }, h("span", {}, "Search"), text),
      h("label", { class: "field" }, h("span", {}, "Level"), level),
      h("label", { class: "field" }, h("span", {}, "Process"), source),
      hold), list),
    card("Processes", null, others));
  name();

  function name() {
    put(hold, paused ? `Go on${waiting ? ` (${count(waiting)} new)` : ""}` : "Pause");
  }

  function shown() {
    const wanted = text.value.toLowerCase();
    return lines.filter((each) => (!level.value || each.level !== "warning") && (!source.value || each.source === source.value)
      && (!wanted || `${each.event} ${each.text} ${each.logger}`.toLowerCase().includes(wanted)));
  }

  function draw() {
    const query = new URLSearchParams();
    if (text.value) query.set("text", text.value);
    if (level.value) query.set("level", level.value);
    context.keep(query);
    const found = shown();
    put(status, lines.length ? `${count(found.length)} of the latest ${count(lines.length)} lines${found.length > SHOWN_MAX ? `; the newest ${SHOWN_MAX} are shown` : ""}.` : "No process has written a warning since it started.");
    if (!found.length) { put(list, h("li", {}, empty(lines.length ? "No line matches." : "No warnings."))); return; }
    put(list, found.slice(-SHOWN_MAX).reverse().map(line));
  }

  function drawSources() {
    const before = source.value;
    put(source, h("option", { value: "" }, "all processes"), sources.map((each) => h("option", { value: each.name, selected: each.name === before }, each.name)));
    put(others, h("ul", { class: "names" }, sources.map((each) => h("li", {}, each.problem ? badge("warn", "not reached") : badge("good", "reached"), " ", each.kind, " ", h("span", { class: "mono" }, each.name), each.problem && h("span", { class: "muted" }, ` ${each.problem}`)))),
      h("p", { class: "small muted" }, "A process keeps its latest 500 lines, and forgets them when it ends. Its log on disk has all of them."));
  }

  await new Promise((ready) => {
    follow(`${BASE}/warnings/events`, {
      data(found) {
        lines.push(...found.lines);
        lines.splice(0, Math.max(0, lines.length - LINES_MAX));
        if (JSON.stringify(found.sources) !== JSON.stringify(sources)) { sources = found.sources; drawSources(); }
        if (paused) { waiting += found.lines.length; name(); } else draw();
        ready();
      },
      problem(error) { put(status, problem(error)); ready(); },
      open() { lines.length = 0; },
    }, context.signal);
    context.signal.addEventListener("abort", ready);
  });
}

function line(each) {
  const bad = each.level !== "warning";
  return h("li", { class: bad ? "bad" : "warn" },
    h("div", { class: "line-head" }, badge(bad ? "bad" : "warn", each.level), h("span", { class: "event" }, each.event), h("time", { class: "muted", datetime: each.timestamp }, each.timestamp.replace("T", " ").replace("Z", "")),
      h("span", { class: "muted" }, `${each.kind} ${each.source}`), h("span", { class: "muted mono" }, each.logger)),
    each.text && h("p", { class: "mono line-text" }, each.text));
}
