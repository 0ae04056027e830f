// Brokers with their load, and the bundles of a namespace as a ring; unload and split.

import { at, follow, get, send } from "../api.js";
import { h, put } from "../dom.js";
import { byteRate, count, rate } from "../format.js";
import { ask, badge, card, empty, problem, table, toast } from "../parts.js";
import { letter, ring } from "../pictures.js";

const BASE = "/console/api/cluster";
const ALGORITHMS = [
  ["range_equally_divide", "in the middle of the range"],
  ["topic_count_equally_divide", "so that both have as many topics"],
  ["flow_or_qps_equally_divide", "so that both have as much traffic"],
];

export async function show(root, context) {
  context.title("Brokers");
  const lead = h("p", { class: "lead" });
  const list = h("div", {});
  const place = h("div", {});
  root.append(
    h("div", { class: "page-head" }, h("div", {}, h("h1", {}, "Brokers"), lead)),
    card("Load", null, list), place);
  const found = await get(`${BASE}/brokers`, context.signal);
  drawBrokers(list, lead, found);
  const view = bundlesCard(place, context, found);
  await view.read();
  follow(`${BASE}/brokers/events`, {
    data(next) { drawBrokers(list, lead, next); view.note(next); },
    problem(error) { put(lead, problem(error)); },
  }, context.signal);
}

function drawBrokers(list, lead, found) {
  const { brokers } = found;
  put(lead, `${count(brokers.length)} ${brokers.length === 1 ? "broker serves" : "brokers serve"} ${count(found.bundlesTotal)} `
    + `${found.bundlesTotal === 1 ? "bundle" : "bundles"}${found.unread.length ? `; reports of ${found.unread.join(", ")} cannot be read` : ""}`);
  const most = Math.max(...brokers.map((each) => each.messagesIn + each.messagesOut), 1);
  put(list, table("Brokers", [
    { title: "Broker", cell: (each) => [h("span", { class: "key", "aria-hidden": "true" }, letter(brokers.indexOf(each))), " ", each.id, " ",
      each.isLeader && badge("info", "leader", "decides where bundles go"), each.isMine && badge("plain", "this one", "answers this page")] },
    { title: "Messages", cell: (each) => loadBar(each, most) },
    { title: "In", number: true, cell: (each) => rate(each.messagesIn) },
    { title: "Out", number: true, cell: (each) => rate(each.messagesOut) },
    { title: "Bytes in", number: true, cell: (each) => byteRate(each.bytesIn) },
    { title: "Bytes out", number: true, cell: (each) => byteRate(each.bytesOut) },
    { title: "Bundles", number: true, cell: (each) => count(each.bundles) },
    { title: "Topics", number: true, cell: (each) => count(each.topics) },
    { title: "Producers", number: true, cell: (each) => count(each.producers) },
    { title: "Consumers", number: true, cell: (each) => count(each.consumers) },
  ], brokers, { none: "No broker is registered." }));
}

function loadBar(each, most) {
  const bar = h("span", { class: "load", role: "img", "aria-label": `${rate(each.messagesIn)} in, ${rate(each.messagesOut)} out` });
  for (const [kind, value] of [["in", each.messagesIn], ["out", each.messagesOut]]) {
    const part = h("span", { class: `load-${kind}` });
    part.style.width = `${(value / most) * 100}%`;
    bar.append(part);
  }
  return bar;
}

function bundlesCard(place, context, first) {
  const names = [...new Set(first.bundles.map((each) => each.namespace))].sort();
  let namespace = context.query.get("namespace") || names[0] || "public/default";
  if (!names.includes(namespace)) names.unshift(namespace);
  let chosen = context.query.get("bundle");
  let last = null;
  const picture = h("div", { class: "ring-box" });
  const detail = h("div", { class: "ring-detail" });
  const rows = h("div", {});
  const input = h("input", { id: "namespace", list: "namespaces", value: namespace, autocomplete: "off", spellcheck: "false" });
  const form = h("form", { class: "toolbar" },
    h("label", { class: "field" }, h("span", {}, "Namespace"), input),
    h("datalist", { id: "namespaces" }, names.map((each) => h("option", { value: each }))),
    h("button", { type: "submit" }, "Show"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    namespace = input.value.trim();
    chosen = null;
    view.read();
  });
  input.addEventListener("change", () => form.requestSubmit());
  place.append(card("Bundles", form, h("div", { class: "card-body ring-columns" }, picture, detail), rows));

  function choose(range) {
    chosen = range;
    context.keep(new URLSearchParams({ namespace, ...(range ? { bundle: range } : {}) }));
    draw();
  }

  function draw() {
    if (!last) return;
    const { bundles, brokers, topics } = last;
    put(picture, ring({ bundles, brokers, topics, chosen, choose, name: namespace }));
    put(detail, explain(bundles.find((each) => each.range === chosen)));
    put(rows, table(`Bundles of ${namespace}`, [
      { title: "Bundle", cell: (each) => h("button", { type: "button", class: "link mono", "aria-pressed": String(each.range === chosen), onclick: () => choose(each.range) }, each.range) },
      { title: "Broker", cell: owner },
      { title: "Topics", number: true, cell: (each) => count(inBundle(each).length) },
      { title: "In", number: true, cell: (each) => (each.reported ? rate(each.messagesIn) : "–") },
      { title: "Out", number: true, cell: (each) => (each.reported ? rate(each.messagesOut) : "–") },
      { title: "Clients", number: true, cell: (each) => (each.reported ? count(each.producers + each.consumers) : "–") },
      { title: "Actions", cell: actions },
    ], bundles));
  }

  const inBundle = (each) => last.topics.filter((topic) => topic.range === each.range);

  function owner(each) {
    if (each.unloading) return badge("warn", "being unloaded");
    if (each.broker) return [h("span", { class: "key", "aria-hidden": "true" }, letter(last.brokers.indexOf(each.broker))), " ", each.broker];
    return each.ownerUrl ? [badge("warn", "unknown broker"), " ", each.ownerUrl] : badge("plain", "no owner", "it gets one when a client comes");
  }

  function actions(each) {
    return h("div", { class: "actions" },
      h("button", { type: "button", onclick: () => unload(each) }, "Unload…"),
      h("button", { type: "button", onclick: () => split(each) }, "Split…"));
  }

  function explain(each) {
    if (!each) {
      const more = last.topicsTotal > last.topics.length ? `The places of ${count(last.topics.length)} of ${count(last.topicsTotal)} topics are drawn.` : "";
      return empty("Choose a bundle.", h("p", {}, `The ring has the 2³² hashes of ${namespace}; each point on it is a topic. ${more}`));
    }
    const topics = inBundle(each);
    const share = ((each.high - each.low) / 2 ** 32) * 100;
    return [
      h("h3", { class: "mono" }, each.range),
      h("p", {}, owner(each)),
      h("p", { class: "muted" }, `${share.toFixed(share < 10 ? 1 : 0)} % of the ring, ${count(topics.length)} topics${each.reported
        ? `, ${rate(each.messagesIn)} in, ${rate(each.messagesOut)} out, ${count(each.producers)} producers, ${count(each.consumers)} consumers` : ""}`),
      topics.length > 0 && h("ul", { class: "names" }, topics.slice(0, 12).map((topic) => h("li", {},
        h("a", { href: at`#/topic/${topic.topic}` }, topic.topic.replace(/^.*\//, "")),
        topic.messagesIn === null ? null : h("span", { class: "muted" }, ` ${rate(topic.messagesIn)}`)))),
      topics.length > 12 && h("p", { class: "muted" }, `and ${count(topics.length - 12)} more`),
      actions(each),
    ];
  }

  async function unload(each) {
    const others = last.brokers.filter((broker) => broker !== each.broker);
    const done = await ask({
      title: "Unload bundle",
      text: `Clients of the ${inBundle(each).length} topics of ${each.range} are disconnected and connect again, wherever it is served then. Nothing is lost.`,
      fields: others.length ? [{ name: "to", label: "Then served by", type: "select", value: "", options: [["", "the broker that the leader chooses"], ...others.map((broker) => [broker, broker])] }] : [],
      action: "Unload",
      run: ({ to }) => send("PUT", `${path(each)}/unload${to ? `?destinationBroker=${encodeURIComponent(to)}` : ""}`),
    });
    if (done) { toast(`Bundle ${each.range} unloaded`); await view.read(); }
  }

  async function split(each) {
    const done = await ask({
      title: "Split bundle",
      text: `Two bundles take the place of ${each.range}. They cannot be joined again.`,
      fields: [
        { name: "algorithm", label: "Where", type: "select", value: ALGORITHMS[0][0], options: ALGORITHMS },
        { name: "unload", label: "Unload both, so that brokers share them", type: "checkbox", value: false },
      ],
      action: "Split",
      danger: true,
      run: ({ algorithm, unload: both }) => send("PUT", `${path(each)}/split?unload=${both}&splitAlgorithmName=${algorithm}`),
    });
    if (done) { toast(`Bundle ${each.range} split`); chosen = null; await view.read(); }
  }

  function path(each) {
    const [tenant, local] = namespace.split("/");
    return at`/admin/v2/namespaces/${tenant}/${local}/${each.range}`;
  }

  let reading = false;
  const view = {
    async read() {
      reading = true;
      const [tenant, local = ""] = namespace.split("/");
      try {
        last = await get(BASE + at`/bundles/${tenant}/${local}`, context.signal);
        context.keep(new URLSearchParams({ namespace, ...(chosen ? { bundle: chosen } : {}) }));
        draw();
      } catch (error) {
        if (context.signal.aborted) return;
        put(picture, problem(error));
        put(detail);
        put(rows);
        last = null;
      } finally {
        reading = false;
      }
    },
    /** New loads: the ring is read again if something of this namespace changed. */
    note(next) {
      const mine = (found) => JSON.stringify(found.bundles.filter((each) => each.namespace === namespace));
      if (reading || (this.seen ?? mine(first)) === mine(next)) return;
      this.seen = mine(next);
      const at = document.activeElement;
      if (!picture.contains(at) && !detail.contains(at) && !rows.contains(at) && !document.querySelector("dialog[open]")) this.read();
    },
  };
  return view;
}
