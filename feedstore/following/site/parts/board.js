/** A board as it is scrolled: the pins that were read, and the moves of this tab that have no answer yet. */

import { problemOf } from "./api.js";

const PAGE = 200;
const PAGE_MAX = 500;
/** How many pages one look reads at most. */
const READS_MAX = 4;
/** So many pins are kept; a place further down is reached by moving a pin to the bottom. */
export const KEPT_MAX = 100_000;
const TRIES = 6;
const PAUSE_MS = 500;

/**
 * read(limit, cursor): a page. place(pin, where): moves a pin, where: { before, after } or { to }.
 * told(pin, problem): is called with each move that was answered; problem: null if the pin is there now.
 *
 * A line is a pin with its sequence. `next`: where the page below it begins, of lines that ended a page; a cursor stays
 * good when pins are moved.
 */
export class Board {
  #read;
  #place;
  #told;
  #lines = [];
  /** Where the lines that were not read begin: undefined before the first page, null at the end. */
  #cursor;
  #moves = [];
  #answers = 0;
  #isSending = false;
  #shown = null;

  constructor(read, place, told) {
    this.#read = read;
    this.#place = place;
    this.#told = told;
  }

  get hasBegun() {
    return this.#cursor !== undefined;
  }

  get hasEnded() {
    return this.#cursor === null;
  }

  get isFull() {
    return this.#lines.length >= KEPT_MAX;
  }

  get isWaiting() {
    return this.#moves.length > 0;
  }

  /** The pins from the top, with each move as if it were done. */
  get shown() {
    this.#shown ??= this.#moves.reduce((lines, move) => arranged(lines, move, this.hasEnded), this.#lines);
    return this.#shown;
  }

  /** Reads the page below all that was read. It may be empty and no end: then it is to be called again. */
  async more() {
    if (!this.hasBegun || this.hasEnded || this.isFull) return;
    const cursor = this.#cursor;
    const page = await this.#read(PAGE, cursor);
    // A look may have come to the end meanwhile.
    if (cursor === this.#cursor) this.#take(this.#lines.length, page);
  }

  /** Reads again what is between two positions, both included, and a little around. */
  async look(from, until) {
    const answers = this.#answers;
    let start = this.#startOfPage(from);
    let cursor = this.#lines[start - 1]?.next;
    for (let reads = 0; reads < READS_MAX; reads += 1) {
      const limit = Math.min(Math.max(until - start + 1, PAGE), PAGE_MAX);
      const page = await this.#read(limit, cursor);
      // It may be of before a move that is done now: the next look is not.
      if (answers !== this.#answers) return;
      start = this.#take(start, page);
      cursor = page.cursor;
      if (cursor === null || start > until) return;
    }
  }

  /** Shows a move at once, and sends it when those before it were answered. */
  move(pin, where) {
    this.#moves.push({ pin, where });
    this.#shown = null;
    this.#send();
  }

  async #send() {
    if (this.#isSending) return;
    this.#isSending = true;
    while (this.#moves.length > 0) {
      const move = this.#moves[0];
      let problem = null;
      try {
        const placed = await this.#placed(move);
        this.#lines = arranged(this.#lines, move, this.hasEnded).map((line) =>
          line.pin === move.pin ? { ...line, sequence: placed.sequence, moved_ms: placed.moved_ms, next: undefined } : line,
        );
      } catch (error) {
        problem = problemOf(error);
      }
      this.#moves.shift();
      this.#answers += 1;
      this.#shown = null;
      this.#told(move.pin, problem);
    }
    this.#isSending = false;
  }

  /** The answer to a move, which is repeated while that may help: a repetition is harmless. */
  async #placed({ pin, where }) {
    for (let tries = 1; ; tries += 1) {
      try {
        return await this.#place(pin, where);
      } catch (error) {
        const problem = problemOf(error);
        if (!problem.isMaybeDone || tries === TRIES) throw problem;
        const pause_ms = Math.max(problem.retryAfter_ms, PAUSE_MS * 2 ** (tries - 1));
        await new Promise((resolve) => setTimeout(resolve, pause_ms));
      }
    }
  }

  /** The first position, at or above one, from which a page can be read. */
  #startOfPage(position) {
    let start = Math.min(position, this.#lines.length);
    while (start > 0 && typeof this.#lines[start - 1].next !== "string") start -= 1;
    return start;
  }

  /** Puts a page in place of what it covers, from a position on. Returns the position below it. */
  #take(start, page) {
    const fresh = new Map(page.pins.map((line) => [line.pin, line]));
    // Lines that were not moved keep their order: what was between them and is not in the page has gone from there.
    let covered = start;
    for (let at = start; at < this.#lines.length; at += 1) {
      const old = this.#lines[at];
      const line = fresh.get(old.pin);
      if (line !== undefined && line.moved_ms === old.moved_ms) {
        covered = at + 1;
        if (old.next !== undefined) line.next = old.next;
      }
    }
    if (page.cursor === null) covered = this.#lines.length;
    if (page.cursor !== null && page.pins.length > 0) page.pins.at(-1).next = page.cursor;
    const isOld = (line) => !fresh.has(line.pin);
    const above = this.#lines.slice(0, start).filter(isOld);
    const below = this.#lines.slice(covered).filter(isOld);
    if (below.length === 0) this.#cursor = page.cursor;
    this.#lines = [...above, ...page.pins, ...below];
    this.#shown = null;
    return above.length + page.pins.length;
  }
}

/** The lines after a move. At the bottom of a board of which not all was read, a pin is not seen. */
function arranged(lines, { pin, where }, hasEnded) {
  const line = lines.find((each) => each.pin === pin);
  if (line === undefined) return lines;
  const rest = lines.filter((each) => each.pin !== pin);
  if (where.to === "bottom") return hasEnded ? [...rest, line] : rest;
  const at = where.to === "top" ? 0 : placeIn(rest, where);
  return at === null ? lines : rest.toSpliced(at, 0, line);
}

function placeIn(lines, { before, after }) {
  const above = before === undefined ? -1 : lines.findIndex((each) => each.pin === before);
  if (above >= 0) return above + 1;
  const below = after === undefined ? -1 : lines.findIndex((each) => each.pin === after);
  return below >= 0 ? below : null;
}
