// All topics with live rates: sorted, filtered and cut at the server; only the visible rows exist here.

import { follow, get, send, at } from "../api.js";
import { h, put, setText } from "../dom.js";
import { byteRate, bytes, count, rate } from "../format.js";
import { announce, ask, drawSpark, empty, problem, spark, toast } from "../parts.js";
import { parse, topicLink } from "../topics.js";
import { PART, VirtualList } from "../virtual.js";

const COLUMNS = [
  ["name", "Topic"], ["messagesIn", "In"], ["messagesOut", "Out"], ["backlog", "Backlog"], ["storage", "Storage"],
  ["producers", "Producers"], ["subscriptions", "Subscriptions"], ["consumers", "Consumers"],
];
const ONLY = [["all", "All topics"], ["active", "With traffic"], ["backlog", "With a backlog"], ["unconsumed", "Backlog, no consumer"]];

export async function show(root, { query, keep, signal, title }) {
  title("Topics");
  const wish = {
    sort: query.get("sort") || "name", down: query.get("down") === "true", search: query.get("search") || "",
    only: query.get("only") || "all", namespace: query.get("namespace") || "", system: query.get("system") === "true",
  };
  const base = (events) => (wish.namespace
    ? `/console/api/topic${events ? "-events" : "s"}/${wish.namespace.split("/").map(encodeURIComponent).join("/")}`
    : `/console/api/topic${events ? "-events" : "s"}`);
  const parameters = (part) => new URLSearchParams({
    sort: wish.sort, down: wish.down, search: wish.search, only: wish.only, system: wish.system, from: part * PART, limit: PART,
  });

  const figures = h("dl", { class: "figures" });
  const failed = h("div", {});
  const said = h("p", { class: "muted", role: "status" });
  const none = h("div", {});
  const unknown = h("p", { class: "muted", role: "status" });
  const state = h("span", { class: "live-state", role: "status" }, "connecting");
  const headers = h("div", { class: "topic-row head", role: "row" });

  const list = new VirtualList({
    rowHeight: 52, signal, make, render,
    fetch: (part) => get(`${base(false)}?${parameters(part)}`, signal),
    counted, visible: stream,
    measured: (scrollbar) => { headers.style.paddingRight = `calc(var(--gap-4) + ${scrollbar}px)`; },
    failed: (error) => { put(failed, problem(error)); said.textContent = ""; },
  });

  const search = h("input", { id: "search", type: "search", placeholder: "Part of the name", value: wish.search, autocomplete: "off", spellcheck: "false" });
  const only = h("select", { id: "only" }, ONLY.map(([key, text]) => h("option", { value: key, selected: key === wish.only }, text)));
  const namespace = h("input", { id: "namespace", type: "text", placeholder: "All (tenant/namespace)", value: wish.namespace, autocomplete: "off", spellcheck: "false", list: "namespaces" });
  const system = h("input", { id: "system", type: "checkbox", checked: wish.system });
  const sort = h("select", { id: "sort" }, COLUMNS.map(([key, text]) => h("option", { value: key, selected: key === wish.sort }, text)));

  root.append(
    h("div", { class: "page-head" },
      h("div", {}, h("h1", {}, "Topics"), said),
      h("div", { class: "page-tools" }, state, h("button", { type: "button", class: "primary", onclick: () => create(wish, again) }, "Create topic"))),
    figures, unknown,
    h("div", { class: "toolbar" },
      h("label", { class: "field grow" }, h("span", {}, "Search"), search),
      h("label", { class: "field" }, h("span", {}, "Show"), only),
      h("label", { class: "field" }, h("span", {}, "Namespace"), namespace),
      h("label", { class: "field sort-field" }, h("span", {}, "Sort by"), sort),
      h("label", { class: "field check" }, system, h("span", {}, "System topics")),
      h("datalist", { id: "namespaces" })),
    failed,
    h("div", { class: "card topics" },
      h("div", { role: "table", "aria-label": "Topics", "aria-colcount": COLUMNS.length }, h("div", { role: "rowgroup" }, headers), list.element), none));

  let timer;
  search.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => { wish.search = search.value.trim(); again(); }, 200); });
  only.addEventListener("change", () => { wish.only = only.value; again(); });
  namespace.addEventListener("change", () => { wish.namespace = namespace.value.trim(); again(); });
  system.addEventListener("change", () => { wish.system = system.checked; again(); });
  sort.addEventListener("change", () => { wish.sort = sort.value; wish.down = wish.sort !== "name"; again(); });
  signal.addEventListener("abort", () => clearTimeout(timer), { once: true });

  let streaming = new AbortController();
  signal.addEventListener("abort", () => streaming.abort(), { once: true });

  function again() {
    put(failed);
    const kept = new URLSearchParams();
    for (const [key, value] of Object.entries(wish)) {
      if (value && !(key === "sort" && value === "name") && !(key === "only" && value === "all")) kept.set(key, value);
    }
    keep(kept);
    head();
    list.shown = undefined;
    return list.reset();
  }

  function head() {
    put(headers, COLUMNS.map(([key, text]) => {
      const on = wish.sort === key;
      return h("span", { role: "columnheader", "aria-sort": on ? (wish.down ? "descending" : "ascending") : null, class: key === "name" ? null : "number" },
        h("button", { type: "button", class: "sort", onclick: () => by(key) }, text,
          h("span", { class: "arrow", "aria-hidden": "true" }, on ? (wish.down ? "↓" : "↑") : "↕")));
    }));
    sort.value = wish.sort;
  }

  function by(key) {
    if (wish.sort === key) wish.down = !wish.down; else { wish.sort = key; wish.down = key !== "name"; }
    again();
    headers.querySelectorAll("button")[COLUMNS.findIndex(([each]) => each === key)].focus();
    announce(`sorted by ${key}, ${wish.down ? "largest" : "smallest"} first`);
  }

  function counted(answer) {
    setText(said, answer.total === null || answer.total === answer.matching
      ? `${count(answer.matching)} topics` : `${count(answer.matching)} of ${count(answer.total)} topics`);
    list.element.hidden = !answer.matching;
    put(none, !answer.matching && (wish.search || wish.only !== "all"
      ? empty("No topic matches.", "Change the search or what is shown.") : empty("There are no topics yet.", "Create one, or connect a producer.")));
    const { totals } = answer;
    if (!("messagesIn" in totals)) { put(figures); return; }
    setText(unknown, totals.silent ? `Brokers of ${count(totals.silent)} topics and partitions do not answer: they are not in these numbers.` : "");
    const values = [["Messages in", rate(totals.messagesIn)], ["Messages out", rate(totals.messagesOut)], ["Bytes in", byteRate(totals.bytesIn)],
      ["Backlog", count(totals.backlog)], ["Storage", bytes(totals.storage)], ["Producers", count(totals.producers)], ["Consumers", count(totals.consumers)]];
    if (figures.children.length !== values.length) put(figures, values.map(([name]) => h("div", {}, h("dt", {}, name), h("dd", {}))));
    values.forEach(([, value], place) => setText(figures.children[place].lastChild, value));
  }

  // The rows that are visible are sent again when they change.
  function stream(part) {
    streaming.abort();
    streaming = new AbortController();
    const mine = streaming.signal;
    follow(`${base(true)}?${parameters(part)}`, {
      open: () => setText(state, "live"),
      data: (answer) => { if (!mine.aborted) { setText(state, "live"); list.take(part, answer); } },
      problem: (error) => { if (!mine.aborted) setText(state, `not live: ${error.message ?? error}`); },
    }, mine);
  }

  head();
  await again();
}

function make() {
  const cells = COLUMNS.map(([key], place) => h("span", { role: "cell", class: place ? "number" : "topic-name", dataset: { label: COLUMNS[place][1] } }));
  const link = h("a", {});
  const space = h("span", { class: "muted small" });
  cells[0].append(link, space);
  const svg = spark([], { label: "" });
  svg.setAttribute("aria-hidden", "true");
  svg.removeAttribute("role");
  const text = h("span", {});
  cells[1].append(svg, text);
  const element = h("div", { class: "topic-row", role: "row" }, cells);
  Object.assign(element, { cells, link, space, svg, text });
  return element;
}

function render(row, element) {
  const { cells, link, space, svg, text } = element;
  if (!row) {
    setText(link, "…");
    link.removeAttribute("href");
    setText(space, "");
    return;
  }
  const { namespace, local, domain } = parse(row.topic);
  const href = topicLink(row.topic);
  if (link.getAttribute("href") !== href) { link.setAttribute("href", href); link.title = row.topic; }
  setText(link, local);
  const parts = row.partitions ? ` · ${row.partitions} partitions` : "";
  const part = row.partitions > row.silent ? ` of ${count(row.silent)} partitions` : "";
  const state = row.silent ? ` · no answer${part} from ${row.silent > 1 ? "their brokers" : "its broker"}` : row.loaded ? "" : " · not loaded";
  setText(space, `${namespace}${domain === "persistent" ? "" : " · non-persistent"}${parts}${state}`);
  setText(text, rate(row.messagesIn));
  drawSpark(svg, row.curve ?? []);
  setText(cells[2], rate(row.messagesOut));
  setText(cells[3], count(row.backlog));
  setText(cells[4], row.loaded ? bytes(row.storage) : "–");
  setText(cells[5], count(row.producers));
  setText(cells[6], row.loaded ? count(row.subscriptions) : "–");
  setText(cells[7], count(row.consumers));
}

async function create(wish, again) {
  const made = await ask({
    title: "Create topic",
    fields: [
      { name: "namespace", label: "Namespace", value: wish.namespace || "public/default", required: true, pattern: "[^\\/]+\\/[^\\/]+", hint: "tenant/namespace" },
      { name: "name", label: "Name", value: "", required: true },
      { name: "domain", label: "Kind", type: "select", value: "persistent", options: [["persistent", "persistent"], ["non-persistent", "non-persistent"]] },
      { name: "partitions", label: "Partitions", type: "number", value: 0, min: 0, max: 10000, hint: "0: not partitioned" },
    ],
    action: "Create",
    run: async ({ namespace, name, domain, partitions }) => {
      const [tenant, space] = namespace.split("/");
      const path = at`/admin/v2/${domain}/${tenant}/${space}/${name}`;
      if (partitions) await send("PUT", `${path}/partitions`, partitions); else await send("PUT", path, {});
    },
  });
  if (!made) return;
  const name = `${made.domain}://${made.namespace}/${made.name}`;
  toast(`${name} was created.`);
  await again();
}

