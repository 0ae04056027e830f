// Pictures of a cluster, in SVG: each has a text beside it, and nothing in it is told by colour alone.

import { s } from "./dom.js";
import { count, rate } from "./format.js";

const FULL = 2 ** 32;
const COLOURS = 5;

/** The letter of a broker or bookie in pictures: A, B, ... Z, A2 ... */
export const letter = (place) => (place < 0 ? "?" : `${String.fromCharCode(65 + (place % 26))}${place < 26 ? "" : Math.floor(place / 26) + 1}`);

function point(share, radius) {
  const angle = share * 2 * Math.PI - Math.PI / 2;
  return [(radius * Math.cos(angle)).toFixed(2), (radius * Math.sin(angle)).toFixed(2)];
}

/** Both edges in two halves: one arc of a whole circle would end where it begins, and not be drawn. */
function arc(from, to, inner, outer) {
  const edge = (radius, sweep, ...ends) => ends.map((end) => `A${radius},${radius} 0 0 ${sweep} ${point(end, radius)}`).join(" ");
  const middle = (from + to) / 2;
  return `M${point(from, outer)} ${edge(outer, 1, middle, to)} L${point(to, inner)} ${edge(inner, 0, middle, from)} Z`;
}

/**
 * The bundles of a namespace as a ring of hash ranges: arcs with the letter of their broker, points for topics.
 * An arc is a button; `choose(range)` is called for it.
 */
export function ring({ bundles, brokers, topics, chosen, choose, name }) {
  const svg = s("svg", { class: "ring", viewBox: "-110 -110 220 220", role: "group", "aria-label": `Bundles of ${name} as a ring` });
  for (const each of bundles) {
    const [from, to] = [each.low / FULL, (each.high + (each.high === FULL - 1 ? 1 : 0)) / FULL];
    const place = each.broker ? brokers.indexOf(each.broker) : -1;
    const text = `${each.range}, ${each.broker ? `served by ${each.broker}` : "no owner"}, ${count(topics.filter((topic) => topic.range === each.range).length)} topics`
      + `${each.reported ? `, ${rate(each.messagesIn)} in, ${rate(each.messagesOut)} out` : ""}`;
    const on = each.range === chosen;
    const press = () => choose(on ? null : each.range);
    const group = s("g", {
      class: `slice ${place < 0 ? "none" : `series-${(place % COLOURS) + 1}`}${on ? " on" : ""}`, role: "button", tabindex: "0",
      "aria-pressed": String(on), "aria-label": text, onclick: press,
      onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); press(); } },
    }, s("title", {}, text), s("path", { d: arc(from, to, on ? 60 : 66, 94) }));
    if (to - from > 0.02) {
      const [x, y] = point((from + to) / 2, 80);
      group.append(s("text", { x, y, class: "slice-text", "aria-hidden": "true" }, place < 0 ? "–" : letter(place)));
    }
    svg.append(group);
  }
  for (const topic of topics) {
    const [x, y] = point(topic.place / FULL, 101);
    svg.append(s("circle", { class: "topic-point", cx: x, cy: y, r: 2.2, "aria-hidden": "true" }));
  }
  svg.append(
    s("text", { class: "ring-title", x: 0, y: -4, "aria-hidden": "true" }, count(bundles.length)),
    s("text", { class: "ring-sub", x: 0, y: 14, "aria-hidden": "true" }, bundles.length === 1 ? "bundle" : "bundles"));
  return svg;
}

/** A bar of parts: bar([{value, kind, text}], most, label). */
export function bar(parts, most, label) {
  const svg = s("svg", { class: "hbar", viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img", "aria-label": label });
  let x = 0;
  svg.append(s("rect", { class: "hbar-ground", x: 0, y: 0, width: 100, height: 10 }));
  for (const part of parts) {
    const width = most ? (part.value / most) * 100 : 0;
    svg.append(s("rect", { class: part.kind, x: x.toFixed(2), y: 0, width: width.toFixed(2), height: 10 }, s("title", {}, part.text ?? "")));
    x += width;
  }
  return svg;
}
