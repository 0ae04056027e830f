// All pages. To add one, add a line; see docs/console.md.
// path: of the address behind "#/"; {x} takes one part, {x...} the rest. nav: text of its link; key: g, then the key, goes there.

export const PAGES = [
  { path: "topics", nav: "Topics", key: "t", load: () => import("./pages/topics.js") },
  { path: "topic/{topic}/{tab}", load: () => import("./pages/topic.js") },
  { path: "topic/{topic}", load: () => import("./pages/topic.js") },
  { path: "namespaces", nav: "Namespaces", key: "n", load: () => import("./pages/namespaces.js") },
  { path: "namespace/{namespace}", load: () => import("./pages/namespace.js") },
];

/** Return the page of an address and its parameters, which are unescaped; null: there is none. */
export function find(address) {
  const parts = address.split("/").filter(Boolean);
  for (const page of PAGES) {
    const wanted = page.path.split("/");
    if (wanted.length !== parts.length) continue;
    const params = {};
    if (wanted.every((each, place) => {
      if (!each.startsWith("{")) return each === parts[place];
      try { params[each.slice(1, -1)] = decodeURIComponent(parts[place]); } catch { return false; }
      return true;
    })) return { page, params };
  }
  return null;
}
