/** Why the chosen pin is in the feed: which edges deliver it, and which clusters have it now. */

import { problemOf, readWhy } from "./api.js";
import { find, linkTo, make, refill, say, time } from "./elements.js";
import { followeeText, problemText } from "./values.js";

/** Asked again for the same pin, it says what has changed. */
export class Why {
  #box;
  #title;
  #text;
  #asking = new AbortController();
  #user = null;
  #pin = null;
  #hint;

  constructor(box) {
    this.#box = box;
    this.#title = box.querySelector("h2");
    this.#text = find("why-text");
    this.#hint = [...this.#text.childNodes];
  }

  /** pin: null where none is chosen. */
  show(user, pin) {
    this.#user = user;
    this.#pin = pin;
    this.#box.toggleAttribute("data-open", pin !== null);
    find("why-close").hidden = pin === null;
    say(this.#title, pin === null ? "Why is it here?" : `Why is pin ${pin} here?`);
    if (pin === null) {
      this.#asking.abort();
      refill(this.#text, this.#hint.map((node) => node.cloneNode(true)));
      return;
    }
    this.refresh();
  }

  async refresh() {
    this.#asking.abort();
    if (this.#pin === null) return;
    this.#asking = new AbortController();
    const { signal } = this.#asking;
    let children;
    try {
      children = described(await readWhy(this.#user, this.#pin, signal));
    } catch (error) {
      if (signal.aborted) return;
      const problem = problemOf(error);
      children = [make("p", { class: "problem" }, problemText(problem))];
    }
    if (!signal.aborted) refill(this.#text, children);
  }
}

function described(why) {
  const active = why.edges.filter((edge) => edge.follows);
  const delivering = active.reduce((later, edge) => (later === null || edge.since_ms > later.since_ms ? edge : later), null);
  const facts = make("dl");
  const add = (name, ...values) => facts.append(make("dt", {}, name), ...values.map((value) => make("dd", {}, ...value)));
  add("saved by", ["user ", linkTo("user", why.owner), ", on board ", linkTo("board", why.board)]);
  add("dated", [time(why.created_ms)]);
  add("follows", ...(why.edges.length ? why.edges.map((edge) => edgeLine(edge, delivering, active.length)) : [["none"]]));
  add("present in", ...Object.entries(why.clusters).map(([name, has]) => presence(name, has)));
  return [make("p", { class: "verdict" }, verdict(why, delivering)), facts];
}

function verdict(why, delivering) {
  if (why.deleted_ms !== null) return "It was deleted, and is being removed from every feed.";
  if (delivering === null) return `User ${why.user} follows neither its owner nor its board: it is being removed from this feed.`;
  return `User ${why.user} follows ${followeeText(delivering)}.`;
}

function edgeLine(edge, delivering, active) {
  const what = `${followeeText(edge)}: ${edge.follows ? "followed" : "unfollowed"} `;
  return [what, time(edge.since_ms), edge === delivering && active > 1 ? ", the later one: it delivers" : ""];
}

function presence(name, has) {
  const [text, level] = has === null ? ["does not answer", "bad"] : has ? ["yes", "good"] : ["no", "warn"];
  return [`cluster ${name}: `, make("span", { class: level }, text)];
}
