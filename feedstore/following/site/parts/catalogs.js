/** The catalogs: their generations, how fresh each cluster is, what reads found, and the way back from a bad build. */

import { problemOf, readCatalogs, rollBack } from "./api.js";
import { draw, find, make, refill, say, time } from "./elements.js";
import { counted, durationText, healthText, problemText, shareText, sizeText, timeText } from "./values.js";

/** A cluster's updates come within a second or two: it is behind, if they take so long. */
const LAGGING_MS = 30_000;
/** Servers ask each cluster every second. One that has said nothing for so long does not answer. */
const AWAY_MS = 10_000;
/** More keys than this without a record are worth a look, as docs/recovering.md has it. */
const MISSING_MAX = 0.005;
/** Others come from files, and nothing updates them between two loads. */
const PINS = "pins";

export class CatalogPanel {
  /** The problem of those who may not operate; null: they may. */
  #refusal = null;
  #isAllowed = false;
  /** Whether the server has said that there are no catalogs. */
  #hasNone = false;
  #catalogs = [];
  /** The section of each catalog, by its name. They stay, so that the focus does. */
  #sections = new Map();
  /** What the dialog asks about: a catalog, and the generation that each cluster would leave. */
  #asked = null;

  constructor() {
    find("rollback-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#confirmed();
    });
    find("rollback-cancel").addEventListener("click", () => find("rollback").close());
    find("rollback-clusters").addEventListener("change", () => this.#enable());
  }

  /** refusal: the problem of those who may not operate, or null. */
  allow(refusal) {
    this.#refusal = refusal;
    this.#isAllowed = refusal === null;
    this.#hasNone = false;
    this.#draw();
  }

  /** Raises Problem. */
  async look() {
    if (this.#hasNone) return;
    try {
      const { catalogs, now_ms } = await readCatalogs();
      this.#catalogs = catalogs.map((each) => ({ ...each, now_ms }));
    } catch (error) {
      if (error.status !== 404) throw error;
      this.#hasNone = true;
      this.#catalogs = [];
    }
    this.#draw();
  }

  #draw() {
    find("catalogs-panel").hidden = this.#catalogs.length === 0;
    for (const [name, section] of this.#sections) {
      if (this.#catalogs.some((each) => each.name === name)) continue;
      section.remove();
      this.#sections.delete(name);
    }
    for (const each of this.#catalogs) this.#show(each);
    const first = this.#catalogs[0];
    if (first === undefined) return;
    const ill = this.#catalogs.flatMap((each) =>
      each.clusters.filter((cluster) => isIll(freshness(cluster, each))).map((cluster) => cluster.name),
    );
    const held = first.hit_rate === null ? "nothing read yet" : `${shareText(first.hit_rate)} held`;
    say(find("catalogs-brief"), ill.length ? healthText([...new Set(ill)].sort()) : held);
    find("catalogs-brief").classList.toggle("warn", ill.length > 0);
    find("catalogs-note").hidden = this.#refusal?.status !== 403;
    if (this.#refusal !== null) say(find("catalogs-note"), `To roll back is for operators: ${this.#refusal.detail}.`);
  }

  #show(catalog) {
    let section = this.#sections.get(catalog.name);
    if (section === undefined) {
      section = make("section", { class: "catalog", "aria-label": `Catalog ${catalog.name}` });
      const button = make("button", { class: "rollback" }, "Roll back …");
      button.addEventListener("click", () => this.#ask(catalog.name));
      section.append(make("h3", {}, catalog.name), make("dl", { class: "rates" }), make("div", { class: "places" }), button);
      this.#sections.set(catalog.name, section);
      find("catalogs").append(section);
    }
    refill(section.querySelector(".rates"), rates(catalog));
    refill(section.querySelector(".places"), catalog.clusters.map((each) => place(each, catalog)));
    section.querySelector(".rollback").hidden = !this.#isAllowed || Object.keys(leaving(catalog)).length === 0;
  }

  #ask(name) {
    const catalog = this.#catalogs.find((each) => each.name === name);
    const from = leaving(catalog);
    if (Object.keys(from).length === 0) return;
    this.#asked = { name, from };
    say(find("rollback-title"), `Roll back ${name}?`);
    refill(find("rollback-clusters"), [
      find("rollback-clusters").querySelector("legend"),
      ...catalog.clusters.filter((each) => each.name in from).map((each) => choice(each)),
    ]);
    this.#enable();
    find("rollback").showModal();
  }

  #chosen() {
    return [...find("rollback-clusters").querySelectorAll("input:checked")].map((each) => each.value);
  }

  #enable() {
    find("rollback-do").disabled = this.#chosen().length === 0;
  }

  async #confirmed() {
    const { name, from } = this.#asked;
    const chosen = Object.fromEntries(this.#chosen().map((cluster) => [cluster, from[cluster]]));
    find("rollback").close();
    const result = find("catalogs-result");
    result.className = "note";
    say(result, `To roll back ${name}: sent …`);
    try {
      const { clusters } = await rollBack(name, chosen);
      say(result, `Rolled back ${name}: ${clusters.map(swapText).join("; ")}. Updates since then stay in force.`);
    } catch (error) {
      const problem = problemOf(error);
      result.className = "problem";
      const again = problem.kind === "unreachable" ? " It may have been done: to repeat it is harmless." : "";
      say(result, `${name} was not rolled back everywhere. ${problemText(problem)}${again}`);
    }
    await this.look().catch(() => {}); // the next look says what is wrong
    // The button may be gone: there may be no way further back.
    if (document.activeElement === document.body) find("catalogs-panel").querySelector("summary").focus({ preventScroll: true });
  }
}

const currentOf = (cluster) => cluster.generations.findIndex((each) => each.current);

/** Where a rollback goes: to the latest generation before the current one that was in use; undefined: there is none. */
const beforeOf = (cluster) => cluster.generations.slice(0, Math.max(0, currentOf(cluster))).findLast((each) => each.used);

/** The generation that each cluster would leave: those that have a way back. */
function leaving(catalog) {
  const able = catalog.clusters.filter((each) => beforeOf(each) !== undefined);
  return Object.fromEntries(able.map((each) => [each.name, each.generations[currentOf(each)].id]));
}

/** In words, and how well it is. */
function freshness(cluster, { name, now_ms }) {
  if (cluster.answered_ms === null) return { text: "has not answered yet", level: "bad" };
  const silent_ms = now_ms - cluster.answered_ms;
  if (silent_ms > AWAY_MS) return { text: `no answer for ${durationText(silent_ms)}`, level: "bad" };
  if (currentOf(cluster) < 0) return { text: "no generation in use", level: "bad" };
  if (cluster.behind_ms === null) return { text: "how far behind is not known", level: "warn" };
  if (name !== PINS && cluster.known_ms === null) return { text: `as of ${durationText(cluster.behind_ms)} ago`, level: "" };
  const isLagging = cluster.behind_ms > LAGGING_MS;
  return { text: `at most ${durationText(cluster.behind_ms)} behind`, level: isLagging ? "warn" : "good" };
}

const isIll = ({ level }) => level === "warn" || level === "bad";

function rates(catalog) {
  const asked = ["hit", "stale", "fetched", "joined", "missing"].reduce((sum, each) => sum + catalog.keys[each], 0);
  const isMuch = catalog.missing_rate > MISSING_MAX;
  const fact = (name, text, level = "") => make("div", {}, make("dt", {}, name), make("dd", level ? { class: level } : {}, text));
  return [
    fact("held", catalog.hit_rate === null ? "–" : shareText(catalog.hit_rate)),
    fact("missing", catalog.missing_rate === null ? "–" : shareText(catalog.missing_rate), isMuch ? "warn" : ""),
    fact("keys read", asked.toLocaleString("en")),
    fact("memory", sizeText(catalog.cache_bytes)),
  ];
}

function place(cluster, catalog) {
  const fresh = freshness(cluster, catalog);
  const parts = [make("p", { class: "place-head" }, make("strong", {}, `cluster ${cluster.name}`), " ", make("span", { class: fresh.level }, fresh.text))];
  if (cluster.generations.length > 0) {
    parts.push(timeLine(cluster, catalog.now_ms));
    parts.push(make("ol", { class: "generations" }, ...cluster.generations.map(generationLine).reverse()));
    parts.push(make("p", { class: "brief" }, `${counted(cluster.delta_entries, "update", "updates")} since the oldest generation`));
  }
  return make("div", { class: "place" }, ...parts);
}

/**
 * From the oldest generation to now: a dot for each, the one in use larger, and from it a band as far as its updates are
 * known. The list below says the same in words.
 */
function timeLine(cluster, now_ms) {
  const first_ms = cluster.generations[0].as_of_ms;
  const span_ms = Math.max(1, now_ms - first_ms);
  const at = (ms) => `${(100 * Math.min(1, Math.max(0, (ms - first_ms) / span_ms))).toFixed(2)}%`;
  const marks = [draw("line", { class: "axis", x1: "0%", x2: "100%", y1: 11, y2: 11 })];
  const current = cluster.generations[currentOf(cluster)];
  if (current !== undefined && cluster.behind_ms !== null) {
    marks.push(draw("line", { class: "known", x1: at(current.as_of_ms), x2: at(now_ms - cluster.behind_ms), y1: 11, y2: 11 }));
  }
  marks.push(draw("line", { class: "axis", x1: "100%", x2: "100%", y1: 5, y2: 17 }));
  for (const each of cluster.generations) {
    marks.push(draw("circle", { class: each.current ? "dot current" : "dot", cx: at(each.as_of_ms), cy: 11, r: each.current ? 7 : 4.5 }));
  }
  const svg = draw("svg", { class: "time-line", height: 22, "aria-hidden": "true" }, ...marks);
  const ends = make("p", { class: "ends brief", "aria-hidden": "true" }, make("span", {}, timeText(first_ms, now_ms)), make("span", {}, "now"));
  return make("div", {}, svg, ends);
}

function generationLine(each) {
  const head = make("p", { class: "generation-head" }, make("span", {}, "as of ", time(each.as_of_ms)));
  if (each.current) head.append(make("strong", {}, "in use"));
  const size = each.bytes === null ? "" : ` · ${sizeText(each.bytes)}`;
  const about = make("p", { class: "brief" }, counted(each.records, "record", "records") + size);
  return make("li", each.current ? { class: "current" } : {}, head, about, make("p", { class: "id" }, each.id));
}

function choice(cluster) {
  const [before, now] = [beforeOf(cluster), cluster.generations[currentOf(cluster)]];
  const said = (each) => `${timeText(each.as_of_ms, Date.now())} (${counted(each.records, "record", "records")})`;
  const box = make("input", { type: "checkbox", value: cluster.name, checked: "" });
  return make("label", {}, box, make("span", {}, make("strong", {}, `cluster ${cluster.name}`), make("span", { class: "brief" }, `from ${said(now)} back to ${said(before)}`)));
}

function swapText(swap) {
  const as_of_ms = Number(swap.generation.split("-")[0]);
  const text = `${swap.cluster} uses the generation of ${timeText(as_of_ms, Date.now())}`;
  return swap.changed ? text : `${text}, as before`;
}
