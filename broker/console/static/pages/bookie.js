// What if this bookie went: ledgers below their quorums, bytes to copy, room elsewhere, topics.

import { at, get } from "../api.js";
import { h, put } from "../dom.js";
import { bytes, count } from "../format.js";
import { badge, card, facts, problem, table } from "../parts.js";
import { bar } from "../pictures.js";
import { HARMS, STATES, ownerLink, surveyLine } from "./cluster.js";

const BASE = "/console/api/cluster";
const VERDICTS = {
  nothing: ["good", "✓", "Nothing would be missing", "No examined ledger has copies on this bookie."],
  repairable: ["good", "✓", "Every entry would keep as many copies as were acknowledged", "Auto recovery can make the missing copies on the other bookies."],
  "at-risk": ["warn", "!", "Some entries would have fewer copies than were acknowledged", "They stay readable, and auto recovery can make the missing copies on the other bookies. Another loss before that may lose entries."],
  "no-room": ["bad", "✕", "There would not be enough other bookies", "Entries stay readable, but the placement policy finds no bookie for some missing copies. Add a bookie first."],
  lost: ["bad", "✕", "Some entries could not be read any more", "This bookie has the last copies that answer. Do not take it away."],
};

export async function show(root, context) {
  const { bookie } = context.params;
  context.title(`What if ${bookie} went?`);
  const lead = h("p", { class: "lead" });
  const survey = h("div", { class: "card-body" });
  const place = h("div", { class: "page" });
  root.append(
    h("div", { class: "page-head" }, h("div", {},
      h("p", { class: "crumbs" }, h("a", { href: "#/bookies" }, "Bookies")),
      h("h1", {}, `What if ${bookie} went?`), lead),
    h("div", { class: "page-tools" }, h("a", { class: "button", href: `#/ledgers?bookie=${encodeURIComponent(bookie)}` }, "Its ledgers"))),
    card("Examined", null, survey), place);

  async function read() {
    try {
      draw(place, lead, await get(BASE + at`/loss/${bookie}`, context.signal));
    } catch (error) {
      if (!context.signal.aborted) put(place, problem(error));
    }
  }

  await surveyLine(survey, context, read).start();
  await read();
}

function draw(place, lead, found) {
  put(lead, badge(...STATES[found.state]), " Nothing is changed by this page: it computes the answer from the metadata of ledgers.");
  const whole = found.total !== null && found.examined >= found.total && !found.survey.running;
  const of = `${count(found.examined)} of ${found.total === null ? `at least ${count(found.survey.listed)}` : count(found.total)} ledgers`;
  const [kind, mark, title, text] = VERDICTS[found.verdict];
  const rows = [["belowWriteQuorum", "Fewer copies than the write quorum"], ["belowAckQuorum", "Fewer copies than were acknowledged"], ["unreadable", "Cannot be read"]];
  const most = Math.max(found.affected, 1);
  const room = found.placement;
  put(place,
    h("div", { class: `notice ${whole || kind === "bad" ? kind : "info"}` },
      h("p", { class: "notice-title" }, h("span", { class: "mark", "aria-hidden": "true" }, whole || kind === "bad" ? mark : "…"), whole ? title : `${title} – so far`),
      h("p", {}, text, ` This is about ${of}.`, whole ? "" : " The others may change it.")),
    card("Copies", null,
      facts([
        ["Ledgers with copies on it", count(found.affected)],
        ["Open ones among them", count(found.open), "their size is not in the metadata"],
        ["To copy, estimated", found.affected === 0 ? "nothing" : `${bytes(found.copyBytes)}${found.open ? " and the open ledgers" : ""}`, "payload, by the average size of an entry of each ledger"],
        ["Entries to copy", count(found.copyEntries)],
        ["Topics affected", count(found.topicsTotal)],
      ]),
      table("Ledgers below their quorums", [
        { title: "Ledgers with an entry that has", cell: ([, title_]) => title_ },
        { title: "", cell: ([key, title_]) => bar([{ value: found.now[key], kind: "hbar-part", text: "now" }, { value: found.then[key] - found.now[key], kind: "hbar-more", text: "then, too" }], most, `${title_}: ${found.now[key]} now, ${found.then[key]} then, of ${found.affected}`) },
        { title: "Now", number: true, cell: ([key]) => count(found.now[key]) },
        { title: "Then", number: true, cell: ([key]) => count(found.then[key]) },
      ], rows)),
    card("Room on the other bookies", null,
      facts([
        ["Fragments that need another bookie", count(room.fragments)],
        ["Checked by the placement policy", `${count(room.examined)} of ${count(room.fragments)}`],
        ["Without any other bookie", count(room.withoutRoom)],
        ["Would violate the policy", count(room.violating), "racks or regions; only those that adhere to it now"],
        ["Would adhere in part only", count(room.soft)],
        ["Violate it already", count(room.violatingNow)],
      ]),
      room.newLedgersImpossible.length > 0 && h("div", { class: "card-body" }, h("div", { class: "notice bad" },
        h("p", { class: "notice-title" }, h("span", { class: "mark", "aria-hidden": "true" }, "✕"), "New ledgers could not be made"),
        h("p", {}, `There are too few other writable bookies for E/Qw/Qa ${room.newLedgersImpossible.map((each) => each.join("/")).join(", ")}. Topics with these could not be written once their ledger is full.`)))),
    found.ledgers.length > 0 && card("Ledgers at risk", h("span", { class: "muted" }, "the first ones found"),
      h("ul", { class: "names card-body" }, found.ledgers.slice(0, 60).map((each) => h("li", {}, h("span", { class: "mono" }, each.ledger), " ", HARMS[each.harm].badge())))),
    found.owners.length > 0 && card("Affected", found.ownersTotal > found.owners.length && h("span", { class: "muted" }, `${count(found.owners.length)} of ${count(found.ownersTotal)}, the worst first`),
      table("Topics and others with copies on the bookie", [
        { title: "Of", cell: (each) => ownerLink(each) },
        { title: "Then", cell: (each) => HARMS[each.harm].badge() },
        { title: "Ledgers", number: true, cell: (each) => count(each.ledgers) },
      ], found.owners)));
}
