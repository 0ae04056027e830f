// Shared by the pages of ledgers and bookies.

import { at, follow, send } from "../api.js";
import { h, put } from "../dom.js";
import { count, duration } from "../format.js";
import { badge, meter, problem } from "../parts.js";

const BASE = "/console/api/cluster";

/** Arguments of `badge` by the state of a bookie. */
export const STATES = {
  writable: ["good", "writable", "it takes new entries"],
  "read-only": ["warn", "read-only", "it serves its copies and takes no new entries"],
  gone: ["bad", "not registered", "it has a cookie and does not run"],
  unknown: ["bad", "unknown", "ledgers name it; it has no cookie and does not run"],
};

/** States of a ledger. */
export const HARMS = {
  NONE: { text: "all copies", badge: () => badge("good", "all copies") },
  BELOW_WRITE_QUORUM: { text: "lacks copies", badge: () => badge("warn", "lacks copies", "some entry has fewer copies than the write quorum") },
  BELOW_ACK_QUORUM: { text: "below ack quorum", badge: () => badge("bad", "below ack quorum", "some entry has fewer copies than were acknowledged") },
  UNREADABLE: { text: "cannot be read", badge: () => badge("bad", "cannot be read", "no bookie with some entry answers") },
};

/** The user of a ledger; a topic is a link to its page. */
export function ownerLink(owner) {
  if (owner.kind === "other") return h("span", { class: "muted" }, "no topic");
  const name = owner.name.replace(/^persistent:\/\//, "");
  const link = owner.name.includes("://") ? h("a", { href: at`#/topic/${owner.name}` }, name) : name;
  if (owner.kind === "topic") return link;
  return [h("span", { class: "muted" }, owner.kind === "cursor" ? `position of ${owner.part} on ` : `${owner.kind} of `), link];
}

/** "Examined N of M", live, with a button that reads again. `done()` is called when a survey has ended. */
export function surveyLine(place, context, done) {
  let running = false;

  function draw(survey) {
    const total = survey.total;
    const parts = [`Examined ${count(survey.examined)} of ${total === null ? `at least ${count(survey.listed)}` : count(total)} ledgers`];
    if (survey.unreadable) parts.push(`${count(survey.unreadable)} have metadata that cannot be read`);
    if (total !== null && total > survey.limit) parts.push(`at most ${count(survey.limit)} are examined`);
    if (!survey.running) parts.push(`begun ${duration((Date.now() - survey.startedMs) / 1000)} ago`);
    put(place,
      h("div", { class: "toolbar" },
        h("div", { class: "grow" }, survey.running && total !== null && total > 0
          ? meter(survey.examined / total, parts.join("; "), { warn: 2, label: "Ledgers examined" }) : h("p", { class: "muted" }, parts.join("; "))),
        h("button", { type: "button", disabled: survey.running, onclick: start }, survey.running ? "Reading…" : "Read again")),
      survey.problem && problem(`It ended early: ${survey.problem}`));
  }

  function note(survey) {
    draw(survey);
    if (running && !survey.running) done(survey);
    running = survey.running;
  }

  async function start() {
    try {
      const survey = await send("POST", `${BASE}/survey`, undefined, context.signal);
      running = true;
      draw(survey);
      if (!survey.running) { running = false; done(survey); }
    } catch (error) {
      if (!context.signal.aborted) put(place, problem(error));
    }
  }

  return {
    async start() {
      await start();
      follow(`${BASE}/survey/events`, { data: note, problem(error) { put(place, problem(error)); } }, context.signal);
    },
  };
}
