// The message viewer. It reads by place; nothing is acknowledged.

import { get } from "./api.js";
import { h, put } from "./dom.js";
import { ago, bytes, count, time } from "./format.js";
import { badge, card, empty, problem } from "./parts.js";
import { parse } from "./topics.js";

const LIMIT = 50;

export async function viewer(root, topic, { query, keep, signal }) {
  const partition = h("select", { id: "partition" }, Array.from({ length: topic.partitions }, (_, place) => h("option", { value: place }, `Partition ${place}`)));
  if (query.get("partition")) partition.value = query.get("partition");
  const how = h("select", { id: "how" }, [["latest", "Latest"], ["earliest", "Earliest"], ["time", "From a time"], ["id", "From an id"]].map(([key, text]) => h("option", { value: key }, text)));
  const at = h("input", { id: "at", type: "datetime-local", step: "0.001" });
  const id = h("input", { id: "id", type: "text", placeholder: "ledger:entry", pattern: "\\d+:\\d+(:\\d+)?", autocomplete: "off" });
  const key = h("input", { id: "key", type: "search", placeholder: "Exact key", autocomplete: "off", value: query.get("key") ?? "" });
  const text = h("input", { id: "text", type: "search", placeholder: "In value, key or properties", autocomplete: "off", value: query.get("text") ?? "" });
  const atField = h("label", { class: "field", hidden: true }, h("span", {}, "Published at or after"), at);
  const idField = h("label", { class: "field", hidden: true }, h("span", {}, "Message id"), id);
  const result = h("div", { class: "page" });
  const said = h("p", { class: "muted", role: "status" });
  const submit = h("button", { type: "submit", class: "primary" }, "Read");
  const form = h("form", { class: "toolbar" },
    topic.partitions > 0 && h("label", { class: "field" }, h("span", {}, "Partition"), partition),
    h("label", { class: "field" }, h("span", {}, "Begin"), how), atField, idField,
    h("label", { class: "field grow" }, h("span", {}, "Key"), key), h("label", { class: "field grow" }, h("span", {}, "Text"), text), submit);
  const newer = h("button", { type: "button", disabled: true }, "Later →");
  const older = h("button", { type: "button", disabled: true }, "← Earlier");
  let last = null;

  how.addEventListener("change", () => { atField.hidden = how.value !== "time"; idField.hidden = how.value !== "id"; });
  form.addEventListener("submit", (event) => { event.preventDefault(); begin(); });
  older.addEventListener("click", () => read(last.earlier, "back"));
  newer.addEventListener("click", () => read(last.later, "forward"));
  root.append(
    h("p", { class: "muted" }, "Messages are read by their place. Nothing is acknowledged, and no subscription moves."),
    form, card("Messages", [said, older, newer], result));
  how.value = query.get("from") && !["latest", "earliest"].includes(query.get("from")) ? "id" : query.get("from") || "latest";
  if (how.value === "id") id.value = query.get("from");
  how.dispatchEvent(new Event("change"));
  await begin();

  function begin() {
    if (how.value === "time" && !at.value) { put(result, empty("Choose a time.")); at.focus(); return undefined; }
    const from = { latest: "latest", earliest: "earliest", time: String(new Date(at.value).getTime()), id: id.value.trim() }[how.value];
    return read(from, "forward");
  }

  async function read(from, direction) {
    const path = topic.partitions ? parse(`${topic.name}-partition-${partition.value}`).messages : topic.messages;
    const wanted = new URLSearchParams({ from, direction, limit: LIMIT, shown: 600 });
    if (key.value) wanted.set("key", key.value);
    if (text.value) wanted.set("text", text.value);
    const kept = new URLSearchParams(Object.entries({ from: from === "latest" ? "" : from, key: key.value, text: text.value, partition: topic.partitions ? partition.value : "" }).filter(([, value]) => value));
    keep(kept);
    submit.setAttribute("aria-busy", "true");
    try {
      last = await get(`${path}?${wanted}`, signal);
      older.disabled = !last.earlier;
      newer.disabled = !last.later;
      said.textContent = last.more ? `${count(last.messages.length)} found, ${count(last.looked)} entries searched; go on with Earlier or Later`
        : `${count(last.messages.length)} messages, ${count(last.entries)} entries in the topic`;
      put(result, last.messages.length ? h("ol", { class: "messages", "aria-label": "Messages" }, last.messages.map((each) => message(each, path)))
        : empty(last.more ? "Nothing found so far." : "No messages here.", last.entries ? "Change the begin or the search." : "The topic is empty."));
    } catch (error) {
      if (!signal.aborted) { put(result, problem(error)); said.textContent = ""; }
    } finally {
      submit.removeAttribute("aria-busy");
    }
  }

  function message(each, path) {
    const place = `${each.ledger}:${each.entry}${each.batchIndex === null || each.batchIndex === undefined ? "" : `:${each.batchIndex}`}`;
    const body = h("div", { class: "message-more" });
    const details = h("details", { class: "message" },
      h("summary", {},
        h("span", { class: "mono message-id" }, place),
        h("span", { class: "message-time" }, time(each.publishMs)),
        h("span", { class: "message-key" }, each.key ? h("code", {}, each.key.text ?? each.key.base64) : h("span", { class: "muted" }, "no key")),
        h("span", { class: "message-value mono" }, each.value ? line(each.value) : ""),
        h("span", { class: "message-marks" }, marks(each))),
      body);
    details.addEventListener("toggle", () => { if (details.open && !body.firstChild) open(body, each, place, path); });
    return h("li", {}, details);
  }

  async function open(body, each, place, path) {
    let whole = each;
    if (each.value?.cut) {
      try {
        const found = await get(`${path}?${new URLSearchParams({ from: place, limit: 1, shown: 1 << 18 })}`, signal);
        whole = found.messages[0] ?? each;
      } catch (error) {
        if (!signal.aborted) body.append(problem(error));
      }
    }
    const pairs = [["Message id", place], ["Published", `${time(whole.publishMs)} (${ago(whole.publishMs)})`], ["Event time", time(whole.eventMs)],
      ["Producer", whole.producer], ["Sequence id", String(whole.sequenceId)], ["Size", bytes(whole.value?.bytes)], ["Entry", bytes(whole.entryBytes)], ["Compression", whole.compression],
      whole.batch !== null && ["Batch", `${(whole.batchIndex ?? 0) + 1} of ${whole.batch}`], whole.orderingKey && ["Ordering key", whole.orderingKey],
      whole.deliverAtMs && ["Deliver at", time(whole.deliverAtMs)], whole.chunk && ["Chunk", `${whole.chunk.number + 1} of ${whole.chunk.of}`],
      whole.transaction && ["Transaction", whole.transaction], whole.index !== undefined && whole.index !== null && ["Index", String(whole.index)]].filter(Boolean);
    put(body,
      whole.problem && h("div", { class: "notice warn" }, h("p", {}, `! ${whole.problem}`)),
      whole.value?.problem && h("div", { class: "notice warn" }, h("p", {}, `! ${whole.value.problem}`)),
      h("dl", { class: "facts small-facts" }, pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
      Object.keys(whole.properties ?? {}).length > 0 && h("div", {}, h("h3", {}, "Properties"),
        h("dl", { class: "pairs" }, Object.entries(whole.properties).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))))),
      h("div", {}, h("h3", {}, "Value ", whole.value?.schema && badge("info", whole.value.schema), " ", badge("plain", whole.value?.kind ?? "none")),
        whole.value?.kind === "null" ? h("p", { class: "muted" }, "No value (a tombstone).") : h("pre", { class: "code", tabindex: "0" }, whole.value?.text ?? ""),
        whole.value?.cut && h("p", { class: "muted small" }, "Only the begin is shown.")));
  }
}

function line(value) {
  return value.kind === "null" ? "(no value)" : value.text.replace(/\s+/g, " ").slice(0, 200);
}

function marks(each) {
  return [each.problem && badge("warn", "unreadable", each.problem), each.encrypted && badge("info", "encrypted"), each.aborted && badge("bad", "aborted"),
    each.uncommitted && badge("warn", "not committed"), each.marker !== undefined && badge("plain", "marker"), each.value?.problem && badge("warn", "schema does not fit")];
}
