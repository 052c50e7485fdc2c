/** A feed as it is scrolled: what is shown of it, what is new, and what has gone. Nothing here knows the document. */

import { END, TOP, inFeedOrder, isBelow } from "./values.js";

const PAGE = 25;
const WALK_PAGE = 200;
/** A walk from the top reads so many entries at most; what was scrolled past them is left as it is. */
const WALK_MAX = 1_000;
/** Two readings of a cluster's age may differ by so much for no reason but the way of the answers. */
const SAME_AGE_MS = 1_000;

/**
 * One user's. What it shows grows at its end by cursors, as `more` is called; new entries wait in `fresh` until they are
 * taken, wherever in the feed they are. What has gone is taken away as soon as that is seen.
 *
 * shown: in feed order, none twice. latest: the page that was read last, null before the first.
 */
export class Feed {
  #read;
  #turn = Promise.resolve();
  #cursor;
  /** How far the pages by cursor came: what is below comes with them, what is above by looking. */
  #depth = TOP;
  #fresh = new Map();

  shown = [];
  latest = null;
  /** Whether there are more new entries than were seen. */
  isFreshMore = false;

  /** read(limit, cursor): a page of the API. */
  constructor(read) {
    this.#read = read;
  }

  get fresh() {
    return this.#fresh.size;
  }

  get hasBegun() {
    return this.#cursor !== undefined;
  }

  get hasEnded() {
    return this.#cursor === null;
  }

  /** Shows the next page. Raises Problem. */
  more() {
    return this.#inTurn(async () => {
      if (this.hasEnded) return;
      let page;
      try {
        page = await this.#page(PAGE, this.#cursor);
      } catch (error) {
        if (error.kind !== "malformed-cursor") throw error;
        // The server no longer knows what it gave out: the walk begins again.
        this.#begin();
        page = await this.#page(PAGE, undefined);
      }
      this.#append(page);
    });
  }

  /**
   * Looks at the top of the feed, or where `isDeep`, at everything that is shown. Returns how many entries have gone.
   * isTaking: brings in what is new, which is deep too. Raises Problem.
   */
  look({ isDeep = false, isTaking = false } = {}) {
    return this.#inTurn(async () => {
      if (this.shown.length === 0) {
        const page = await this.#page(PAGE, undefined);
        this.#begin();
        this.#append(page);
        return 0;
      }
      const isWalking = isDeep || isTaking;
      let [place, cursor, read, gone] = [TOP, undefined, 0, 0];
      const pages = [];
      do {
        const page = await this.#page(isWalking ? WALK_PAGE : PAGE, cursor);
        const end = page.cursor === null ? END : (page.entries.at(-1) ?? place);
        gone += this.#compare(page, place, end);
        pages.push(page);
        [place, cursor, read] = [end, page.cursor, read + page.entries.length];
      } while (isWalking && cursor !== null && read < WALK_MAX && !this.#covers(place));
      this.isFreshMore = place !== END && this.shown.length > 0 && isBelow(this.shown[0], place);
      if (isTaking) this.#take(pages);
      return gone;
    });
  }

  #take(pages) {
    if (this.isFreshMore) {
      // Between what was read and what is shown there is more than a walk: the feed begins at the top again.
      this.#begin();
      for (const page of pages) this.#append(page);
      return;
    }
    this.shown = inFeedOrder([...this.shown, ...this.#fresh.values()]);
    this.#fresh.clear();
  }

  /** Compares what a page says of the places below `from` down to `to` with what is known of them. */
  #compare(page, from, to) {
    const here = new Map(page.entries.map((entry) => [entry.pin, entry]));
    const stays = (entry) => !isBelow(entry, from) || isBelow(entry, to) || here.has(entry.pin) || !page.mayTake(entry);
    const before = this.shown.length;
    this.shown = this.shown.filter(stays);
    for (const entry of this.#fresh.values()) if (!stays(entry)) this.#fresh.delete(entry.pin);
    for (const entry of this.shown) if (here.has(entry.pin)) page.sees(entry);
    const known = new Set(this.shown.map((entry) => entry.pin));
    for (const entry of page.entries) {
      if (!known.has(entry.pin) && (this.hasEnded || !isBelow(entry, this.#depth))) this.#fresh.set(entry.pin, entry);
    }
    return before - this.shown.length;
  }

  #begin() {
    this.shown = [];
    this.#fresh.clear();
    this.isFreshMore = false;
    this.#cursor = undefined;
    this.#depth = TOP;
  }

  #append(page) {
    // Below the cursor nothing is shown yet, and nothing waits.
    this.shown.push(...page.entries);
    this.#cursor = page.cursor;
    this.#depth = page.entries.at(-1) ?? this.#depth;
  }

  #covers(place) {
    return !this.hasEnded && this.#depth !== TOP && !isBelow(this.#depth, place);
  }

  async #page(limit, cursor) {
    this.latest = new Page(await this.#read(limit, cursor), Date.now());
    return this.latest;
  }

  /** One at a time: a page that is compared must have been asked for after the one before it was taken in. */
  #inTurn(work) {
    const done = this.#turn.then(work);
    this.#turn = done.catch(() => {});
    return done;
  }
}

/** A page and how old what it says may be. */
class Page {
  constructor(answer, now_ms) {
    this.cursor = answer.cursor;
    this.servedBy = answer.served_by;
    this.behind_ms = answer.behind_ms;
    this.complete_ms = answer.behind_ms === null ? -Infinity : now_ms - answer.behind_ms;
    this.entries = answer.entries;
    for (const entry of this.entries) this.sees(entry);
  }

  sees(entry) {
    entry.seenIn = this.servedBy;
    entry.seen_ms = this.complete_ms;
  }

  /** A cluster that is behind the one that showed an entry may not have it yet: that takes nothing away. */
  mayTake(entry) {
    return this.servedBy === entry.seenIn || this.complete_ms + SAME_AGE_MS >= entry.seen_ms;
  }
}
