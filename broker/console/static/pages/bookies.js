// Bookies with their disks, journals and thresholds.

import { at, get, pause } from "../api.js";
import { h, put } from "../dom.js";
import { bytes, count } from "../format.js";
import { badge, card, facts, meter, problem } from "../parts.js";
import { STATES } from "./cluster.js";

const BASE = "/console/api/cluster";
const EVERY_MS = 5000;

export async function show(root, context) {
  context.title("Bookies");
  const lead = h("p", { class: "lead" });
  const list = h("div", { class: "bookies" });
  root.append(h("div", { class: "page-head" }, h("div", {}, h("h1", {}, "Bookies"), lead)), list);
  draw(await get(`${BASE}/bookies`, context.signal));
  again();

  async function again() {
    while (!context.signal.aborted) {
      await pause(EVERY_MS, context.signal);
      if (context.signal.aborted || list.contains(document.activeElement) && document.activeElement.tagName === "SUMMARY") continue;
      try { draw(await get(`${BASE}/bookies`, context.signal)); } catch (error) { if (!context.signal.aborted) put(lead, problem(error)); }
    }
  }

  function draw(found) {
    const by = (state) => found.bookies.filter((each) => each.state === state).length;
    const parts = [`${count(by("writable"))} writable`];
    if (by("read-only")) parts.push(`${count(by("read-only"))} read-only`);
    if (by("gone")) parts.push(`${count(by("gone"))} not registered`);
    if (found.total > found.bookies.length) parts.push(`${count(found.bookies.length)} of ${count(found.total)} are shown`);
    put(lead, parts.join(", "));
    const open = new Set([...list.querySelectorAll("details[open]")].map((each) => each.dataset.bookie));
    put(list, found.bookies.map((each) => one(each, open)));
  }
}

function one(each, open) {
  const used = each.total ? (each.total - each.free) / each.total : null;
  const warn = Number(each.thresholds.diskUsageWarnThreshold) || 0.9;
  return card(each.bookie, [badge(...STATES[each.state]), each.quarantined && badge("warn", "quarantined", "it failed too often; new ledgers go elsewhere"), h("a", { class: "button", href: at`#/bookie/${each.bookie}` }, "What if it went?")],
    h("div", { class: "card-body" },
      used === null ? h("p", { class: "muted" }, each.state === "gone" ? "It does not run: its disks are not known." : "The size of its disks is not known.")
        : meter(used, `${bytes(each.total - each.free)} of ${bytes(each.total)} used, ${bytes(each.free)} free`, { warn, label: `Disk of ${each.bookie}` }),
      each.reason && h("div", { class: "notice warn" }, h("p", { class: "notice-title" }, h("span", { class: "mark", "aria-hidden": "true" }, "!"), "It takes no entries"), h("p", {}, each.reason))),
    facts([
      ["Rack", each.rack ?? "not assigned"],
      ["Answers in", each.answerMs === null ? "–" : `${each.answerMs} ms`, "time of its answer to the question about its disks"],
      ["Journal syncs", each.journal.syncs === undefined ? "–" : count(each.journal.syncs)],
      ["Journal latency", latency(each), "of the journal of the bookie, as it measures it"],
      ["Waiting for the journal", each.journal.queuedBytes === undefined ? "–" : `${bytes(each.journal.queuedBytes)} of ${bytes(each.journal.queuedBytesMax)}`],
      each.journal.writeFailures ? ["Failed journal writes", count(each.journal.writeFailures)] : null,
    ]),
    each.problems.length > 0 && h("div", { class: "card-body" }, each.problems.map((text) => h("p", { class: "small muted" }, `Not known: ${text}`))),
    h("details", { class: "card-body", dataset: { bookie: each.bookie }, open: open.has(each.bookie) }, h("summary", {}, "Folders and thresholds"),
      h("dl", { class: "pairs" }, [
        ["Journal", each.journals.join(", ") || "–"], ["Ledgers", each.directories.join(", ") || "–"], ["Web port", each.webUrl || "none"],
        ...Object.entries(each.thresholds),
      ].map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", { class: "mono" }, value))))));
}

function latency(each) {
  const shown = Object.entries(each.latencies).flatMap(([name, found]) => Object.entries(found)
    .filter(([quantile]) => ["p50", "p99"].includes(quantile)).map(([quantile, value]) => `${name} ${quantile} ${value.toPrecision(3)} ms`));
  return shown.length ? shown.join(", ") : each.webUrl ? "it measures none" : "not known: no web port";
}
