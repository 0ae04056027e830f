import { h } from "../dom.js";

export async function show(root, { title }) {
  title("topic");
  root.append(h("h1", {}, "topic"));
}
