// Policies of a namespace or a topic: what is set, a form for each, and removal.

import { at, get, send } from "./api.js";
import { h } from "./dom.js";
import { ask, badge, card, table, toast } from "./parts.js";

const number = (name, label, value, more = {}) => ({ name, label, type: "number", value, required: true, ...more });
const RATE = (messages, size) => [number(messages, "Messages per second (-1: no limit)", -1, { min: -1 }), number(size, "Bytes per second (-1: no limit)", -1, { min: -1 }),
  number("ratePeriodInSecond", "Period in seconds", 1, { min: 1 })];
const single = (label, value, more) => ({ fields: [number("value", label, value, more)], body: ({ value: found }) => found, show: (found) => String(found) });
const toggle = (label) => ({ fields: [{ name: "value", label, type: "checkbox", value: true }], body: ({ value }) => value, show: (found) => (found ? "on" : "off") });
const record = (fields, fixed = {}) => ({ fields, body: (values) => ({ ...fixed, ...values }),
  show: (found) => fields.filter((field) => found[field.name] !== undefined).map((field) => `${field.label.replace(/ \(.*$/, "")}: ${named(field, found[field.name])}`).join(" · ") });
const named = (field, value) => field.options?.find(([key]) => key === value)?.[1] ?? String(value);

/** Resources by level; "topic" and "namespace" are their names in the path, null: not at that level. */
const POLICIES = [
  { title: "Retention", about: "How long acknowledged messages are kept.", topic: "retention", namespace: "retention",
    ...record([number("retentionTimeInMinutes", "Minutes (-1: always, 0: not)", 60, { min: -1 }), number("retentionSizeInMB", "Size in MB (-1: any, 0: not)", 100, { min: -1 })]) },
  { title: "Message TTL", about: "Seconds after which a message counts as acknowledged.", topic: "messageTTL", namespace: "messageTTL", query: "messageTTL",
    ...single("Seconds (0: never)", 3600, { min: 0 }) },
  { title: "Backlog quota", about: "What happens when a backlog becomes too large.", topic: "backlogQuota", namespace: "backlogQuota", read: "backlogQuotaMap", type: "destination_storage",
    ...record([number("limitSize", "Bytes (-1: no limit)", 1073741824, { min: -1 }), number("limitTime", "Seconds (-1: no limit)", -1, { min: -1 }),
      { name: "policy", label: "Then", type: "select", value: "producer_request_hold", options: [["producer_request_hold", "hold producers"], ["producer_exception", "refuse producers"], ["consumer_backlog_eviction", "drop the oldest messages"]] }]) },
  { title: "Publish rate", about: "What producers may send.", topic: "publishRate", namespace: "publishRate",
    ...record([number("publishThrottlingRateInMsg", "Messages per second (-1: no limit)", -1, { min: -1 }), number("publishThrottlingRateInByte", "Bytes per second (-1: no limit)", -1, { min: -1 })]) },
  { title: "Dispatch rate", about: "What all consumers of a topic get.", topic: "dispatchRate", namespace: "dispatchRate",
    ...record(RATE("dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte"), { relativeToPublishRate: false }) },
  { title: "Subscription dispatch rate", about: "What each subscription gets.", topic: "subscriptionDispatchRate", namespace: "subscriptionDispatchRate",
    ...record(RATE("dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte"), { relativeToPublishRate: false }) },
  { title: "Subscribe rate", about: "How often a consumer may subscribe.", topic: "subscribeRate", namespace: "subscribeRate",
    ...record([number("subscribeThrottlingRatePerConsumer", "Times per period (-1: no limit)", -1, { min: -1 }), number("ratePeriodInSecond", "Period in seconds", 30, { min: 1 })]) },
  { title: "Persistence", about: "Bookies and copies of new ledgers.", topic: "persistence", namespace: "persistence",
    ...record([number("bookkeeperEnsemble", "Bookies of a ledger", 1, { min: 1 }), number("bookkeeperWriteQuorum", "Copies", 1, { min: 1 }), number("bookkeeperAckQuorum", "Copies to wait for", 1, { min: 1 }),
      number("managedLedgerMaxMarkDeleteRate", "Changes of a position per second (0: no limit)", 0, { min: 0, step: "any" })]) },
  { title: "Deduplication", about: "Messages that are sent twice are stored once.", topic: "deduplicationEnabled", namespace: "deduplication", ...toggle("Drop duplicates") },
  { title: "Compaction threshold", about: "Bytes of backlog after which a topic is compacted.", topic: "compactionThreshold", namespace: "compactionThreshold", method: { namespace: "PUT" },
    ...single("Bytes (0: not by itself)", 0, { min: 0 }) },
  { title: "Producers of a topic", about: "The most there may be.", topic: "maxProducers", namespace: "maxProducersPerTopic", ...single("Producers (0: no limit)", 0, { min: 0 }) },
  { title: "Consumers of a topic", about: "The most there may be.", topic: "maxConsumers", namespace: "maxConsumersPerTopic", ...single("Consumers (0: no limit)", 0, { min: 0 }) },
  { title: "Consumers of a subscription", about: "The most there may be.", topic: "maxConsumersPerSubscription", namespace: "maxConsumersPerSubscription", ...single("Consumers (0: no limit)", 0, { min: 0 }) },
  { title: "Subscriptions of a topic", about: "The most there may be.", topic: "maxSubscriptionsPerTopic", namespace: "maxSubscriptionsPerTopic", ...single("Subscriptions (0: no limit)", 0, { min: 0 }) },
  { title: "Unacknowledged, consumer", about: "Messages a consumer may hold.", topic: "maxUnackedMessagesOnConsumer", namespace: "maxUnackedMessagesPerConsumer", ...single("Messages (0: no limit)", 50000, { min: 0 }) },
  { title: "Unacknowledged, subscription", about: "Messages all consumers of a subscription may hold.", topic: "maxUnackedMessagesOnSubscription", namespace: "maxUnackedMessagesPerSubscription", ...single("Messages (0: no limit)", 200000, { min: 0 }) },
  { title: "Subscription expiration", about: "Minutes after which an unused subscription is deleted.", topic: "subscriptionExpirationTime", namespace: "subscriptionExpirationTime", ...single("Minutes (0: never)", 0, { min: 0 }) },
  { title: "Delayed delivery", about: "Whether messages may be delivered later.", topic: "delayedDelivery", namespace: "delayedDelivery",
    ...record([{ name: "active", label: "Delayed delivery is on", type: "checkbox", value: true }, number("tickTime", "Tick in ms", 1000, { min: 1 })]) },
  { title: "Topics of the namespace", about: "The most there may be.", topic: null, namespace: "maxTopicsPerNamespace", ...single("Topics (0: no limit)", 0, { min: 0 }) },
  { title: "Schema compatibility", about: "What a new schema must be compatible with.", topic: "schemaCompatibilityStrategy", namespace: "schemaCompatibilityStrategy", method: { topic: "PUT", namespace: "PUT" },
    removable: { namespace: false },
    fields: [{ name: "value", label: "Strategy", type: "select", value: "FULL", options: ["UNDEFINED", "ALWAYS_INCOMPATIBLE", "ALWAYS_COMPATIBLE", "BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE"].map((each) => [each, each]) }],
    body: ({ value }) => value, show: (found) => found },
];
const TOGETHER = 6;

/** Show all policies of {topic} or of {namespace}. */
export async function policies(root, place, { signal, again }) {
  const level = place.topic ? "topic" : "namespace";
  const base = place.topic ? place.topic.path : at`/admin/v2/namespaces/${place.namespace.split("/")[0]}/${place.namespace.split("/")[1]}`;
  const mine = POLICIES.filter((each) => each[level]);
  const values = new Map();
  const left = [...mine];
  const read = async () => {
    for (let each = left.shift(); each; each = left.shift()) {
      const found = await get(`${base}/${each.read ?? each[level]}`, signal);
      values.set(each, each.type ? found?.[each.type] ?? null : found);
    }
  };
  await Promise.all(Array.from({ length: TOGETHER }, read));
  const isSet = (each) => values.get(each) !== null && values.get(each) !== undefined && values.get(each) !== "UNDEFINED";
  root.append(card(`Policies of the ${level}`, null, table("Policies", [
    { title: "Policy", cell: (each) => h("div", {}, h("div", {}, each.title), h("div", { class: "muted small" }, each.about)) },
    { title: "Value", cell: (each) => (isSet(each) ? [badge("info", "set"), " ", each.show(values.get(each))] : h("span", { class: "muted" }, level === "topic" ? "as the namespace" : "as the broker")) },
    { title: "Actions", cell: (each) => h("div", { class: "actions" },
      h("button", { type: "button", "aria-label": `Edit ${each.title}`, onclick: () => edit(each) }, "Edit"),
      isSet(each) && each.removable?.[level] !== false && h("button", { type: "button", class: "danger-quiet", "aria-label": `Remove ${each.title}`, onclick: () => remove(each) }, "Remove")) },
  ], mine)));

  async function edit(each) {
    const now = values.get(each);
    const known = (field) => (isSet(each) ? (typeof now === "object" ? now[field.name] : now) : field.value);
    const done = await ask({
      title: each.title, text: each.about, fields: each.fields.map((field) => ({ ...field, value: known(field) ?? field.value })), action: "Save",
      run: (found) => {
        const kind = each.type ? `?backlogQuotaType=${each.type}` : "";
        const body = each.body(found);
        const query = each.query && level === "topic" ? `?${each.query}=${body}` : kind;
        return send(each.method?.[level] ?? "POST", `${base}/${each[level]}${query}`, each.query && level === "topic" ? undefined : body);
      },
    });
    if (done) { toast(`${each.title} was saved.`); again(); }
  }

  async function remove(each) {
    const kind = each.type ? `?backlogQuotaType=${each.type}` : "";
    const done = await ask({
      title: `Remove ${each.title}`, text: `The value of the ${level === "topic" ? "namespace" : "broker"} holds then.`, action: "Remove", danger: true,
      run: () => send("DELETE", `${base}/${each[level]}${kind}`),
    });
    if (done) { toast(`${each.title} was removed.`); again(); }
  }
}
