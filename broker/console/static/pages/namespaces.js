import { h } from "../dom.js";

export async function show(root, { title }) {
  title("namespaces");
  root.append(h("h1", {}, "namespaces"));
}
