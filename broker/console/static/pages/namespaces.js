// Tenants and their namespaces.

import { at, get, send } from "../api.js";
import { h } from "../dom.js";
import { ask, card, empty, problem, table, toast } from "../parts.js";
import { namespaceLink } from "../topics.js";

export async function show(root, { signal, title, again, go }) {
  title("Namespaces");
  const open = h("form", { class: "toolbar" }, h("label", { class: "field grow" }, h("span", {}, "Open a namespace"),
    h("input", { type: "text", name: "namespace", placeholder: "tenant/namespace", pattern: "[^\\/]+\\/[^\\/]+", required: true, autocomplete: "off" })), h("button", { type: "submit" }, "Open"));
  open.addEventListener("submit", (event) => { event.preventDefault(); go(`namespace/${encodeURIComponent(open.elements.namespace.value.trim())}`); });
  root.append(h("div", { class: "page-head" }, h("div", {}, h("h1", {}, "Namespaces"), h("p", { class: "lead" }, "Tenants, and the namespaces that hold their topics and policies.")),
    h("div", { class: "page-tools" }, h("button", { type: "button", class: "primary", onclick: () => create(again) }, "Create namespace"))), open);
  let tenants;
  try {
    tenants = await get("/admin/v2/tenants", signal);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    root.append(problem(error));
    return;
  }
  for (const tenant of tenants.sort()) {
    const names = await get(at`/admin/v2/namespaces/${tenant}`, signal);
    root.append(card(tenant, null, names.length ? table(`Namespaces of ${tenant}`, [
      { title: "Namespace", cell: (name) => h("a", { href: namespaceLink(name) }, name) },
      { title: "Topics", cell: (name) => h("a", { href: `#/topics?namespace=${encodeURIComponent(name)}` }, "Show topics") },
    ], names.sort()) : empty("This tenant has no namespace.")));
  }
}

async function create(again) {
  const done = await ask({
    title: "Create namespace",
    fields: [{ name: "name", label: "Namespace", value: "", required: true, pattern: "[^\\/]+\\/[^\\/]+", hint: "tenant/namespace; the tenant must exist" }],
    action: "Create",
    run: async ({ name }) => { const [tenant, space] = name.split("/"); await send("PUT", at`/admin/v2/namespaces/${tenant}/${space}`, {}); },
  });
  if (done) { toast(`${done.name} was created.`); again(); }
}
