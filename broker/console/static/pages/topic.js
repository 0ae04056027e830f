// One topic, or all partitions of one: statistics, producers, subscriptions, messages, policies, schema, internal state.

import { get, pause, send } from "../api.js";
import { h, put } from "../dom.js";
import { ago, byteRate, bytes, count, duration, rate, time } from "../format.js";
import { ask, badge, card, drawSpark, empty, facts, problem, spark, table, tabs, toast } from "../parts.js";
import { namespaceLink, parse, topicLink } from "../topics.js";
import { policies } from "../policies.js";
import { viewer } from "../viewer.js";
import { subscriptions } from "../subscriptions.js";

const EVERY_MS = 2000;
const POINTS = 60;

export async function show(root, context) {
  const { params, signal, title, go } = context;
  const topic = parse(params.topic);
  if (!topic) { root.append(h("h1", {}, params.topic), problem(new Error("This is not the name of a topic."))); return; }
  title(topic.local);
  const partition = /^(.*)-partition-\d+$/.exec(topic.name);
  const metadata = partition ? { partitions: 0 } : await get(`${topic.path}/partitions`, signal);
  topic.partitions = metadata.partitions;
  const items = [["overview", "Overview"], ["subscriptions", "Subscriptions"],
    ...(topic.persistent ? [["messages", "Messages"], ["policies", "Policies"], ["schema", "Schema"], ["internal", "Internals"]] : [])];
  const current = items.some(([key]) => key === params.tab) ? params.tab : "overview";
  const panel = h("div", { role: "tabpanel", id: "panel", "aria-labelledby": `tab-${current}`, class: "page" });
  root.append(
    h("div", { class: "page-head" },
      h("div", {},
        h("p", { class: "crumbs" }, h("a", { href: "#/topics" }, "Topics"), " / ", h("a", { href: namespaceLink(topic.namespace) }, topic.namespace),
          partition && [" / ", h("a", { href: topicLink(partition[1]) }, parse(partition[1]).local)]),
        h("h1", {}, topic.local),
        h("p", { class: "lead" }, topic.persistent ? "persistent" : "non-persistent", topic.partitions ? `, ${topic.partitions} partitions` : "")),
      h("div", { class: "page-tools" }, tools(topic, context))),
    tabs("Parts of the topic", items, current, (key) => go(`topic/${encodeURIComponent(topic.name)}/${key}`)),
    panel);
  const shown = { overview, subscriptions, messages: viewer, policies: (element, each, more) => policies(element, { topic: each }, more), schema, internal }[current];
  await shown(panel, topic, context);
}

function tools(topic, { again, go }) {
  const change = (text, path, method, body) => async () => { await send(method, path, body); toast(text); };
  const button = (text, options, kind) => h("button", {
    type: "button", class: kind, onclick: async () => { if (await ask(options)) { if (options.gone) go("topics"); else again(); } },
  }, text);
  return [
    topic.partitions > 0 && button("Add partitions", {
      title: "Add partitions", text: "Partitions cannot be taken away again. Keys may move to other partitions.",
      fields: [{ name: "total", label: "Partitions in all", type: "number", value: topic.partitions + 1, min: topic.partitions + 1, max: 10000, required: true }],
      action: "Add", run: async ({ total }) => { await send("POST", `${topic.path}/partitions`, total); toast(`${topic.local} has ${total} partitions.`); },
    }),
    button("Unload", {
      title: "Unload topic", text: `Close ${topic.name}; clients connect again, and the topic is loaded where its bundle is.`,
      action: "Unload", run: change(`${topic.local} was unloaded.`, `${topic.path}/unload`, "PUT"),
    }),
    button("Delete", {
      title: "Delete topic", text: `Delete ${topic.name} with all its messages${topic.partitions ? " and partitions" : ""}. This cannot be undone.`,
      fields: [{ name: "force", label: "Also while producers and consumers are connected", type: "checkbox", value: false }],
      typeName: topic.local, action: "Delete", danger: true, gone: true,
      run: async ({ force }) => {
        await send("DELETE", `${topic.path}${topic.partitions ? "/partitions" : ""}?force=${force}`);
        toast(`${topic.local} was deleted.`);
      },
    }, "danger-quiet"),
  ];
}

/** Ask for statistics again and again; calls show(stats, rates) with rates since the last time, per second. */
export async function live(topic, signal, shown, failed) {
  const path = topic.partitions ? `${topic.path}/partitioned-stats?perPartition=true` : `${topic.path}/stats?getEarliestTimeInBacklog=${topic.persistent}`;
  let before = null;
  while (!signal.aborted) {
    try {
      const stats = await get(path, signal);
      const now = performance.now();
      const seconds = before && (now - before.at) / 1000;
      const since = (name, fallback) => (before && stats[name] >= before.stats[name] ? (stats[name] - before.stats[name]) / seconds : stats[fallback]);
      const rates = { in: since("msgInCounter", "msgRateIn"), out: since("msgOutCounter", "msgRateOut"),
        bytesIn: since("bytesInCounter", "msgThroughputIn"), bytesOut: since("bytesOutCounter", "msgThroughputOut") };
      before = { at: now, stats };
      await shown(stats, rates);
    } catch (error) {
      if (signal.aborted) return;
      failed(error);
    }
    await pause(EVERY_MS, signal);
  }
}

async function overview(root, topic, { signal }) {
  const failed = h("div", {});
  const chart = (name) => {
    const svg = spark([], { width: 420, height: 64, label: `${name} over the last two minutes` });
    svg.classList.add("wide");
    svg.setAttribute("preserveAspectRatio", "none");
    const value = h("dd", {});
    const more = h("span", { class: "muted small" });
    return { svg, value, more, points: [], element: h("section", { class: "card chart", "aria-label": name }, h("dl", {}, h("div", {}, h("dt", {}, name), value)), more, svg) };
  };
  const [inward, outward] = [chart("Messages in"), chart("Messages out")];
  const numbers = h("div", {});
  const producers = h("div", {});
  const why = h("div", {});
  const partitions = h("div", {});
  root.append(failed, why, h("div", { class: "columns" }, inward.element, outward.element), card("Now", null, numbers),
    topic.partitions ? card("Partitions", null, partitions) : card("Producers", null, producers));
  explained(why, topic, signal);
  live(topic, signal, (stats, rates) => {
    put(failed);
    for (const [each, value, size] of [[inward, rates.in, rates.bytesIn], [outward, rates.out, rates.bytesOut]]) {
      each.points.push(value);
      if (each.points.length > POINTS) each.points.shift();
      each.value.textContent = rate(value);
      each.more.textContent = byteRate(size);
      drawSpark(each.svg, each.points, 420, 64);
    }
    const all = Object.values(stats.subscriptions);
    put(numbers, facts([
      ["Storage", bytes(stats.storageSize)],
      ["Backlog", count(all.reduce((most, each) => Math.max(most, each.msgBacklog ?? 0), 0)), "Entries behind the slowest subscription"],
      topic.persistent && ["Backlog size", bytes(stats.backlogSize)],
      ["Oldest in backlog", stats.oldestBacklogMessageAgeSeconds >= 0 ? duration(stats.oldestBacklogMessageAgeSeconds) : "–"],
      ["Messages in", count(stats.msgInCounter), "Since the topic was loaded"], ["Messages out", count(stats.msgOutCounter)],
      ["Subscriptions", count(all.length)], ["Producers", count(stats.publishers.length)],
      ["Last publish", stats.lastPublishTimeStamp ? ago(stats.lastPublishTimeStamp) : "–"],
      ["Deduplication", stats.deduplicationStatus ?? "–"]]));
    if (topic.partitions) {
      put(partitions, table("Partitions", [
        { title: "Partition", cell: ([name]) => h("a", { href: topicLink(name) }, name.replace(/^.*-partition-/, "")) },
        { title: "In", number: true, cell: ([, each]) => rate(each.msgRateIn) }, { title: "Out", number: true, cell: ([, each]) => rate(each.msgRateOut) },
        { title: "Storage", number: true, cell: ([, each]) => bytes(each.storageSize) },
        { title: "Backlog", number: true, cell: ([, each]) => count(Object.values(each.subscriptions).reduce((most, one) => Math.max(most, one.msgBacklog), 0)) },
        { title: "Producers", number: true, cell: ([, each]) => count(each.publishers.length) },
      ], Object.entries(stats.partitions).sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }))));
    } else {
      put(producers, table("Producers", [
        { title: "Name", cell: (each) => each.producerName || `#${each.producerId}` }, { title: "Rate", number: true, cell: (each) => rate(each.msgRateIn) },
        { title: "Bytes", number: true, cell: (each) => byteRate(each.msgThroughputIn) }, { title: "Mean size", number: true, cell: (each) => bytes(each.averageMsgSize) },
        { title: "Address", cell: (each) => each.address ?? "–" }, { title: "Connected", cell: (each) => each.connectedSince ?? "–" },
        { title: "Client", cell: (each) => each.clientVersion ?? "–" },
      ], stats.publishers, { none: "No producer is connected." }));
    }
  }, (error) => put(failed, problem(error)));
}

const KINDS = { idle: ["good", "nothing to do"], waiting: ["info", "waiting"], blocked: ["warn", "blocked"], stuck: ["bad", "stuck"] };

/** An explanation as a notice: sentence, state, remedy. */
export function explanation(found) {
  const [kind, text] = KINDS[found.state] ?? ["plain", found.state];
  return h("div", { class: `notice ${kind === "plain" ? "info" : kind}` },
    h("p", { class: "notice-title" }, badge(kind, text), h("span", {}, found.subject)),
    h("p", {}, found.sentence),
    found.remedy && found.state !== "idle" && h("p", { class: "small" }, h("strong", {}, "Remedy: "), found.remedy),
    found.since_ms && h("p", { class: "small" }, `Since ${time(found.since_ms)} (${ago(found.since_ms)})`));
}

async function explained(root, topic, signal) {
  if (!topic.persistent) return;
  try {
    const found = await get(`${topic.path}/explain`, signal);
    const parts = found.partitions ? Object.values(found.partitions) : [found];
    const all = parts.flatMap((each) => [each.topic, each.producers, ...(each.ledgers ?? []), ...Object.values(each.subscriptions ?? {})]).filter((each) => each?.sentence);
    const wrong = all.filter((each) => ["blocked", "stuck"].includes(each.state)).slice(0, 5);
    put(root, h("div", { class: "page" }, wrong.map(explanation)));
  } catch (error) {
    if (!signal.aborted && ![401, 403].includes(error.status)) put(root, problem(error));
  }
}

async function schema(root, topic, context) {
  const all = await get(`${topic.schemas}/schemas`, context.signal).catch((error) => { if (error.status === 404) return null; throw error; });
  const versions = (all?.getSchemaResponses ?? []).toReversed();
  const kinds = ["AVRO", "JSON", "STRING", "INT32", "INT64", "DOUBLE", "BOOLEAN", "PROTOBUF"];
  const post = h("button", {
    type: "button", onclick: async () => {
      if (await ask({
        title: "Add schema", text: "A new version must be compatible with those before it, by the strategy of the namespace.",
        fields: [{ name: "type", label: "Type", type: "select", value: versions[0]?.type ?? "AVRO", options: kinds.map((each) => [each, each]) },
          { name: "text", label: "Definition (JSON; empty for primitive types)", type: "textarea", value: versions[0]?.data ?? "" }],
        action: "Add", run: async ({ type, text }) => { await send("POST", `${topic.schemas}/schema`, { type, schema: text, properties: {} }); toast("The schema was added."); },
      })) context.again();
    },
  }, "Add version");
  const remove = versions.length > 0 && h("button", {
    type: "button", class: "danger-quiet", onclick: async () => {
      if (await ask({
        title: "Delete schemas", text: "Producers and consumers with a schema can then bring any.", typeName: topic.local, action: "Delete", danger: true,
        run: async () => { await send("DELETE", `${topic.schemas}/schema?force=false`); toast("The schemas were deleted."); },
      })) context.again();
    },
  }, "Delete");
  root.append(card("Schema", [post, remove], versions.length
    ? h("div", { class: "card-body page" }, versions.map((each, place) => h("details", { open: place === 0 },
      h("summary", {}, h("strong", {}, `Version ${each.version}`), " ", badge("info", each.type), " ", h("span", { class: "muted" }, time(each.timestamp))),
      each.data ? h("pre", { class: "code", tabindex: "0" }, pretty(each.data)) : h("p", { class: "muted" }, "No definition: a primitive type."),
      Object.keys(each.properties ?? {}).length > 0 && facts(Object.entries(each.properties)))))
    : empty("This topic has no schema.", "Its messages are bytes.")));
}

function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

async function internal(root, topic, { signal }) {
  if (topic.partitions) {
    root.append(card("Internals", null, empty("Each partition has its own.", Array.from({ length: Math.min(topic.partitions, 200) }, (_, place) =>
      [h("a", { href: topicLink(`${topic.name}-partition-${place}`, "internal") }, `Partition ${place}`), " "]))));
    return;
  }
  const found = await get(`${topic.path}/internalStats?metadata=true`, signal);
  root.append(
    card("Log", null, facts([["State", found.state], ["Entries", count(found.numberOfEntries)], ["Size", bytes(found.totalSize)],
      ["Last confirmed", found.lastConfirmedEntry], ["Entries in ledger", count(found.currentLedgerEntries)], ["Open ledger", bytes(found.currentLedgerSize)],
      ["Waiting cursors", count(found.waitingCursorsCount)], ["Pending adds", count(found.pendingAddEntriesCount)]])),
    card("Ledgers", null, table("Ledgers", [
      { title: "Ledger", cell: (each) => String(each.ledgerId) }, { title: "Entries", number: true, cell: (each) => (each.entries ? count(each.entries) : "–") },
      { title: "Size", number: true, cell: (each) => (each.size ? bytes(each.size) : "–") },
      { title: "State", cell: (each) => (each.ledgerId === found.ledgers.at(-1).ledgerId ? badge("info", "open") : badge("plain", "closed")) },
      { title: "Metadata", cell: (each) => h("span", { class: "mono small" }, (each.metadata ?? "").slice(0, 300)) },
    ], found.ledgers)),
    card("Cursors", null, table("Cursors", [
      { title: "Cursor", cell: ([name]) => name }, { title: "Acknowledged up to", cell: ([, each]) => each.markDeletePosition },
      { title: "Reads from", cell: ([, each]) => each.readPosition }, { title: "Behind", number: true, cell: ([, each]) => count(each.numberOfEntriesSinceFirstNotAckedMessage) },
      { title: "Ranges", number: true, cell: ([, each]) => count(each.totalNonContiguousDeletedMessagesRange) },
      { title: "State", cell: ([, each]) => each.state },
    ], Object.entries(found.cursors), { none: "No subscription." })));
}
