// Names of topics, and paths of the admin REST for them.

import { at } from "./api.js";

/** "persistent://t/n/topic" → {domain, tenant, namespace, local, path, ...}; null: it is none. */
export function parse(name) {
  const found = /^(persistent|non-persistent):\/\/([^/]+)\/([^/]+)\/(.+)$/.exec(name);
  if (!found) return null;
  const [, domain, tenant, space, local] = found;
  return {
    name, domain, tenant, local, namespace: `${tenant}/${space}`,
    persistent: domain === "persistent",
    path: at`/admin/v2/${domain}/${tenant}/${space}/${local}`,
    schemas: at`/admin/v2/schemas/${tenant}/${space}/${local}`,
    messages: at`/console/api/messages/${tenant}/${space}/${local}`,
  };
}

export const topicLink = (name, tab) => `#/topic/${encodeURIComponent(name)}${tab ? `/${tab}` : ""}`;
export const namespaceLink = (name) => `#/namespace/${encodeURIComponent(name)}`;
