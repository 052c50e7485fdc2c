/** What the page says of a board, and when it is read again. */

import { placePin, problemOf, readBoard } from "./api.js";
import { Board, Moves } from "./board.js";
import { find, say, showProblem } from "./elements.js";
import { Grid } from "./grid.js";
import { Rhythm } from "./rhythm.js";
import { Survey } from "./scale.js";
import { seen } from "./seen.js";
import { counted } from "./values.js";
import { Where, rounded } from "./where.js";

/** With what chance adds to it, and the time of an answer, less than 3 s. */
const LOOK_MS = 2_000;
/** The next page is asked for when an end of what was read is so near. */
const AHEAD_PX = 1_600;
/** Moves are answered at once, as a rule: that they wait is said if no answer comes for so long. */
const LATE_MS = 1_000;
/** So many looks after a survey that failed or found no pins, it is continued or made again: it takes fifty pages. */
const LOOKS_BETWEEN_SURVEYS = 15;

/** Has the browser ask before the tab is closed. */
const ask = (event) => event.preventDefault();

export class BoardView {
  #trouble;
  #id = null;
  #board = null;
  #moves = null;
  /** By its id, the moves of each board that was left before all of them were answered. */
  #left = new Map();
  #grid;
  #rhythm = new Rhythm(() => this.#look(), () => LOOK_MS);
  #reading = new AbortController();
  #read;
  #mayMove = false;
  #isLoading = false;
  /** Where to go next; null if it is there. */
  #wanted = null;
  #isJumping = false;
  /** What is found out of how the pins of the board are spread; null before it has begun, and after it has ended. */
  #survey = null;
  #isSurveying = false;
  /** The timer after which it is said that moves wait. */
  #late;
  /** How many looks come before the next survey. */
  #surveyIn = 0;
  #where;
  /** How they are spread; null if that is not known yet. */
  #scale = null;
  #hasFailed = false;
  /**
   * What became of the last move, if it was refused or is not known. It stays until another one is made, or something
   * else is shown.
   */
  #refusal = null;

  /** trouble(problem): is told the problem that all requests have, and null once there is none. */
  constructor(trouble) {
    this.#trouble = trouble;
    this.#grid = new Grid(find("grid"), {
      dropped: (line, where) => this.#move(line, where),
      said: (text) => say(find("said"), text),
      scrolled: () => {
        this.#tell();
        this.#fill();
      },
      jumped: (end) => this.#jump(end),
      over: (x, y) => this.#where.over(x, y),
      left: () => this.#where.leave(),
    });
    this.#where = new Where((start) => this.#jump(start));
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

  /** id: null if no board is shown. */
  show(id) {
    if (id !== null && id === this.#id) return;
    this.#reading.abort();
    this.#reading = new AbortController();
    const { signal } = this.#reading;
    if (this.#board?.isWaiting) this.#left.set(this.#id, this.#moves);
    this.#id = id;
    this.#grid.cancel();
    this.#refusal = null;
    this.#hasFailed = false;
    this.#isLoading = false;
    this.#wanted = null;
    this.#isJumping = false;
    this.#survey = null;
    this.#scale = null;
    this.#surveyIn = 0;
    this.#problem(null);
    if (id === null) {
      this.#board = null;
      return;
    }
    this.#read = (limit, where) => readBoard(id, limit, where, signal);
    // One that is sent again after a newer one would undo it: the newer one waits.
    this.#moves = this.#left.get(id) ?? new Moves((pin, where) => placePin(id, pin, where));
    this.#left.delete(id);
    const board = new Board(this.#read, this.#moves, (pin, problem) => {
      if (board === this.#board) this.#answered(pin, problem);
      else this.#answeredElsewhere(id, board, pin, problem);
    });
    this.#board = board;
    say(find("board-title"), `Board ${id}`);
    this.#draw();
    this.#rhythm.now();
  }

  /** refusal: the problem of those who may not write, or null. */
  allow(refusal) {
    this.#mayMove = refusal === null;
    // Where nothing can be read, that is said at the top.
    find("board-read-only").hidden = refusal?.status !== 403;
    find("board-keys").hidden = !this.#mayMove;
    if (refusal !== null) say(find("board-read-only"), `Read-only here: ${refusal.detail}.`);
    if (this.#board !== null) this.#draw();
  }

  async #look() {
    const board = this.#board;
    // A pin that is held is between two others: they stay where they are until it is dropped.
    if (board === null || this.#grid.isHolding) return;
    try {
      await board.look(...this.#grid.range);
    } catch (error) {
      if (board !== this.#board || this.#isOfOldCursors(error)) return;
      this.#problem(problemOf(error));
      throw error;
    }
    if (board !== this.#board) return;
    this.#hasFailed = false;
    this.#problem(null);
    if (!this.#grid.isHolding) this.#draw();
    if (board.shown.length > 0) seen.add(`board=${this.#id}`);
    this.#fill();
    if (this.#scale !== null || !board.hasBegun || board.hasEnd) return;
    if (this.#surveyIn > 0) this.#surveyIn -= 1;
    else this.#findOut();
  }

  /** Finds out how the board is spread. */
  async #findOut() {
    const board = this.#board;
    if (this.#isSurveying) return;
    this.#isSurveying = true;
    this.#survey ??= new Survey(this.#read);
    let [scale, problem] = [null, null];
    try {
      scale = await this.#survey.finish();
    } catch (error) {
      problem = problemOf(error);
    }
    this.#isSurveying = false;
    if (board !== this.#board) return;
    this.#scale = scale;
    this.#surveyIn = LOOKS_BETWEEN_SURVEYS;
    if (problem === null) this.#survey = null;
    else this.#problem(problem);
    this.#tell();
  }

  /** Reads on while an end of what was read is near. */
  #fill() {
    const board = this.#board;
    if (board === null || !board.hasBegun || this.#isJumping || this.#hasFailed) return;
    if (!board.hasEnd && this.#grid.below_px < AHEAD_PX) this.#more();
    else if (!board.hasTop && this.#grid.above_px < AHEAD_PX) this.#more("above");
  }

  async #more(where = "below") {
    const board = this.#board;
    if (this.#isLoading || board === null) return;
    this.#isLoading = true;
    try {
      await (where === "above" ? board.moreAbove() : board.more());
    } catch (error) {
      if (board === this.#board && !this.#isOfOldCursors(error)) {
        this.#hasFailed = true;
        this.#problem(problemOf(error));
      }
    }
    if (board !== this.#board) return;
    this.#isLoading = false;
    this.#draw();
    this.#fill();
  }

  /**
   * Whether the server no longer knows the cursors that it gave out. Then the board is read from what is on the screen:
   * a sequence stays good.
   */
  #isOfOldCursors(error) {
    const isUnknown = error.kind === "malformed-cursor";
    if (isUnknown && !this.#isJumping) this.#jump(this.#grid.visible?.sequence ?? "top");
    return isUnknown;
  }

  /** Shows another part of the board; of several that are asked for meanwhile, the last one. */
  async #jump(start) {
    const board = this.#board;
    this.#wanted = start;
    if (this.#isJumping || board === null) return;
    this.#isJumping = true;
    try {
      while (this.#wanted !== null) {
        const to = this.#wanted;
        this.#wanted = null;
        await board.jump(to);
        if (board !== this.#board) return;
        this.#grid.showElsewhere(board.shown, this.#state, to === "top" || to === "bottom" ? to : null);
        this.#draw();
      }
      this.#hasFailed = false;
      this.#problem(null);
    } catch (error) {
      if (board !== this.#board) return;
      this.#wanted = null;
      this.#problem(problemOf(error));
    }
    this.#isJumping = false;
    this.#fill();
  }

  #move(line, where) {
    this.#refusal = null;
    this.#problem(null);
    this.#board.move(line, where);
    this.#draw();
    this.#tellWaiting();
  }

  /** Says how many moves of this tab, of any board, have no answer yet. They would be lost with it: closing it asks. */
  #tellWaiting() {
    clearTimeout(this.#late);
    const boards = new Set([this.#moves, ...this.#left.values()]);
    const count = [...boards].reduce((sum, moves) => sum + moves.waiting.length, 0);
    const place = find("board-waiting");
    if (count === 0) {
      place.hidden = true;
      removeEventListener("beforeunload", ask);
      return;
    }
    addEventListener("beforeunload", ask);
    say(place, `${counted(count, "move", "moves")} not saved yet: keep this tab open.`);
    this.#late = setTimeout(() => (place.hidden = false), LATE_MS);
  }

  #answered(pin, problem) {
    this.#tellWaiting();
    if (problem !== null) this.#refused(`Pin ${pin}`, ", and is back", problem);
    this.#draw();
    if (!this.#board.isWaiting) this.#rhythm.now();
  }

  /** Of a move of a board that is not on the screen any more. */
  #answeredElsewhere(id, board, pin, problem) {
    if (!board.isWaiting) this.#left.delete(id);
    this.#tellWaiting();
    if (problem !== null) this.#refused(`Pin ${pin} of board ${id}`, "", problem);
  }

  #refused(which, andThen, problem) {
    let title = `${which} was not moved`;
    let said = `${title}${andThen}.`;
    let detail = `${problem.detail || problem.title}.`;
    if (problem.between.length > 0) detail += ` Between them: ${problem.between.join(", ")}.`;
    // A crowded board refuses before it moves anything; of the others of its kind that is not known.
    if (problem.isMaybeDone && problem.kind !== "board-crowded") {
      title = `${which} may have been moved`;
      said = `${title}.`;
      detail = `${problem.title}. The board shows where it is once it is read again.`;
    }
    this.#refusal = { title, detail, isForAll: false };
    say(find("said"), `${said} ${detail}`);
    this.#problem(null);
  }

  #problem(problem) {
    this.#trouble(problem);
    showProblem(find("board-problem"), problem === null || problem.isForAll ? this.#refusal : problem);
  }

  #draw() {
    const board = this.#board;
    const { shown } = board;
    this.#grid.show(shown, this.#state);
    find("board-empty").hidden = shown.length > 0 || !board.hasTop || !board.hasEnd;
    say(find("board-empty"), `Nothing here: board ${this.#id} has no pins, or was not saved to yet.`);
    find("board-more").hidden = !board.hasBegun || board.hasEnd;
    const all = board.top === null ? "" : `: ${counted(board.first + shown.length - board.top, "pin", "pins")}`;
    say(find("board-tail"), shown.length > 0 && board.hasEnd ? `The end${all}.` : "");
    this.#tell();
  }

  get #state() {
    const { first, top, hasTop, hasEnd } = this.#board;
    return { first, top, hasTop, hasEnd, mayMove: this.#mayMove };
  }

  /** Says which part of the board is on the screen. */
  #tell() {
    const board = this.#board;
    if (board === null) return;
    const isAll = board.hasTop && board.hasEnd;
    const { visible, place } = this.#grid;
    const scale = isAll ? null : this.#scale;
    this.#where.show(board.hasBegun && !isAll, scale, visible?.sequence ?? null);
    let brief = "";
    if (isAll) brief = counted(board.shown.length, "pin", "pins");
    else if (visible !== null && place !== null) brief = `from place ${place.toLocaleString("en")}`;
    else if (visible !== null && scale !== null) {
      brief = `from about place ${rounded(scale.placeOf(BigInt(visible.sequence))).toLocaleString("en")}`;
    }
    if (scale !== null) brief += ` of about ${rounded(scale.total).toLocaleString("en")}`;
    say(find("board-brief"), brief);
  }
}
