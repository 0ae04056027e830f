// One namespace: its policies, and the way to its topics and bundles.

import { at, send } from "../api.js";
import { h } from "../dom.js";
import { ask, toast } from "../parts.js";
import { policies } from "../policies.js";

export async function show(root, context) {
  const { params, title, go } = context;
  const name = params.namespace;
  const [tenant, space] = name.split("/");
  title(name);
  const path = at`/admin/v2/namespaces/${tenant}/${space ?? ""}`;
  root.append(h("div", { class: "page-head" },
    h("div", {}, h("p", { class: "crumbs" }, h("a", { href: "#/namespaces" }, "Namespaces")), h("h1", {}, name)),
    h("div", { class: "page-tools" },
      h("a", { class: "button", href: `#/topics?namespace=${encodeURIComponent(name)}` }, "Topics"),
      h("button", { type: "button", class: "danger-quiet", onclick: async () => {
        if (await ask({
          title: "Delete namespace", text: `${name} must have no topics.`, typeName: name, action: "Delete", danger: true,
          run: async () => { await send("DELETE", path); toast(`${name} was deleted.`); },
        })) go("namespaces");
      } }, "Delete"))));
  await policies(root, { namespace: name }, context);
}
