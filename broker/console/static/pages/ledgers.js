// Ledgers on bookies as a map, and the progress of auto recovery.

import { at, follow, get } from "../api.js";
import { h, put } from "../dom.js";
import { bytes, count, duration, short } from "../format.js";
import { badge, card, drawSpark, empty, facts, problem, spark, table } from "../parts.js";
import { bar } from "../pictures.js";
import { HARMS, STATES, ownerLink, surveyLine } from "./cluster.js";

const BASE = "/console/api/cluster";
const HISTORY_MAX = 150;

export async function show(root, context) {
  context.title("Ledgers");
  const repairs = h("div", {});
  const survey = h("div", { class: "card-body" });
  const shares = h("div", {});
  const map = h("div", {});
  const filter = filters(context, () => { from = 0; read(); });
  const pager = h("div", { class: "card-body toolbar" });
  let from = 0;
  root.append(
    h("div", { class: "page-head" }, h("div", {}, h("h1", {}, "Ledgers"),
      h("p", { class: "lead" }, "Which bookies have which ledgers, by their metadata, and what is being repaired."))),
    card("Repairs", null, repairs),
    card("Copies by bookie", null, survey, shares),
    card("Map", filter.form, map, pager));
  repairsCard(repairs, context);

  async function read() {
    const query = filter.query();
    context.keep(query);
    const asked = new URLSearchParams(query);
    if (from) asked.set("from", from);
    asked.set("limit", "50");
    try {
      const found = await get(`${BASE}/ledgers?${asked}`, context.signal);
      drawShares(shares, found);
      drawMap(map, found);
      drawPager(found);
      return found;
    } catch (error) {
      if (!context.signal.aborted) { put(map, problem(error)); put(pager); }
      return null;
    }
  }

  function drawPager(found) {
    const of = found.survey ? `Looked at ${count(found.looked)} of ${found.survey.total === null ? `at least ${count(found.survey.listed)}` : count(found.survey.total)} ledgers.`
      : `Ledgers ${count(from + 1)} to ${count(from + found.examined)} of ${count(found.total)} of ${found.topic}.`;
    put(pager, h("span", { class: "grow muted" }, `${count(found.rows.length)} ${found.rows.length === 1 ? "ledger" : "ledgers"} shown. ${of}`,
      found.withoutMetadata?.length ? ` ${count(found.withoutMetadata.length)} have no metadata any more: ${found.withoutMetadata.join(", ")}.` : ""),
    from > 0 && h("button", { type: "button", onclick: () => { from = 0; read(); } }, "From the start"),
    found.next !== null && h("button", { type: "button", onclick: () => { from = found.next; read(); } }, "Go on"));
  }

  const line = surveyLine(survey, context, () => read());
  await line.start();
  await read();
}

function filters(context, changed) {
  const topic = h("input", { id: "topic", value: context.query.get("topic") || context.query.get("owner") || "", autocomplete: "off", spellcheck: "false", placeholder: "topic, or part of its name" });
  const bookie = h("input", { id: "bookie", value: context.query.get("bookie") || "", autocomplete: "off", spellcheck: "false", placeholder: "host:3181" });
  const harm = h("select", { id: "harm" }, [["NONE", "all"], ["BELOW_WRITE_QUORUM", "lacks copies"], ["BELOW_ACK_QUORUM", "below ack quorum"], ["UNREADABLE", "cannot be read"]]
    .map(([key, text]) => h("option", { value: key, selected: key === context.query.get("harm") }, text)));
  const form = h("form", { class: "toolbar" },
    h("label", { class: "field" }, h("span", {}, "Topic"), topic),
    h("label", { class: "field" }, h("span", {}, "Bookie"), bookie),
    h("label", { class: "field" }, h("span", {}, "State"), harm),
    h("button", { type: "submit" }, "Show"));
  form.addEventListener("submit", (event) => { event.preventDefault(); changed(); });
  harm.addEventListener("change", changed);
  return {
    form,
    query() {
      const found = new URLSearchParams();
      const name = topic.value.trim();
      if (/^(persistent):\/\/[^/]+\/[^/]+\/./.test(name)) return new URLSearchParams({ topic: name });
      if (name) found.set("owner", name);
      if (bookie.value.trim()) found.set("bookie", bookie.value.trim());
      if (harm.value !== "NONE") found.set("harm", harm.value);
      return found;
    },
  };
}

function drawShares(place, found) {
  const most = Math.max(...found.bookies.map((each) => each.bytes), 1);
  put(place, table("Share of each bookie", [
    { title: "Bookie", cell: (each) => h("a", { href: at`#/bookie/${each.bookie}` }, each.bookie) },
    { title: "State", cell: (each) => badge(...STATES[each.state]) },
    { title: "Payload", cell: (each) => bar([{ value: each.bytes, kind: "hbar-part", text: bytes(each.bytes) }], most, `${bytes(each.bytes)} of closed ledgers`) },
    { title: "Bytes", number: true, cell: (each) => bytes(each.bytes) },
    { title: "Ledgers", number: true, cell: (each) => count(each.ledgers) },
    { title: "Open", number: true, cell: (each) => count(each.open) },
    { title: "Fragments", number: true, cell: (each) => count(each.fragments) },
  ], found.bookies, { none: "No bookie is known." }), h("p", { class: "card-body small muted" },
    "Bytes are the payload of closed ledgers; the metadata of an open ledger does not have its size."));
}

/** Rows are ledgers, columns are bookies: ● all fragments, a number of some of them; a missing bookie's copies have ✕. */
function drawMap(place, found) {
  const used = new Set(found.rows.flatMap((row) => row.fragments.flatMap((each) => each.bookies)));
  const columns = found.bookies.filter((each) => used.has(each.bookie));
  put(place, table("Ledgers on bookies", [
    { title: "Ledger", cell: (row) => [h("span", { class: "mono" }, row.ledger), " ", row.state === "OPEN" && badge("info", "open", "it is written to, or was not closed yet")] },
    { title: "Of", cell: (row) => ownerLink(row.owner) },
    { title: "State", cell: (row) => [HARMS[row.harm].badge(), " ", row.marked && badge("warn", "marked", "auto recovery knows that copies are missing")] },
    { title: "Entries", number: true, cell: (row) => (row.last === null ? "–" : count(row.last + 1)) },
    { title: "Size", number: true, cell: (row) => bytes(row.bytes) },
    { title: "E/Qw/Qa", number: true, cell: (row) => row.quorums.join("/") },
    ...columns.map((each) => ({ title: each.bookie, cell: (row) => cell(row, each) })),
  ], found.rows, { none: found.survey?.running ? "None yet: ledgers are still being read." : "No ledger matches." }));
}

function cell(row, bookie) {
  const some = row.fragments.filter((each) => each.bookies.includes(bookie.bookie)).length;
  if (!some) return h("span", { class: "copy" }, h("span", { class: "visually-hidden" }, "no copies"));
  const there = bookie.state !== "gone" && bookie.state !== "unknown";
  const part = some === row.fragments.length ? "" : ` ${some}/${row.fragments.length}`;
  const say = `${there ? "copies" : "copies missing"}${part ? `, of ${some} of ${row.fragments.length} fragments` : ""}`;
  return h("span", { class: `copy ${there ? "there" : "gone"}`, title: say },
    h("span", { "aria-hidden": "true" }, there ? "●" : "✕", part), h("span", { class: "visually-hidden" }, say));
}

function repairsCard(place, context) {
  const history = [];
  const state = h("div", {});
  const svg = spark([], { width: 220, height: 40, label: "Marked ledgers over time" });
  const curve = h("div", { class: "card-body curve" }, h("span", { class: "small muted" }, "Marked ledgers since this page was opened"), svg);
  const urgent = h("div", {});
  place.append(state, curve, urgent);
  follow(`${BASE}/repairs/events`, {
    data(found) {
      history.push(found.marked);
      if (history.length > HISTORY_MAX) history.shift();
      drawSpark(svg, history, 220, 40);
      curve.hidden = !history.some((each) => each > 0);
      svg.setAttribute("aria-label", `Marked ledgers over time, now ${found.marked}, at most ${Math.max(...history)}`);
      drawRepairs(state, found);
      drawUrgent(urgent, found);
    },
    problem(error) { put(state, h("div", { class: "card-body" }, problem(error))); },
  }, context.signal);
}

function drawRepairs(place, found) {
  const lost = found.bookies.filter((each) => each.state === "gone").map((each) => each.bookie);
  const left = found.secondsLeft;
  const at_least = found.markedIsComplete ? "" : "at least ";
  put(place,
    !found.prepared && h("div", { class: "card-body" }, empty("Auto recovery never ran on this cluster.",
      h("p", {}, found.bookies.length < 2 ? "With one bookie there is nothing to copy from." : "Start `quire autorecovery`: without it, lost copies are not made again."))),
    found.prepared && !found.enabled && h("div", { class: "card-body" }, h("div", { class: "notice warn" },
      h("p", { class: "notice-title" }, h("span", { class: "mark", "aria-hidden": "true" }, "!"), "Auto recovery is suspended"),
      h("p", {}, "Lost copies are not made again until it is enabled: quire shell autorecovery -enable"))),
    lost.length > 0 && h("div", { class: "card-body" }, h("div", { class: "notice bad" },
      h("p", { class: "notice-title" }, h("span", { class: "mark", "aria-hidden": "true" }, "✕"), `Not registered: ${lost.slice(0, 20).join(", ")}${lost.length > 20 ? ` and ${count(lost.length - 20)} more` : ""}`),
      h("p", {}, "Their cookies are there, and they do not run. Copies on them count as missing until auto recovery has made others."))),
    found.prepared && facts([
      ["Marked ledgers", `${at_least}${count(found.marked)}`, "ledgers that lack copies, as auto recovery has marked them"],
      ["Being repaired now", count(found.locksTotal), found.locks.map((each) => `${each.ledger} by ${each.worker}`).join(", ")],
      ["Repaired while watched", `${count(found.done)} in ${duration(found.seconds)}`],
      ["Rate", found.perSecond === null ? "not known yet" : `${short(found.perSecond)}/s`],
      ["Time left, estimated", found.marked === 0 && found.markedIsComplete ? (lost.length ? "nothing is marked" : "nothing to do") : left === null ? "cannot be estimated" : duration(left)],
      ["Auditor", found.auditor ?? "none"],
      ["Grace of one lost bookie", found.recoveryDelayS === null ? "–" : found.recoveryDelayS === 0 ? "none" : duration(found.recoveryDelayS)],
    ]));
}

function drawUrgent(place, found) {
  if (!found.urgent.length) { put(place); return; }
  put(place, h("h3", { class: "card-body" }, `Most urgent, of ${count(found.urgentExamined)} of ${found.markedIsComplete ? "" : "at least "}${count(found.marked)} examined`),
    table("Most urgent ledgers", [
      { title: "Ledger", cell: (each) => h("span", { class: "mono" }, each.ledger) },
      { title: "Of", cell: (each) => ownerLink(each.owner) },
      { title: "State", cell: (each) => HARMS[each.harm].badge() },
      { title: "Missing at", cell: (each) => each.missing.join(", ") },
      { title: "Size", number: true, cell: (each) => bytes(each.bytes) },
    ], found.urgent));
}

