// Parts of pages: states, badges, tables, sparklines, dialogs, messages.

import { ApiError } from "./api.js";
import { add, h, put, s, setText } from "./dom.js";

/** Say a change to screen readers. */
export function announce(text) {
  setText(document.getElementById("live"), text);
}

/** Show a message for some seconds; errors stay until they are closed. kind: "good" or "bad". */
export function toast(text, kind = "good") {
  const region = document.getElementById("toasts");
  const box = h("div", { class: `toast ${kind}`, role: kind === "bad" ? "alert" : "status" },
    h("span", { class: "mark", "aria-hidden": "true" }, kind === "bad" ? "!" : "✓"),
    h("span", {}, text),
    h("button", { type: "button", class: "quiet icon", "aria-label": "Close message", onclick: () => box.remove() }, "×"));
  while (region.children.length >= 4) region.firstChild.remove();
  region.append(box);
  if (kind !== "bad") setTimeout(() => box.remove(), 6000);
}

/** A word with a mark, so that it does not depend on its colour. kind: good, warn, bad, info, plain. */
export function badge(kind, text, title) {
  const mark = { good: "✓", warn: "!", bad: "✕", info: "•", plain: "" }[kind];
  return h("span", { class: `badge ${kind}`, title }, mark && h("span", { class: "mark", "aria-hidden": "true" }, mark), text);
}

/** What is shown in place of data. */
export const empty = (title, ...more) => h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), ...more);

/** An error in plain words: what is missing and what is forbidden look the same. */
export function problem(error) {
  const status = error instanceof ApiError ? error.status : 0;
  const text = error instanceof Error ? error.message : String(error);
  const title = {
    401: "Not permitted, or no valid token", 403: "Not permitted", 404: "Not found, or not permitted",
  }[status] || "This cannot be shown now";
  return h("div", { class: "notice bad", role: "alert" },
    h("p", { class: "notice-title" }, h("span", { class: "mark", "aria-hidden": "true" }, "!"), title),
    h("p", {}, text),
    [401, 403].includes(status) && h("button", {
      type: "button", onclick: () => document.dispatchEvent(new CustomEvent("ask-token")),
    }, "Enter a token"));
}

/** A row of facts: facts([["Storage", "3 MB"], ...]). */
export const facts = (pairs) => h("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, value, title]) =>
  h("div", { title }, h("dt", {}, name), h("dd", {}, value))));

/** A card with a title; `tools` stand at its right. */
export const card = (title, tools, ...children) => h("section", { class: "card", "aria-label": title },
  h("div", { class: "card-head" }, h("h2", {}, title), h("div", { class: "card-tools" }, tools)), ...children);

/**
 * A table of rows: columns are {title, cell: row => node or text, number: true, key: "for sorting"}.
 * `sort` is {key, down, by(key)}; the head of a column with a key sorts.
 */
export function table(caption, columns, rows, { sort, none = "Nothing here." } = {}) {
  if (!rows.length) return empty(none);
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
    h("table", {}, h("caption", { class: "visually-hidden" }, caption),
      h("thead", {}, h("tr", {}, columns.map((each) => head(each, sort)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, columns.map((each, place) =>
        h(place === 0 ? "th" : "td", { class: each.number ? "number" : null, scope: place === 0 ? "row" : null }, each.cell(row))))))));
}

function head(column, sort) {
  const on = sort && column.key && sort.key === column.key;
  return h("th", { scope: "col", class: column.number ? "number" : null, "aria-sort": on ? (sort.down ? "descending" : "ascending") : null },
    sort && column.key
      ? h("button", { type: "button", class: "sort", onclick: () => sort.by(column.key) }, column.title,
        h("span", { "aria-hidden": "true", class: "arrow" }, on ? (sort.down ? "↓" : "↑") : "↕"))
      : column.title);
}

/** A small curve of the latest values, of which the last is said in words next to it. */
export function spark(values, { width = 96, height = 24, label } = {}) {
  const svg = s("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label || "rate over time" });
  drawSpark(svg, values, width, height);
  return svg;
}

/** Draw values into an existing sparkline. */
export function drawSpark(svg, values, width = 96, height = 24) {
  const max = Math.max(...values, 1e-9);
  const step = width / Math.max(values.length - 1, 1);
  const y = (value) => (height - 2 - (value / max) * (height - 4)).toFixed(1);
  const points = values.map((value, place) => `${(place * step).toFixed(1)},${y(value)}`);
  if (svg.dataset.points === points.join(" ")) return;
  svg.dataset.points = points.join(" ");
  if (points.length < 2) { svg.replaceChildren(); return; }
  svg.replaceChildren(
    s("path", { class: "area", d: `M0,${height} L${points.join(" L")} L${width},${height} Z` }),
    s("polyline", { class: "line", points: points.join(" ") }));
}

/** A bar for a share from 0 to 1, with its text; beyond `warn` it says so. */
export function meter(share, text, { warn = 0.85, label } = {}) {
  const element = h("div", { class: `meter${share >= warn ? " high" : ""}`, role: "meter", "aria-valuemin": 0, "aria-valuemax": 100,
    "aria-valuenow": Math.round(share * 100), "aria-valuetext": text, "aria-label": label || text });
  const bar = h("span", { class: "bar" });
  bar.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return add(element, [h("span", { class: "track" }, bar), h("span", { class: "meter-text" }, share >= warn ? "! " : "", text)]);
}

/** Tabs: tabs("Parts", [["key", "Title"]...], current, key => ...). */
export function tabs(label, items, current, choose) {
  const list = h("div", { class: "tabs", role: "tablist", "aria-label": label });
  for (const [key, title] of items) {
    const on = key === current;
    list.append(h("button", {
      type: "button", role: "tab", id: `tab-${key}`, "aria-selected": String(on), "aria-controls": "panel", tabindex: on ? "0" : "-1",
      onclick: () => choose(key),
    }, title));
  }
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const all = [...list.children];
    const next = all[(all.indexOf(document.activeElement) + step + all.length) % all.length];
    next.focus();
    next.click();
    event.preventDefault();
  });
  return list;
}

let names = 0;

/**
 * Ask in a dialog; return the values of the fields by name, or null if it was closed.
 * fields: {name, label, type: text|number|select|checkbox|textarea|time, value, options: [[value, text]], hint, required, min, max, pattern}
 * typeName: this must be typed before the button works. run(values): the action; its error stays in the dialog.
 */
export function ask({ title, text, fields = [], typeName, action = "OK", danger = false, run }) {
  return new Promise((resolve) => {
    const number = (names += 1);
    const inputs = fields.map((field) => [field, input(field, `f${number}-${field.name}`)]);
    const failed = h("div", { role: "alert" });
    const typed = typeName && h("input", { id: `f${number}-typed`, type: "text", autocomplete: "off", spellcheck: "false", required: true });
    const go = h("button", { type: "submit", class: danger ? "danger" : "primary", disabled: Boolean(typeName) }, action);
    if (typed) typed.addEventListener("input", () => { go.disabled = typed.value !== typeName; });
    const form = h("form", { method: "dialog", novalidate: false },
      h("h2", { id: `f${number}-title` }, title),
      text && h("p", { class: "dialog-text" }, text),
      inputs.map(([field, element]) => label(field, element, number)),
      typed && h("label", { class: "field" }, h("span", {}, "Type ", h("code", {}, typeName), " to confirm"), typed),
      failed,
      h("div", { class: "dialog-tools" },
        h("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Cancel"), go));
    const dialog = h("dialog", { "aria-labelledby": `f${number}-title` }, form);
    const before = document.activeElement;
    let answer = null;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const values = Object.fromEntries(inputs.map(([field, element]) => [field.name, valueOf(field, element)]));
      go.disabled = true;
      go.setAttribute("aria-busy", "true");
      try {
        if (run) await run(values);
        answer = values;
        dialog.close();
      } catch (error) {
        put(failed, problem(error));
        go.disabled = false;
      } finally {
        go.removeAttribute("aria-busy");
      }
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (before?.isConnected) before.focus();
      resolve(answer);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

function label(field, element, number) {
  const hint = field.hint && h("span", { class: "hint", id: `f${number}-${field.name}-hint` }, field.hint);
  if (hint) element.setAttribute("aria-describedby", hint.id);
  const name = h("label", { for: element.id }, field.label);
  return h("div", { class: field.type === "checkbox" ? "field check" : "field" }, field.type === "checkbox" ? [element, name] : [name, element], hint);
}

function input(field, id) {
  const { type = "text", value, required, min, max, pattern } = field;
  if (type === "select") {
    return h("select", { id, required }, field.options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)));
  }
  if (type === "textarea") return h("textarea", { id, required, rows: 8, spellcheck: "false", value: value ?? "" });
  if (type === "checkbox") return h("input", { id, type, checked: Boolean(value) });
  const kind = type === "time" ? "datetime-local" : type;
  return h("input", {
    id, type: kind, required, min, max, pattern, step: type === "time" ? "0.001" : type === "number" ? field.step || "1" : null,
    autocomplete: "off", spellcheck: "false", value: value ?? "",
  });
}

function valueOf(field, element) {
  if (field.type === "checkbox") return element.checked;
  if (field.type === "number") return element.value === "" ? null : Number(element.value);
  if (field.type === "time") return element.value === "" ? null : new Date(element.value).getTime();
  return element.value;
}
