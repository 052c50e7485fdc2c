/** How the clusters and the queue are, and what could not be done. */

import { readLetters } from "./api.js";
import { find, make, refill, say, showProblem, time } from "./elements.js";
import { counted, durationText, healthText } from "./values.js";

const LETTERS = 100;
/** A cluster that is further behind is unhealthy, also if all others are as far; so is one of which nothing was heard. */
const FAR_MS = 60_000;
const isFar = (each) => each.is_lagging || each.behind_ms === null || each.behind_ms > FAR_MS;
const cell = (text, level = "") => make("td", level ? { class: level } : {}, text);
const head = (text) => make("th", { scope: "row" }, text);
const UNTIMED = "not known: too few reads so far, or a cluster in files";
const untimed = () => make("td", { title: UNTIMED }, make("span", { "aria-hidden": "true" }, "–"), make("span", { class: "unseen" }, UNTIMED));

export function showClusters(clusters) {
  // A cluster in files has none, and one on servers has none before it was read for a while.
  const isTimed = clusters.some((each) => each.p95_ms !== null);
  const names = ["cluster", "breaker", "behind", ...(isTimed ? ["p95"] : [])];
  refill(find("clusters-head"), names.map((name) => make("th", { scope: "col" }, name)));
  refill(
    find("clusters"),
    clusters.map((each) =>
      make(
        "tr",
        {},
        head(each.name),
        cell(each.breaker, each.breaker === "closed" ? "good" : "bad"),
        cell(durationText(each.behind_ms) + (each.is_lagging ? ", lagging" : ""), isFar(each) ? "warn" : ""),
        ...(isTimed ? [each.p95_ms === null ? untimed() : cell(durationText(each.p95_ms))] : []),
      ),
    ),
  );
  const ill = clusters.filter((each) => each.breaker !== "closed" || isFar(each)).map((each) => each.name);
  say(find("clusters-brief"), healthText(ill));
  find("clusters-brief").classList.toggle("warn", ill.length > 0);
}

/** status: its groups and dead letters are null where the queue is away. */
export function showQueue(status) {
  const stopped = status.worker_stopped;
  const groups = status.groups ?? [];
  refill(
    find("groups"),
    groups.map((each) =>
      make("tr", {}, head(each.group), cell(each.topic ?? "outbox"), cell(each.lag.toLocaleString("en"))),
    ),
  );
  const left = Math.max(0, ...groups.map((each) => each.lag));
  const said = left ? `${left.toLocaleString("en")} waiting` : "none waiting";
  say(find("queue-brief"), stopped !== null ? "no worker" : status.groups === null ? "unknown" : said);
  find("queue-brief").classList.toggle("bad", stopped !== null);
  showProblem(find("queue-note"), stopped === null ? null : { title: "No worker", detail: stopped });
  const dead = status.dead_letters ? status.dead_letters.toLocaleString("en") : "none";
  say(find("letters-brief"), status.dead_letters === null ? "unknown" : dead);
  find("letters-brief").classList.toggle("bad", status.dead_letters > 0);
}

/** count: null where the queue is away. refusal: the problem of a user who may not operate, or null. Raises Problem. */
export async function showLetters(count, refusal) {
  const note = find("letters-note");
  note.hidden = false;
  if (count === null || (refusal !== null && count !== 0)) {
    say(note, count === null ? "The queue does not answer." : `Their reasons are for operators: ${refusal.detail}.`);
    refill(find("letters"), []);
    return;
  }
  const { letters, after } = count === 0 ? { letters: [], after: null } : await readLetters(LETTERS);
  say(note, after === null ? "No message has failed." : `The oldest ${LETTERS}; the others with feedctl dead list.`);
  note.hidden = after === null && letters.length > 0;
  refill(find("letters"), letters.map(letterLine));
}

function letterLine(letter) {
  const where = `${letter.group}, ${letter.topic}, ${counted(letter.bytes, "byte", "bytes")}`;
  return make(
    "li",
    {},
    make("p", {}, make("strong", {}, `${letter.id} ${letter.reason}`), " ", time(letter.died_ms)),
    make("p", { class: "brief" }, where),
    make("p", { class: "detail" }, letter.detail),
  );
}
