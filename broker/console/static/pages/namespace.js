import { h } from "../dom.js";

export async function show(root, { title }) {
  title("namespace");
  root.append(h("h1", {}, "namespace"));
}
