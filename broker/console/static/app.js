// The frame: addresses, navigation, theme, token, shortcuts.

import { token } from "./api.js";
import { h, put } from "./dom.js";
import { announce, ask, empty, problem } from "./parts.js";
import { PAGES, find } from "./pages.js";

const main = document.getElementById("main");
let leave = new AbortController();
let number = 0;

/** Go to an address such as "topics?search=x". */
export function go(address) {
  location.hash = `#/${address}`;
}

async function show() {
  leave.abort();
  leave = new AbortController();
  const mine = (number += 1);
  const [address, search = ""] = asked();
  if (!address) { location.replace("#/topics"); return; }
  const found = find(address);
  mark(found?.page);
  const root = h("div", { class: "page" });
  put(main, root);
  if (!found) {
    title("Not found");
    root.append(h("h1", {}, "Not found"), empty("There is no such page.", h("a", { href: "#/topics" }, "Topics")));
    return;
  }
  const context = {
    params: found.params,
    query: new URLSearchParams(search),
    signal: leave.signal,
    go,
    title,
    // Change the query without leaving the page. Another page may be asked for already, and come with the next event.
    keep(query) {
      if (mine !== number || asked()[0] !== address) return;
      const text = String(query);
      history.replaceState(null, "", `#/${address}${text ? `?${text}` : ""}`);
    },
    again: show,
  };
  try {
    const module = await found.page.load();
    if (mine !== number) return;
    await module.show(root, context);
  } catch (error) {
    if (mine !== number || error.name === "AbortError") return;
    if (error.status === 401) document.getElementById("account").hidden = false;
    if (!root.querySelector("h1")) root.append(h("h1", {}, document.title.split(" · ")[0]));
    root.append(problem(error));
  }
  if (mine === number) announce(`${document.title.split(" · ")[0]} shown`);
}

/** The address of the page that is asked for, and its query. */
function asked() {
  return location.hash.replace(/^#\/?/, "").split("?");
}

function title(text) {
  document.title = `${text} · Quire`;
}

function mark(page) {
  const top = page?.path.split("/")[0];
  for (const link of document.querySelectorAll("#nav a")) {
    const on = link.dataset.path === top || link.dataset.path === `${top}s`;
    if (on) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
}

function navigation() {
  put(document.getElementById("nav"), PAGES.filter((page) => page.nav).map((page) =>
    h("a", { href: `#/${page.path}`, dataset: { path: page.path }, title: page.key && `g ${page.key}` }, page.nav)));
}

// Theme

const THEMES = { "": ["◐", "as the system"], light: ["☀", "light"], dark: ["☾", "dark"] };
const NEXT = { "": "dark", dark: "light", light: "" };

function theme(value, say) {
  if (value) document.documentElement.dataset.theme = value; else delete document.documentElement.dataset.theme;
  const button = document.getElementById("theme");
  button.textContent = THEMES[value][0];
  button.setAttribute("aria-label", `Theme: ${THEMES[value][1]}`);
  button.title = button.getAttribute("aria-label");
  if (say) announce(button.title);
}

function nextTheme() {
  const value = NEXT[document.documentElement.dataset.theme ?? ""];
  try { if (value) localStorage.setItem("quire-theme", value); else localStorage.removeItem("quire-theme"); } catch { /* this tab only */ }
  theme(value, true);
}

// Token

async function askToken() {
  const found = await ask({
    title: "Token",
    text: "This server asks for credentials. The token stays in this tab and is forgotten when it is closed. "
      + "For a user name and password, enter “Basic ” and their base64.",
    fields: [{ name: "token", label: "Token", type: "password", value: token.get() }],
    action: "Use token",
  });
  if (found) token.set(found.token.trim());
}

// Shortcuts

async function goTo() {
  const found = await ask({
    title: "Go to",
    text: "A topic, such as persistent://public/default/orders, or part of the name of one.",
    fields: [{ name: "name", label: "Topic", value: "", required: true }],
    action: "Go",
  });
  if (!found) return;
  const name = found.name.trim();
  if (/^(persistent|non-persistent):\/\/[^/]+\/[^/]+\/.+/.test(name)) go(`topic/${encodeURIComponent(name)}`);
  else go(`topics?search=${encodeURIComponent(name)}`);
}

function shortcuts() {
  const rows = [["/", "Go to a topic"], ["g, then a letter", PAGES.filter((page) => page.key).map((page) => `${page.key}: ${page.nav}`).join(", ")],
    ["d", "Next theme"], ["r", "Read the page again"], ["?", "This help"], ["Esc", "Close a dialog"]];
  const dialog = h("dialog", { "aria-labelledby": "help-title" },
    h("h2", { id: "help-title" }, "Keyboard shortcuts"),
    h("dl", { class: "keys" }, rows.map(([key, text]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)))),
    h("div", { class: "dialog-tools" }, h("button", { type: "button", class: "primary", onclick: () => dialog.close() }, "Close")));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

let went = -Infinity;

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.closest("input, textarea, select, [contenteditable]")) return;
  if (performance.now() - went < 1500) {
    went = -Infinity;
    const page = PAGES.find((each) => each.key === event.key);
    if (page) go(page.path);
    return;
  }
  const run = { "/": goTo, "?": shortcuts, d: nextTheme, r: show, g: () => { went = performance.now(); } }[event.key];
  if (!run) return;
  event.preventDefault();
  run();
}

// Start

navigation();
theme(document.documentElement.dataset.theme ?? "", false);
document.getElementById("theme").addEventListener("click", nextTheme);
document.getElementById("find").addEventListener("click", goTo);
document.getElementById("help").addEventListener("click", shortcuts);
document.getElementById("account").addEventListener("click", askToken);
document.getElementById("skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
document.addEventListener("keydown", pressed);
document.addEventListener("ask-token", askToken);
document.addEventListener("token", show);
window.addEventListener("hashchange", () => { show(); main.focus({ preventScroll: true }); window.scrollTo(0, 0); });
if (token.get()) document.getElementById("account").hidden = false;
show();
