// The subscriptions of a topic: lag, permits, unacknowledged messages, why nothing moves, and what can be done.

import { get, pause, send } from "./api.js";
import { h, put } from "./dom.js";
import { bytes, count, duration, rate } from "./format.js";
import { ask, badge, card, empty, problem, table, toast } from "./parts.js";
import { explanation, live } from "./pages/topic.js";

const EXPLAIN_EVERY_MS = 5000;

export async function subscriptions(root, topic, { signal, again }) {
  const failed = h("div", {});
  const cards = new Map();
  const list = h("div", { class: "page" });
  const none = h("div", {});
  const create = h("button", { type: "button", class: "primary", onclick: () => subscribe(topic, again) }, "Create subscription");
  root.append(h("div", { class: "page-tools" }, create), failed, none, list);
  live(topic, signal, (stats) => {
    put(failed);
    const names = Object.keys(stats.subscriptions).sort();
    put(none, !names.length && empty("This topic has no subscription.", "Messages are kept by retention only."));
    for (const [name, element] of cards) if (!names.includes(name)) { element.remove(); cards.delete(name); }
    for (const name of names) {
      if (!cards.has(name)) {
        const made = make(topic, name, again);
        cards.set(name, made.element);
        Object.assign(made.element, { update: made.update });
        list.append(made.element);
        if (topic.persistent && !name.startsWith("__")) why(topic, name, made.explain, signal);
      }
      cards.get(name).update(stats.subscriptions[name]);
    }
  }, (error) => put(failed, problem(error)));
}

async function why(topic, name, element, signal) {
  while (!signal.aborted && element.isConnected) {
    try {
      const found = await get(`${topic.path}/subscription/${encodeURIComponent(name)}/explain`, signal);
      const parts = found.partitions ? Object.values(found.partitions) : [found];
      const worst = ["stuck", "blocked", "waiting", "idle"].map((state) => parts.find((each) => each.state === state)).find(Boolean);
      if (worst && element.dataset.said !== `${worst.cause}${worst.sentence}`) {
        element.dataset.said = `${worst.cause}${worst.sentence}`;
        put(element, explanation(worst));
      }
    } catch (error) {
      if (signal.aborted) return;
      put(element, problem(error));
      if ([401, 403, 404].includes(error.status)) return;
    }
    await pause(EXPLAIN_EVERY_MS, signal);
  }
}

function make(topic, name, again) {
  const numbers = h("dl", { class: "facts" });
  const consumers = h("div", {});
  const explain = h("div", { class: "card-body explain", "aria-live": "polite" });
  const kind = h("span", {});
  const path = `${topic.path}/subscription/${encodeURIComponent(name)}`;
  const act = (text, options, danger) => h("button", {
    type: "button", class: danger ? "danger-quiet" : null, "aria-label": `${text}: ${name}`, onclick: async () => { if (await ask(options)) again(); },
  }, text);
  const actions = topic.persistent && !name.startsWith("__") ? [
    !topic.partitions && act("Skip…", {
      title: "Skip messages", text: `The next messages of ${name} count as acknowledged, and are not delivered.`,
      fields: [{ name: "count", label: "Entries to skip", type: "number", value: 1, min: 1, required: true }], action: "Skip",
      run: async (values) => { await send("POST", `${path}/skip/${values.count}`); toast(`${count(values.count)} entries of ${name} were skipped.`); },
    }),
    act("Skip all", {
      title: "Skip all messages", text: `The whole backlog of ${name} counts as acknowledged, and is not delivered. This cannot be undone if the messages are deleted in the meantime.`,
      typeName: name, action: "Skip all", danger: true, run: async () => { await send("POST", `${path}/skip_all`); toast(`The backlog of ${name} was skipped.`); },
    }, true),
    act("Reset…", {
      title: "Reset cursor", text: "Consumers are disconnected, and the subscription goes on from there.",
      fields: [
        { name: "how", label: "To", type: "select", value: "time", options: [["time", "a time"], ["id", "a message id"], ["earliest", "the earliest message"], ["latest", "the end"]] },
        { name: "time", label: "Time (published then or later)", type: "time", value: "" },
        { name: "id", label: "Message id", value: "", hint: "ledger:entry, as the message viewer shows it" }],
      action: "Reset", run: (values) => reset(path, name, values),
    }),
    act("Expire…", {
      title: "Expire messages", text: "Messages that are older count as acknowledged.",
      fields: [{ name: "seconds", label: "Older than seconds", type: "number", value: 3600, min: 1, required: true }], action: "Expire",
      run: async ({ seconds }) => { await send("POST", `${path}/expireMessages/${seconds}`); toast(`Old messages of ${name} expire.`); },
    }),
    act("Delete", {
      title: "Delete subscription", text: `${name} loses its position. Messages that only it has not acknowledged may be deleted.`,
      fields: [{ name: "force", label: "Also while consumers are connected", type: "checkbox", value: false }],
      typeName: name, action: "Delete", danger: true,
      run: async ({ force }) => { await send("DELETE", `${path}?force=${force}`); toast(`${name} was deleted.`); },
    }, true),
  ] : null;
  const element = card(name, h("div", { class: "actions" }, actions), numbers, explain, consumers);
  element.querySelector("h2").append(" ", kind);
  return { element, explain, update: (found) => update(found, numbers, consumers, kind) };
}

function update(found, numbers, consumers, kind) {
  put(kind, badge("plain", found.type ?? "None"), " ", found.blockedSubscriptionOnUnackedMsgs && badge("warn", "blocked by unacknowledged"),
    found.isDurable === false && badge("plain", "not durable"));
  const oldest = found.earliestMsgPublishTimeInBacklog > 0 ? (Date.now() - found.earliestMsgPublishTimeInBacklog) / 1000 : null;
  const permits = (found.consumers ?? []).reduce((all, each) => all + Math.max(0, each.availablePermits), 0);
  const values = [["Lag", count(found.msgBacklog), "Entries that are not acknowledged"], ["Lag in bytes", bytes(found.backlogSize)], ["Oldest", oldest === null ? "–" : duration(oldest)],
    ["Unacknowledged", count(found.unackedMessages), "Delivered, not acknowledged"], ["Permits", count(permits), "Messages that consumers ask for"],
    ["Delayed", count(found.msgDelayed)], ["Rate", rate(found.msgRateOut)], ["Consumers", count(found.consumers?.length)]];
  put(numbers, values.map(([name, value, title]) => h("div", { title }, h("dt", {}, name), h("dd", {}, value))));
  put(consumers, found.consumers?.length ? table("Consumers", [
    { title: "Consumer", cell: (each) => [each.consumerName || "–", found.activeConsumerName === each.consumerName && [" ", badge("good", "active")]] },
    { title: "Rate", number: true, cell: (each) => rate(each.msgRateOut) },
    { title: "Permits", number: true, cell: (each) => count(each.availablePermits) }, { title: "Unacked", number: true, cell: (each) => count(each.unackedMessages) },
    { title: "State", cell: (each) => (each.blockedConsumerOnUnackedMsgs ? badge("warn", "blocked") : badge("good", "ready")) },
    { title: "Address", cell: (each) => each.address ?? "–" },
  ], found.consumers) : null);
}

async function reset(path, name, { how, time, id }) {
  if (how === "time") {
    if (time === null) throw new Error("Choose a time.");
    await send("POST", `${path}/resetcursor/${time}`);
  } else {
    await send("POST", `${path}/resetcursor`, position(how, id));
  }
  toast(`${name} was reset.`);
}

function position(how, text) {
  if (how !== "id") return how;
  const found = /^(\d+):(\d+)(?::(\d+))?$/.exec(text.trim());
  if (!found) throw new Error("A message id is ledger:entry, such as 12:0.");
  return { ledgerId: Number(found[1]), entryId: Number(found[2]), partitionIndex: -1, ...(found[3] ? { batchIndex: Number(found[3]) } : {}) };
}

async function subscribe(topic, again) {
  const made = await ask({
    title: "Create subscription",
    fields: [{ name: "name", label: "Name", value: "", required: true },
      { name: "at", label: "Begins at", type: "select", value: "latest", options: [["latest", "the end: new messages only"], ["earliest", "the earliest message"]] }],
    action: "Create",
    run: ({ name, at }) => send("PUT", `${topic.path}/subscription/${encodeURIComponent(name)}`, at),
  });
  if (made) { toast(`${made.name} was created.`); again(); }
}
