/**
 * A part of a board, as it is scrolled: pins that are next to each other, with no others between. It grows at one end
 * and is cut at the other, so that it stays small on a board of any size. Moves of this tab that have no answer yet
 * show in it as if they were done.
 */

import { problemOf } from "./api.js";

const PAGE = 200;
const PAGE_MAX = 500;
/** How many pages one look reads at most. */
const READS_MAX = 4;
/** How many pins are kept, and a page more. */
const KEPT_MAX = 2_000;
const TRIES = 6;
const PAUSE_MS = 500;
const JUMPS_MAX = 3;

/**
 * The moves of a board, in their order: each is sent after the answer to the one before. If the board is left and shown
 * again, moves that are made then come after those that still have no answer.
 *
 * place(pin, where): moves a pin, where: { before, after } or { to }.
 */
export class Moves {
  #place;
  #waiting = [];
  #isSending = false;
  #answered = () => {};

  constructor(place) {
    this.#place = place;
  }

  /** Those that have no answer yet: { line, where }. line: of the pin. */
  get waiting() {
    return this.#waiting;
  }

  /** answered(move, placed, problem): from now on it is called with each answer, and nothing else is. One is null. */
  tell(answered) {
    this.#answered = answered;
  }

  add(move) {
    this.#waiting.push(move);
    this.#send();
  }

  async #send() {
    if (this.#isSending) return;
    this.#isSending = true;
    while (this.#waiting.length > 0) {
      const move = this.#waiting[0];
      let placed = null;
      let problem = null;
      try {
        placed = await this.#placed(move.line.pin, move.where);
      } catch (error) {
        problem = problemOf(error);
      }
      this.#waiting.shift();
      this.#answered(move, placed, problem);
    }
    this.#isSending = false;
  }

  /** The answer to a move, which is repeated while that may help: a repetition is harmless. */
  async #placed(pin, where) {
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
}

/**
 * read(limit, where): a page, where: { cursor }, { start } or {}. moves: of this board. told(pin, problem): is called
 * with each move that was answered; problem: null if the pin is there now.
 *
 * A line is a pin with its sequence. `next`: where the page below it begins; `above`: where the page above it begins. Of
 * lines that ended or began a page; a cursor stays good when pins are moved.
 *
 * A position is a number that a line keeps while the part grows and is cut. What others change shifts positions.
 */
export class Board {
  #read;
  #moves;
  #told;
  #lines = [];
  #first = 0;
  /** The position of the topmost pin of the board, if the pins above were counted. */
  #top = null;
  /** Where the lines that were not read begin, above and below: undefined before the first page, null at the end. */
  #above;
  #below;
  #answers = 0;
  #shown = null;
  #turn = Promise.resolve();

  constructor(read, moves, told) {
    this.#read = read;
    this.#moves = moves;
    this.#told = told;
    moves.tell((move, placed, problem) => this.#answered(move, placed, problem));
  }

  get hasBegun() {
    return this.#below !== undefined;
  }

  /** Whether the topmost pin of the board is here. */
  get hasTop() {
    return this.#above === null;
  }

  /** Whether the lowest pin of the board is here. */
  get hasEnd() {
    return this.#below === null;
  }

  get isWaiting() {
    return this.#moves.waiting.length > 0;
  }

  /** The position of the first pin. */
  get first() {
    return this.#first;
  }

  get top() {
    return this.#top;
  }

  /** The pins from the top, with each move as if it were done. */
  get shown() {
    this.#shown ??= this.#moves.waiting.reduce((lines, move) => arranged(lines, move, this), this.#lines);
    return this.#shown;
  }

  /** Reads the page below. It may be empty and no end: then it is to be called again. */
  more() {
    return this.#inTurn(async () => {
      if (!this.hasBegun || this.hasEnd) return;
      const page = await this.#page(PAGE, { cursor: this.#below });
      if (page === null) return;
      this.#take(this.#lines.length, page);
      this.#cutAbove();
    });
  }

  /** Reads the page above, likewise. */
  moreAbove() {
    return this.#inTurn(async () => {
      if (!this.hasBegun || this.hasTop) return;
      const page = await this.#page(PAGE, { cursor: this.#above });
      if (page === null) return;
      const fresh = bounded(page);
      this.#first -= page.pins.length;
      this.#above = page.above;
      if (page.above === null) this.#top = this.#first;
      this.#set([...page.pins, ...this.#lines.filter((line) => !fresh.has(line.pin))]);
      this.#cutBelow();
    });
  }

  /** Reads again what is between two positions, both included, and a little around. */
  look(from, until) {
    return this.#inTurn(async () => {
      let start = this.#startOfPage(from - this.#first);
      if (start === null) return;
      let where = start === 0 ? {} : { cursor: this.#lines[start - 1].next };
      for (let reads = 0; reads < READS_MAX; reads += 1) {
        const limit = Math.min(Math.max(until - this.#first - start + 1, PAGE), PAGE_MAX);
        const page = await this.#page(limit, where);
        if (page === null) return;
        if (start === 0) {
          this.#above = null;
          this.#top = this.#first;
        }
        start = this.#take(start, page);
        where = { cursor: page.cursor };
        if (page.cursor === null || start > until - this.#first) return;
      }
    });
  }

  /** Goes elsewhere. start: top, bottom, or a sequence, at or below which it begins. */
  jump(start) {
    return this.#inTurn(async () => {
      let page = null;
      for (let tries = 0; page === null && tries < JUMPS_MAX; tries += 1) page = await this.#page(PAGE, { start });
      if (page === null) return;
      bounded(page);
      this.#above = page.above;
      this.#below = page.cursor;
      this.#first = 0;
      this.#top = this.hasTop ? 0 : null;
      this.#set(page.pins);
    });
  }

  /** Shows a move at once, and sends it when those before it were answered. line: of the pin. */
  move(line, where) {
    this.#moves.add({ line, where });
    this.#shown = null;
  }

  #answered(move, placed, problem) {
    if (problem === null) {
      const { sequence, moved_ms } = placed;
      const line = { ...move.line, sequence, moved_ms, next: undefined, above: undefined };
      this.#lines = arranged(this.#lines, { ...move, line }, this);
    }
    this.#answers += 1;
    this.#shown = null;
    this.#told(move.line.pin, problem);
  }

  /** One reading after the other: each begins where the one before it has left the lines. */
  #inTurn(work) {
    const done = this.#turn.then(work);
    this.#turn = done.catch(() => {});
    return done;
  }

  /** A page; null if it may be of before a move that is done now: the next one is not. */
  async #page(limit, where) {
    const answers = this.#answers;
    const page = await this.#read(limit, where);
    return answers === this.#answers ? page : null;
  }

  /** The first index, at or above one, from which a page can be read; or else the first one below; or null. */
  #startOfPage(index) {
    const isStart = (at) => (at === 0 ? !this.hasBegun || this.hasTop : typeof this.#lines[at - 1].next === "string");
    const from = Math.min(Math.max(index, 0), this.#lines.length);
    for (let at = from; at >= 0; at -= 1) if (isStart(at)) return at;
    for (let at = from + 1; at <= this.#lines.length; at += 1) if (isStart(at)) return at;
    return null;
  }

  /** Puts a page in place of what it covers, from an index on. Returns the index below it. */
  #take(start, page) {
    const fresh = bounded(page);
    // Lines that were not moved keep their order: what was between them and is not in the page has gone from there.
    let covered = start;
    for (let at = start; at < this.#lines.length; at += 1) {
      const old = this.#lines[at];
      const line = fresh.get(old.pin);
      if (line !== undefined && line.moved_ms === old.moved_ms) {
        covered = at + 1;
        line.next ??= old.next;
        line.above ??= old.above;
      }
    }
    if (page.cursor === null) covered = this.#lines.length;
    const isOld = (line) => !fresh.has(line.pin);
    const above = this.#lines.slice(0, start).filter(isOld);
    const below = this.#lines.slice(covered).filter(isOld);
    if (below.length === 0) this.#below = page.cursor;
    this.#set([...above, ...page.pins, ...below]);
    return above.length + page.pins.length;
  }

  #set(lines) {
    this.#lines = lines;
    this.#shown = null;
  }

  /** What is far above goes, where two pages meet. */
  #cutAbove() {
    const over = this.#lines.length - KEPT_MAX;
    if (over <= 0) return;
    for (let at = over; at < over + KEPT_MAX / 2; at += 1) {
      if (typeof this.#lines[at - 1].next !== "string" || typeof this.#lines[at].above !== "string") continue;
      this.#above = this.#lines[at].above;
      this.#first += at;
      this.#set(this.#lines.slice(at));
      return;
    }
  }

  #cutBelow() {
    if (this.#lines.length <= KEPT_MAX) return;
    for (let at = KEPT_MAX; at > KEPT_MAX / 2; at -= 1) {
      if (typeof this.#lines[at - 1].next !== "string") continue;
      this.#below = this.#lines[at - 1].next;
      this.#set(this.#lines.slice(0, at));
      return;
    }
  }
}

/** Notes at the ends of a page where those next to it begin. Returns its lines by pin. */
function bounded(page) {
  if (page.pins.length > 0) {
    page.pins[0].above = page.above ?? undefined;
    page.pins.at(-1).next = page.cursor ?? undefined;
  }
  return new Map(page.pins.map((line) => [line.pin, line]));
}

/** The lines after a move. A pin that goes beyond them is not seen. */
function arranged(lines, { line, where }, { hasTop, hasEnd }) {
  const rest = lines.filter((each) => each.pin !== line.pin);
  if (where.to === "bottom") return hasEnd ? [...rest, line] : rest;
  if (where.to === "top") return hasTop ? [line, ...rest] : rest;
  const at = placeIn(rest, where);
  return at === null ? rest : rest.toSpliced(at, 0, line);
}

function placeIn(lines, { before, after }) {
  const above = before === undefined ? -1 : lines.findIndex((each) => each.pin === before);
  if (above >= 0) return above + 1;
  const below = after === undefined ? -1 : lines.findIndex((each) => each.pin === after);
  return below >= 0 ? below : null;
}
