// A list of which only the visible rows exist: 100,000 rows cost as much as 30. Rows are fetched in parts.

import { h } from "./dom.js";

export const PART = 100;
const PARTS_MAX = 12;

/**
 * options: {rowHeight, render(row, element), make() => element of a row, fetch(part, signal) => {rows, matching}, counted(n), failed(error), label}
 * Rows are kept by part, at most PARTS_MAX parts; `visible(first, last)` is called when others become visible.
 */
export class VirtualList {
  constructor(options) {
    this.options = options;
    this.parts = new Map();
    this.waiting = new Set();
    this.matching = 0;
    this.elements = [];
    this.body = h("div", { class: "virtual-body" });
    this.element = h("div", { class: "virtual", tabindex: "0", role: "rowgroup" }, this.body);
    this.element.addEventListener("scroll", () => this.draw(), { passive: true });
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(this.element);
    options.signal.addEventListener("abort", () => this.resized.disconnect(), { once: true });
  }

  /** First and last visible row. */
  range() {
    const { rowHeight } = this.options;
    const first = Math.floor(this.element.scrollTop / rowHeight);
    const many = Math.ceil(this.element.clientHeight / rowHeight) + 1;
    return [Math.max(0, first), Math.max(0, Math.min(this.matching, first + many) - 1)];
  }

  /** Forget all rows and begin again at the first one. */
  reset() {
    this.parts.clear();
    this.waiting.clear();
    this.element.scrollTop = 0;
    return this.need(0);
  }

  /** Take the rows of a part that has come. */
  take(part, answer) {
    this.parts.delete(part);
    this.parts.set(part, answer.rows);
    const [first, last] = this.range();
    for (const old of this.parts.keys()) {
      if (this.parts.size <= PARTS_MAX) break;
      if (old < Math.floor(first / PART) - 1 || old > Math.floor(last / PART) + 1) this.parts.delete(old);
    }
    if (this.matching !== answer.matching) {
      this.matching = answer.matching;
      const height = Math.max(1, this.matching) * this.options.rowHeight;
      this.body.style.height = `${height}px`;
      this.element.style.height = `min(64vh, ${height}px)`;
    }
    this.options.counted?.(answer);
    this.draw();
  }

  async need(part) {
    if (this.waiting.has(part)) return;
    const { fetch, failed, signal } = this.options;
    const waiting = this.waiting;
    waiting.add(part);
    try {
      const answer = await fetch(part);
      if (!signal.aborted && this.waiting.has(part)) this.take(part, answer);
    } catch (error) {
      if (!signal.aborted) failed(error);
    } finally {
      waiting.delete(part);
    }
  }

  draw() {
    const { rowHeight, make, render } = this.options;
    const [first, last] = this.range();
    const many = this.matching ? last - first + 1 : 0;
    while (this.elements.length < many) {
      const element = make();
      element.style.position = "absolute";
      element.style.height = `${rowHeight}px`;
      this.elements.push(element);
      this.body.append(element);
    }
    while (this.elements.length > many) this.elements.pop().remove();
    for (let place = 0; place < many; place += 1) {
      const number = first + place;
      const part = Math.floor(number / PART);
      const row = this.parts.get(part)?.[number % PART];
      const element = this.elements[place];
      element.style.transform = `translateY(${number * rowHeight}px)`;
      element.setAttribute("aria-rowindex", String(number + 2));
      if (!this.parts.has(part)) this.need(part);
      render(row, element);
    }
    this.options.measured?.(this.element.offsetWidth - this.element.clientWidth);
    const now = `${Math.floor(first / PART)}`;
    if (now !== this.shown && this.parts.size) { this.shown = now; this.options.visible?.(Math.floor(first / PART)); }
  }
}
