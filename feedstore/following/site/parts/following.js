/** What a user follows, and following and unfollowing. */

import { problemOf, readFollowing, record } from "./api.js";
import { find, linkTo, make, refill, say, showProblem, time } from "./elements.js";
import { ID_TEXT, followeeText, idOf, problemText } from "./values.js";

const PAGE = 50;
const PAGE_MAX = 500;
const TRIES = 5;
const PAUSE_MS = 1_000;
/** So long it is watched whether an action has landed; it lands later too, unwatched. */
const WATCH_MS = 60_000;

/** recorded(): is called when an action was recorded, which is from when on it may show. */
export class FollowingPanel {
  #recorded;
  #user = null;
  #reading = new AbortController();
  /** null until they were read. */
  #edges = null;
  #cursor = null;
  #may = null;
  /** By its edge, the last action of which it is not known whether it was recorded: its method and its key. */
  #unknown = new Map();
  #isLoading = false;
  #watched = null;
  /** Whether what is shown here is not what was read last. */
  hasFailed = false;

  constructor(recorded) {
    this.#recorded = recorded;
    find("follow").addEventListener("submit", (event) => this.#submitted(event));
    find("following-more").addEventListener("click", () => this.#more());
    find("following").addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button !== null) this.#act("DELETE", button.dataset.kind, button.dataset.id);
    });
    this.#enable();
  }

  show(user) {
    this.#user = user;
    this.#edges = null;
    this.#cursor = null;
    this.#watched = null;
    find("following-panel").hidden = user === null;
    say(find("action"), "");
    this.#draw();
    this.#enable();
    return this.refresh();
  }

  /** refusal: the problem of a user who may not write, or null. */
  allow(refusal) {
    this.#may = refusal === null;
    // Where nothing can be read, that is said at the top.
    find("read-only").hidden = refusal?.status !== 403;
    if (refusal !== null) say(find("read-only"), `Read-only here: ${refusal.detail}.`);
    this.#enable();
    this.#draw();
  }

  /** Whether an action of this tab is on its way to the clusters. */
  get isWaiting() {
    return this.#watched !== null && !this.#watched.hasLanded;
  }

  async refresh() {
    if (this.#user === null) return;
    this.#reading.abort();
    this.#reading = new AbortController();
    const { signal } = this.#reading;
    try {
      const limit = Math.min(Math.max(PAGE, this.#edges?.length ?? 0), PAGE_MAX);
      const page = await readFollowing(this.#user, limit, undefined, signal);
      if (signal.aborted) return;
      this.#edges = page.following;
      this.#cursor = page.cursor;
      this.hasFailed = false;
      showProblem(find("following-problem"), null);
      this.#draw();
    } catch (error) {
      if (!signal.aborted) this.#failed(error);
    }
  }

  #failed(error) {
    const problem = problemOf(error);
    this.hasFailed = true;
    showProblem(find("following-problem"), problem.isForAll ? null : problem);
  }

  /** clusters: as the status has them. */
  landedIn(clusters) {
    const watched = this.#watched;
    if (watched === null || watched.hasLanded) return;
    const [there, missing] = [[], []];
    for (const each of clusters) {
      const hasIt = each.watermark_ms !== null && each.watermark_ms > watched.since_ms;
      (hasIt ? there : missing).push(each.name);
    }
    watched.hasLanded = missing.length === 0 || Date.now() > watched.until_ms;
    const where = there.length ? `Landed in ${there.join(", ")}` : "On its way to the clusters";
    say(find("action"), `${watched.text} ${where}${there.length && missing.length ? `; not yet in ${missing.join(", ")}` : ""}.`);
  }

  async #more() {
    if (this.#isLoading) return;
    this.#isLoading = true;
    const { signal } = this.#reading;
    try {
      const page = await readFollowing(this.#user, PAGE, this.#cursor, signal);
      if (signal.aborted) return;
      this.#edges.push(...page.following);
      this.#cursor = page.cursor;
      this.#draw();
    } catch (error) {
      if (!signal.aborted) this.#failed(error);
    } finally {
      this.#isLoading = false;
    }
  }

  #submitted(event) {
    event.preventDefault();
    const field = find("followee");
    const id = idOf(field.value);
    field.setAttribute("aria-invalid", String(id === null));
    if (id === null) {
      say(find("action"), `${ID_TEXT}.`);
      field.focus();
      return;
    }
    this.#act(event.submitter?.value === "unfollow" ? "DELETE" : "POST", find("kind").value, id);
  }

  /**
   * Sends an action until it is known whether it was recorded, with one key: it is recorded once at most. If the
   * opposite is asked for meanwhile, it is not sent again: it would undo that.
   */
  async #act(method, kind, id) {
    const user = this.#user;
    const body = { follower: user, [kind]: id };
    const what = `${method === "POST" ? "follow" : "unfollow"} ${kind} ${id}`;
    const name = `${user} ${kind} ${id}`;
    const before = this.#unknown.get(name);
    const action = before?.method === method ? before : { method, key: newKey() };
    this.#unknown.set(name, action);
    const isLast = () => this.#unknown.get(name) === action;
    say(find("action"), `To ${what}: sent …`);
    for (let tries = 1; isLast(); tries += 1) {
      try {
        const edge = await record(method, body, action.key);
        if (!isLast()) return;
        this.#unknown.delete(name);
        if (user === this.#user) this.#done(edge);
        return;
      } catch (error) {
        if (!isLast()) return;
        const problem = problemOf(error);
        if (!problem.isMaybeDone) this.#unknown.delete(name);
        if (user !== this.#user) return;
        const isAgain = problem.isMaybeDone && tries < TRIES;
        const outcome = isAgain ? "Trying again …" : problem.isMaybeDone ? "It may have been recorded: try again, it counts once." : "";
        say(find("action"), `To ${what}: ${problemText(problem)} ${outcome}`);
        if (!isAgain) return;
        await new Promise((resolve) => setTimeout(resolve, Math.max(problem.retryAfter_ms, PAUSE_MS * 2 ** (tries - 1))));
      }
    }
  }

  #done(edge) {
    const text = `${edge.follows ? "Followed" : "Unfollowed"} ${followeeText(edge)}.`;
    this.#watched = { since_ms: edge.since_ms, until_ms: Date.now() + WATCH_MS, text, hasLanded: false };
    say(find("action"), `${text} On its way to the clusters.`);
    find("followee").value = "";
    this.refresh();
    this.#recorded();
  }

  #draw() {
    const edges = this.#edges ?? [];
    find("following-more").hidden = this.#cursor === null;
    const more = this.#cursor === null ? "" : "more than ";
    say(find("following-brief"), this.#edges === null ? "" : more + edges.length.toLocaleString("en"));
    const focused = document.activeElement?.closest("#following button")?.dataset;
    refill(find("following"), edges.map((edge) => this.#line(edge)));
    if (focused !== undefined && !find("following").contains(document.activeElement)) {
      const same = [...find("following").querySelectorAll("button")];
      const again = same.find((each) => each.dataset.kind === focused.kind && each.dataset.id === focused.id);
      (again ?? find("followee")).focus({ preventScroll: true });
    }
  }

  #line(edge) {
    const [kind, id] = edge.user === undefined ? ["board", edge.board] : ["user", edge.user];
    const line = make("li", {}, make("span", { class: "what" }, `${kind} `, linkTo(kind, id), time(edge.since_ms)));
    if (this.#may) {
      line.append(make("button", { "data-kind": kind, "data-id": id, "aria-label": `Unfollow ${kind} ${id}` }, "Unfollow"));
    }
    return line;
  }

  #enable() {
    find("follow").hidden = this.#may === false;
    find("follow-fields").disabled = !this.#may || this.#user === null;
  }
}

/** Random enough to be used once. Also where a browser offers randomUUID to secure origins only. */
function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
