/** What the page says of a board, and when it is read again. */

import { placePin, problemOf, readBoard } from "./api.js";
import { Board, KEPT_MAX } from "./board.js";
import { find, say, showProblem } from "./elements.js";
import { Grid } from "./grid.js";
import { Rhythm } from "./rhythm.js";
import { counted } from "./values.js";

/** With what chance adds to it, and the time of an answer, less than 3 s. */
const LOOK_MS = 2_000;
/** The next page is asked for when the end of what was read is so near. */
const AHEAD_PX = 1_600;

export class BoardView {
  #trouble;
  #id = null;
  #board = null;
  #grid;
  #rhythm = new Rhythm(() => this.#look(), () => LOOK_MS);
  #reading = new AbortController();
  #mayMove = false;
  #isLoading = false;
  #hasFailed = false;
  /** What became of the last move, if it was refused. It stays until another one is made. */
  #refusal = null;

  /** trouble(problem): is told what stands in the way of everything, and null when nothing does. */
  constructor(trouble) {
    this.#trouble = trouble;
    this.#grid = new Grid(find("grid"), {
      dropped: (pin, where) => this.#move(pin, where),
      said: (text) => say(find("said"), text),
      scrolled: () => this.#fill(),
    });
    find("board-more").addEventListener("click", () => {
      this.#hasFailed = false;
      this.#more();
    });
    find("gaps").addEventListener("click", () => {
      const isShown = find("gaps").getAttribute("aria-pressed") !== "true";
      find("gaps").setAttribute("aria-pressed", String(isShown));
      this.#grid.gaps = isShown;
    });
  }

  /** id: null where no board is shown. */
  show(id) {
    if (id === this.#id) return;
    this.#reading.abort();
    this.#reading = new AbortController();
    const { signal } = this.#reading;
    this.#id = id;
    this.#grid.cancel();
    this.#refusal = null;
    this.#hasFailed = false;
    this.#isLoading = false;
    this.#problem(null);
    if (id === null) {
      this.#board = null;
      return;
    }
    const board = new Board(
      (limit, cursor) => readBoard(id, limit, cursor, signal),
      (pin, where) => placePin(id, pin, where),
      (pin, problem) => board === this.#board && this.#answered(pin, problem),
    );
    this.#board = board;
    say(find("board-title"), `Board ${id}`);
    document.title = `Board ${id}`;
    this.#draw();
    this.#rhythm.now();
  }

  /** refusal: the problem of those who may not write, or null. */
  allow(refusal) {
    this.#mayMove = refusal === null;
    find("board-read-only").hidden = this.#mayMove;
    find("board-keys").hidden = !this.#mayMove;
    if (refusal !== null) say(find("board-read-only"), `Read-only here. ${refusal.title}: ${refusal.detail}.`);
    if (this.#board !== null) this.#draw();
  }

  refresh() {
    if (this.#board !== null) this.#rhythm.now();
  }

  async #look() {
    const board = this.#board;
    // A pin that is held is between two others: they stay where they are until it is dropped.
    if (board === null || this.#grid.isHolding) return;
    try {
      await board.look(...this.#grid.range);
    } catch (error) {
      if (board !== this.#board) return;
      this.#problem(problemOf(error));
      throw error;
    }
    if (board !== this.#board) return;
    this.#hasFailed = false;
    this.#problem(null);
    if (!this.#grid.isHolding) this.#draw();
    this.#fill();
  }

  /** Reads on while the end of what was read is near. */
  #fill() {
    const board = this.#board;
    if (board === null || !board.hasBegun || board.hasEnded || board.isFull || this.#hasFailed) return;
    if (this.#grid.left_px < AHEAD_PX) this.#more();
  }

  async #more() {
    const board = this.#board;
    if (this.#isLoading || board === null) return;
    this.#isLoading = true;
    try {
      await board.more();
    } catch (error) {
      if (board === this.#board) {
        this.#hasFailed = true;
        this.#problem(problemOf(error));
      }
    }
    if (board !== this.#board) return;
    this.#isLoading = false;
    this.#draw();
    this.#fill();
  }

  #move(pin, where) {
    this.#refusal = null;
    this.#problem(null);
    this.#board.move(pin, where);
    this.#draw();
  }

  #answered(pin, problem) {
    if (problem !== null) {
      const between = problem.between.length > 0 ? ` Between them: ${problem.between.join(", ")}.` : "";
      const detail = `${problem.detail || problem.title}.${between}`;
      this.#refusal = { title: `Pin ${pin} was not moved`, detail, isForAll: false };
      say(find("said"), `Pin ${pin} was not moved, and is back. ${detail}`);
      this.#problem(null);
    }
    this.#draw();
    if (!this.#board.isWaiting) this.#rhythm.now();
  }

  #problem(problem) {
    this.#trouble(problem);
    showProblem(find("board-problem"), problem === null || problem.isForAll ? this.#refusal : problem);
  }

  #draw() {
    const board = this.#board;
    const { shown } = board;
    this.#grid.show(shown, { mayMove: this.#mayMove, hasEnded: board.hasEnded });
    find("board-empty").hidden = shown.length > 0 || !board.hasEnded;
    say(find("board-empty"), `Nothing here: board ${this.#id} has no pins, or was not saved to yet.`);
    const pins = counted(shown.length, "pin", "pins");
    say(find("board-brief"), !board.hasBegun ? "" : board.hasEnded ? pins : `the first ${pins}`);
    find("board-more").hidden = !board.hasBegun || board.hasEnded || board.isFull;
    const full = `${counted(KEPT_MAX, "pin", "pins")} are as far as this page goes: End takes a pin to the bottom.`;
    say(find("board-tail"), shown.length === 0 ? "" : board.hasEnded ? `The end: ${pins}.` : board.isFull ? full : "");
  }
}
