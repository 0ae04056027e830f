import { h } from "../dom.js";

export async function show(root, { title }) {
  title("topics");
  root.append(h("h1", {}, "topics"));
}
