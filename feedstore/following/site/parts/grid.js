/**
 * The pins of a board as a grid, of which only the part near the screen is in the document. Pins are dragged by mouse,
 * by touch (after a long press), or by keyboard.
 */

import { make, say, time } from "./elements.js";
import { counted, roomOf } from "./values.js";

const CELL_MIN_PX = 150;
const CELL_HEIGHT_PX = 132;
const SPACE_PX = 12;
/** How many rows above and below the screen are in the document. */
const ROWS_AROUND = 4;
/** A mouse that moves so far drags; a finger that moves so far before it has pressed long enough scrolls. */
const DRAG_PX = 6;
const SCROLL_PX = 10;
const PRESS_MS = 300;
/** So near to an edge of the screen a drag scrolls, by at most so much a frame. */
const EDGE_PX = 90;
const EDGE_SPEED_PX = 28;
/** What workers ask for room at, and what they restore. */
const ROOM_LOW = 10;
const ROOM_RESTORED = 40;
const ROOM_MAX = 83;

/**
 * dropped(line, where): is called when a pin was put elsewhere. said(text): for those who do not see it.
 * scrolled(): is called when another part is on the screen. jumped(end): asks for the top or the bottom of the board.
 * over(x, y): what else a held pin is over: { to: "top" | "bottom" }, if a drop there means that; {}; or null. left():
 * is called when it is held no more.
 */
export class Grid {
  #box;
  #slot = make("div", { class: "slot", "aria-hidden": "true", hidden: "" });
  #dropped;
  #said;
  #scrolled;
  #jumped;
  #over;
  #left;
  #lines = [];
  /** The position of the first line, and of the topmost pin of the board: null while it is not known. */
  #first = 0;
  #top = null;
  #cells = new Map();
  #mayMove = false;
  #hasTop = false;
  #hasEnd = false;
  /** The pin that the tab key leads to. */
  #stop = null;
  /** What a pointer is down on, and does not drag yet. */
  #press = null;
  /**
   * What is being moved: { line, from, at, to, pointer }. at: its position now. from: the one that it had, null if that
   * is elsewhere. pointer: null if by keyboard.
   */
  #held = null;
  #isDrawing = false;
  #columns = 1;
  #cellWidth_px = CELL_MIN_PX;
  /** The position in the first column of the first row. */
  #origin = 0;

  constructor(box, { dropped, said, scrolled, jumped, over, left }) {
    this.#box = box;
    this.#dropped = dropped;
    this.#said = said;
    this.#scrolled = scrolled;
    this.#jumped = jumped;
    this.#over = over;
    this.#left = left;
    box.append(this.#slot);
    box.addEventListener("pointerdown", (event) => this.#pressed(event));
    box.addEventListener("pointermove", (event) => this.#pointed(event));
    box.addEventListener("pointerup", (event) => this.#released(event));
    box.addEventListener("pointercancel", () => this.#cancelPointer());
    box.addEventListener("lostpointercapture", () => this.#cancelPointer());
    box.addEventListener("contextmenu", (event) => (this.#press ?? this.#held)?.pointer?.type === "touch" && event.preventDefault());
    // A held pin is not scrolled away by the finger that holds it.
    box.addEventListener("touchmove", (event) => this.#held !== null && event.preventDefault(), { passive: false });
    box.addEventListener("keydown", (event) => this.#key(event));
    box.addEventListener("focusin", (event) => this.#focused(event.target));
    box.addEventListener("focusout", () => this.#held?.pointer === null && this.cancel());
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.cancel());
    addEventListener("scroll", () => this.#soon(), { passive: true });
    new ResizeObserver(() => this.#soon()).observe(box);
  }

  get isHolding() {
    return this.#held !== null;
  }

  /**
   * lines: from the top. first: the position of the first of them. top: that of the topmost pin of the board, null if it
   * is not known. hasTop, hasEnd: whether there are no more above, and below.
   */
  show(lines, state) {
    const layout = this.#layout;
    this.#set(lines, state);
    this.#draw(layout);
  }

  /** As `show`, of another part of the board. to: the end that it is at, or null: then its first pin is shown first. */
  showElsewhere(lines, state, to) {
    const wasIn = cellOf(document.activeElement) !== null;
    this.#set(lines, state);
    const held = this.#held;
    if (held !== null) {
      held.from = null;
      held.at = this.#first;
      if (to === "bottom") held.at = this.#last();
    }
    this.#lay();
    if (to === "top") scrollTo({ top: 0, behavior: "instant" });
    else if (to === "bottom") scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
    else scrollBy({ top: this.#box.getBoundingClientRect().top - EDGE_PX, behavior: "instant" });
    this.#stop = held?.line.pin ?? (to === "bottom" ? lines.at(-1) : lines[0])?.pin ?? null;
    this.#draw();
    this.#follow();
    if (wasIn && held === null) this.#focus();
  }

  #set(lines, { first, top, hasTop, hasEnd, mayMove }) {
    this.#lines = lines;
    this.#first = first;
    this.#top = top;
    this.#hasTop = hasTop;
    this.#hasEnd = hasEnd;
    this.#mayMove = mayMove;
    const held = this.#held;
    if (held === null) return;
    // The pin that is held was left behind: the rest of the board may be far from where it was.
    if (!lines.some((line) => line.pin === held.line.pin)) held.from = null;
    // So were the two that it is held between: it is held at the end of what is there.
    held.at = this.#nearest(held.at);
  }

  /** Whether the room between neighbours is shown. */
  set gaps(isShown) {
    this.#box.toggleAttribute("data-gaps", isShown);
    this.#draw();
  }

  /** The positions that are on the screen, or near it: the first and the last. */
  get range() {
    const [first, last] = this.#rows();
    const end = this.#first + Math.max(this.#lines.length - 1, 0);
    const inside = (position) => Math.min(Math.max(position, this.#first), end);
    return [inside(this.#origin + first * this.#columns), inside(this.#origin + (last + 1) * this.#columns - 1)];
  }

  /** How far what was read reaches above the screen, and below it. */
  get above_px() {
    return -this.#box.getBoundingClientRect().top;
  }

  get below_px() {
    return this.#box.getBoundingClientRect().bottom - innerHeight;
  }

  /** The first line that is on the screen as a whole; null if there is none. */
  get visible() {
    return this.#lines[this.#topmost() - this.#first] ?? null;
  }

  /** The place of that line on the board, from 1; null if it is not known. */
  get place() {
    return this.#top === null ? null : this.#topmost() - this.#top + 1;
  }

  /** Puts a held pin back. */
  cancel() {
    const held = this.#held;
    if (held === null) return;
    this.#letGo();
    this.#said(`Pin ${held.line.pin} is back${held.from === null ? "" : this.#atPlace(held.from)}.`);
    this.#draw();
  }

  // Drawing
  // ---------------------------------------------------------------------------------------------------------------

  #soon() {
    if (this.#isDrawing) return;
    this.#isDrawing = true;
    requestAnimationFrame(() => {
      this.#isDrawing = false;
      this.#follow();
      this.#draw();
      this.#scrolled();
    });
  }

  #rows() {
    const top = -this.#box.getBoundingClientRect().top;
    const height = CELL_HEIGHT_PX + SPACE_PX;
    return [Math.max(0, Math.floor(top / height) - ROWS_AROUND), Math.floor((top + innerHeight) / height) + ROWS_AROUND];
  }

  #topmost() {
    const row = Math.max(0, Math.ceil((this.above_px + EDGE_PX / 2) / (CELL_HEIGHT_PX + SPACE_PX)));
    return Math.max(this.#first, this.#origin + row * this.#columns);
  }

  /** The lines, with the held one where it is held. */
  #order() {
    if (this.#held === null) return this.#lines;
    const { line, at } = this.#held;
    return this.#lines.filter((each) => each.pin !== line.pin).toSpliced(at - this.#first, 0, line);
  }

  get #layout() {
    return { columns: this.#columns, origin: this.#origin, first: this.#first };
  }

  /** The topmost pin of the board is in the first column, so that rows are where they are whatever was read of it. */
  #lay() {
    const width = this.#box.clientWidth;
    this.#columns = Math.max(1, Math.floor((width + SPACE_PX) / (CELL_MIN_PX + SPACE_PX)));
    this.#cellWidth_px = (width - SPACE_PX * (this.#columns - 1)) / this.#columns;
    const top = this.#top ?? 0;
    this.#origin = top + Math.floor((this.#first - top) / this.#columns) * this.#columns;
    const rows = Math.ceil((this.#last() + 1 - this.#origin) / this.#columns);
    this.#box.style.height = `${rows * (CELL_HEIGHT_PX + SPACE_PX)}px`;
  }

  /** Keeps what is on the screen where it is when lines came or went above it, or rows became longer. */
  #keep(before, above_px) {
    const height = CELL_HEIGHT_PX + SPACE_PX;
    const row = Math.max(0, Math.floor(above_px / height));
    const position = Math.max(before.first, before.origin + before.columns * row);
    const rows = Math.floor((position - this.#origin) / this.#columns) - Math.floor((position - before.origin) / before.columns);
    if (rows === 0) return;
    this.#box.toggleAttribute("data-still", true);
    scrollBy({ top: above_px + rows * height - this.above_px, behavior: "instant" });
  }

  #draw(before = this.#layout) {
    if (this.#box.clientWidth === 0) return;
    const above_px = this.above_px;
    this.#lay();
    this.#keep(before, above_px);
    const order = this.#order();
    const [from, until] = this.range;
    const focused = document.activeElement;
    const wasIn = cellOf(focused);
    const wanted = new Map();
    for (let at = from - this.#first; at <= until - this.#first + 1 && at < order.length; at += 1) wanted.set(order[at].pin, at);
    for (const [pin, cell] of this.#cells) {
      // What is held or has the focus stays: without it, neither would be known any more.
      if (!wanted.has(pin) && (cell === focused || pin === this.#held?.line.pin)) {
        const at = order.findIndex((line) => line.pin === pin);
        if (at >= 0) wanted.set(pin, at);
      }
      if (!wanted.has(pin)) {
        if (pin === this.#stop) this.#stop = order[cell.dataset.at - this.#first]?.pin ?? order.at(-1)?.pin ?? null;
        cell.remove();
        this.#cells.delete(pin);
      }
    }
    const inOrder = [...wanted].sort(([, one], [, other]) => one - other);
    for (const [, at] of inOrder) this.#put(this.#cell(order[at], this.#first + at), this.#first + at, order[at], order[at + 1]);
    if (this.#box.hasAttribute("data-still")) {
      void this.#box.offsetHeight; // the cells are where they belong before they may glide again
      this.#box.toggleAttribute("data-still", false);
    }
    if (this.#held === null) this.#sort(inOrder.map(([pin]) => this.#cells.get(pin)), focused);
    if (!wanted.has(this.#stop)) this.#stop = inOrder[0]?.[0] ?? null;
    for (const [pin, cell] of this.#cells) cell.tabIndex = pin === this.#stop ? 0 : -1;
    if (wasIn !== null && !wasIn.isConnected) this.#cells.get(this.#stop)?.focus({ preventScroll: true });
    const slot = this.#held?.pointer ? this.#held : null;
    this.#slot.hidden = slot === null;
    if (slot !== null) this.#place(this.#slot, slot.at);
  }

  /** Puts the elements in the order of the pins, for those who hear them one after the other. */
  #sort(cells, focused) {
    let next = this.#slot.nextElementSibling;
    for (const cell of cells) {
      if (cell === next) next = next.nextElementSibling;
      else if (this.#box.moveBefore) this.#box.moveBefore(cell, next);
      else this.#box.insertBefore(cell, next);
    }
    if (this.#box.contains(focused) && document.activeElement !== focused) focused.focus({ preventScroll: true });
  }

  #xy(position) {
    const at = position - this.#origin;
    const column = at % this.#columns;
    return [column * (this.#cellWidth_px + SPACE_PX), Math.floor(at / this.#columns) * (CELL_HEIGHT_PX + SPACE_PX)];
  }

  #place(element, at) {
    const [x, y] = this.#xy(at);
    element.style.width = `${this.#cellWidth_px}px`;
    element.style.transform = `translate(${x}px, ${y}px)`;
  }

  #put(cell, at, line, below) {
    if (this.#held?.line.pin !== line.pin || !this.#held.pointer) this.#place(cell, at);
    cell.dataset.at = at;
    if (this.#top === null) cell.removeAttribute("aria-posinset");
    else cell.setAttribute("aria-posinset", at - this.#top + 1);
    const isCounted = this.#top !== null && this.#hasEnd;
    cell.setAttribute("aria-setsize", isCounted ? this.#first + this.#lines.length - this.#top : -1);
    cell.toggleAttribute("data-moved", line.moved_ms !== null);
    cell.toggleAttribute("data-movable", this.#mayMove);
    const room = below === undefined ? null : roomOf(line.sequence, below.sequence);
    const gap = cell.querySelector(".gap");
    gap.hidden = room === null;
    if (room === null) return;
    gap.dataset.level = room < ROOM_LOW ? "bad" : room < ROOM_RESTORED ? "warn" : "good";
    gap.firstElementChild.style.width = `${(100 * Math.min(Math.max(room, 0), ROOM_MAX)) / ROOM_MAX}%`;
    say(gap.lastElementChild, room < 0 ? "no room for moves" : `room for ${counted(room, "move", "moves")}`);
  }

  #cell(line, at) {
    let cell = this.#cells.get(line.pin);
    if (cell === undefined) {
      cell = make(
        "div",
        { class: "cell", role: "option", "aria-selected": "false", "data-pin": line.pin, tabindex: "-1" },
        make("span", { class: "cover" }, unseen("Pin "), make("span", { class: "pin" }, line.pin)),
        time(line.created_ms),
        make("span", { class: "gap" }, make("span", { class: "bar" }), make("span", { class: "bits" })),
      );
      cell.style.setProperty("--digits", line.pin.length);
      cell.style.setProperty("--hue", Number(BigInt(line.pin) % 360n) * 137);
      this.#place(cell, at);
      this.#cells.set(line.pin, cell);
      this.#box.append(cell);
    }
    return cell;
  }

  // By pointer
  // ---------------------------------------------------------------------------------------------------------------

  #pressed(event) {
    const cell = cellOf(event.target);
    if (cell === null || event.button !== 0 || !event.isPrimary || this.#held !== null) return;
    const pointer = { id: event.pointerId, type: event.pointerType, x: event.clientX, y: event.clientY };
    this.#press = { pin: cell.dataset.pin, pointer };
    cell.focus({ preventScroll: true });
    if (event.pointerType === "mouse") event.preventDefault();
    else this.#press.timer = setTimeout(() => this.#grab(), PRESS_MS);
  }

  #pointed(event) {
    const { pointer } = this.#held ?? this.#press ?? {};
    if (pointer?.id !== event.pointerId) return;
    if (this.#held !== null) {
      pointer.x = event.clientX;
      pointer.y = event.clientY;
      this.#follow();
      return;
    }
    if (event.buttons === 0) {
      this.#unpress(); // it was released outside of the grid
      return;
    }
    const far_px = Math.hypot(event.clientX - pointer.x, event.clientY - pointer.y);
    if (pointer.type === "mouse" && far_px > DRAG_PX) this.#grab();
    else if (pointer.type !== "mouse" && far_px > SCROLL_PX) this.#unpress();
  }

  #grab() {
    const { pin, pointer } = this.#press;
    this.#unpress();
    const cell = this.#cells.get(pin);
    if (cell === undefined || !this.#pickUp(pin, pointer)) return;
    const box = cell.getBoundingClientRect();
    pointer.dx = pointer.x - box.left;
    pointer.dy = pointer.y - box.top;
    this.#box.setPointerCapture(pointer.id);
    this.#follow();
    const scroll = () => {
      if (this.#held?.pointer !== pointer) return;
      const above = this.#over(pointer.x, pointer.y) === null ? Math.max(0, EDGE_PX - pointer.y) : 0;
      const below = Math.max(0, pointer.y - (innerHeight - EDGE_PX));
      if (above > 0 || below > 0) scrollBy(0, Math.min(1, (above + below) / EDGE_PX) * (below > 0 ? EDGE_SPEED_PX : -EDGE_SPEED_PX));
      requestAnimationFrame(scroll);
    };
    requestAnimationFrame(scroll);
  }

  /** Takes the held pin to where the pointer is, and the others out of its way. */
  #follow() {
    const held = this.#held;
    if (!held?.pointer) return;
    const box = this.#box.getBoundingClientRect();
    const [x, y] = [held.pointer.x - box.left - held.pointer.dx, held.pointer.y - box.top - held.pointer.dy];
    const cell = this.#cells.get(held.line.pin);
    if (cell !== undefined) cell.style.transform = `translate(${x}px, ${y}px)`;
    const over = this.#over(held.pointer.x, held.pointer.y);
    if (over !== null) {
      this.#hold(held.at, over.to);
      return;
    }
    const column = Math.round(x / (this.#cellWidth_px + SPACE_PX));
    const row = Math.round(y / (CELL_HEIGHT_PX + SPACE_PX));
    this.#hold(this.#origin + row * this.#columns + Math.min(Math.max(column, 0), this.#columns - 1));
  }

  #released(event) {
    this.#unpress();
    if (this.#held?.pointer?.id === event.pointerId) this.#drop();
  }

  #unpress() {
    clearTimeout(this.#press?.timer);
    this.#press = null;
  }

  #cancelPointer() {
    this.#unpress();
    if (this.#held?.pointer) this.cancel();
  }

  // By keyboard
  // ---------------------------------------------------------------------------------------------------------------

  #key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || this.#held?.pointer) return;
    const cell = cellOf(document.activeElement);
    if (cell === null) return;
    const isHeld = this.#held !== null;
    if (event.key === " " || event.key === "Enter") {
      if (isHeld) this.#drop();
      else this.#pickUp(cell.dataset.pin, null);
    } else if (!this.#go(event.key, isHeld)) return;
    event.preventDefault();
  }

  /** Moves the held pin, or the focus. Returns whether the key does that. */
  #go(key, isHeld) {
    const at = isHeld ? this.#held.at : this.#first + this.#lines.findIndex((line) => line.pin === this.#stop);
    const page = this.#columns * Math.max(1, Math.floor(innerHeight / (CELL_HEIGHT_PX + SPACE_PX)) - 1);
    const target = {
      ArrowLeft: at - 1,
      ArrowRight: at + 1,
      ArrowUp: at - this.#columns,
      ArrowDown: at + this.#columns,
      PageUp: at - page,
      PageDown: at + page,
      Home: this.#first,
      End: this.#last(),
    }[key];
    if (target === undefined) return false;
    const to = this.#nearest(target);
    const end = { Home: "top", End: "bottom" }[key];
    if (isHeld) {
      this.#hold(to, end);
      this.#reveal(to);
    } else {
      this.#reveal(to);
      this.#stop = this.#lines[to - this.#first].pin;
      this.#draw();
      this.#focus();
    }
    if ((end === "top" && !this.#hasTop) || (end === "bottom" && !this.#hasEnd)) this.#jumped(end);
    return true;
  }

  /** The last position that there is; with a held pin from elsewhere, there is one more. */
  #last() {
    return this.#first + this.#order().length - 1;
  }

  /** The nearest position that there is. */
  #nearest(position) {
    return Math.min(Math.max(position, this.#first), this.#last());
  }

  /** Scrolls until a position is on the screen. */
  #reveal(at) {
    const top = this.#box.getBoundingClientRect().top + this.#xy(at)[1];
    if (top < EDGE_PX) scrollBy({ top: top - EDGE_PX, behavior: "instant" });
    const over = top + CELL_HEIGHT_PX + SPACE_PX - innerHeight;
    if (over > 0) scrollBy({ top: over, behavior: "instant" });
    this.#draw();
  }

  #focus() {
    this.#cells.get(this.#stop)?.focus({ preventScroll: true });
  }

  #focused(target) {
    const cell = cellOf(target);
    if (cell === null || cell.dataset.pin === this.#stop) return;
    if (this.#cells.has(this.#stop)) this.#cells.get(this.#stop).tabIndex = -1;
    this.#stop = cell.dataset.pin;
    cell.tabIndex = 0;
  }

  // Holding
  // ---------------------------------------------------------------------------------------------------------------

  #pickUp(pin, pointer) {
    if (!this.#mayMove) {
      this.#said("Pins cannot be moved here: read-only.");
      return false;
    }
    const line = this.#lines.find((each) => each.pin === pin);
    const from = this.#first + this.#lines.indexOf(line);
    this.#held = { line, from, at: from, to: undefined, pointer };
    this.#cells.get(pin).setAttribute("data-held", pointer === null ? "keys" : "pointer");
    this.#cells.get(pin).setAttribute("aria-selected", "true");
    document.body.toggleAttribute("data-dragging", pointer !== null);
    this.#said(`Pin ${pin} picked up${this.#atPlace(from)}. Arrow keys move it, space drops it, Escape puts it back.`);
    this.#draw();
    return true;
  }

  /** to: top or bottom, if that is meant. */
  #hold(position, to) {
    const at = this.#nearest(position);
    if (at === this.#held.at && to === this.#held.to) return;
    this.#held.at = at;
    this.#held.to = to;
    this.#said(to === undefined ? `${this.#spot(at)}.` : `At the ${to} of the board.`);
    this.#draw();
  }

  #neighbours(at) {
    const order = this.#order();
    return { before: order[at - this.#first - 1]?.pin, after: order[at - this.#first + 1]?.pin };
  }

  /** What is said of a position: its place on the board is known only if everything above was counted. */
  #atPlace(at) {
    return this.#top === null ? "" : ` at place ${at - this.#top + 1}`;
  }

  #spot(at) {
    const between = this.#between(at);
    return this.#top === null ? `Held${between}` : `Place ${at - this.#top + 1}${between}`;
  }

  #between(at) {
    const { before, after } = this.#neighbours(at);
    return `${before === undefined ? "" : `, below pin ${before}`}${after === undefined ? "" : `, above pin ${after}`}`;
  }

  #drop() {
    const { line, from, at, to } = this.#held;
    const { pin } = line;
    const where = to === undefined ? this.#neighbours(at) : { to };
    if (to === undefined && at === from) {
      this.cancel();
      return;
    }
    this.#letGo();
    this.#said(to === undefined ? `Pin ${pin} dropped${this.#atPlace(at)}.` : `Pin ${pin} dropped at the ${to}.`);
    this.#dropped(line, where);
    this.#draw();
  }

  #letGo() {
    const { line, pointer } = this.#held;
    const { pin } = line;
    this.#held = null;
    this.#left();
    document.body.removeAttribute("data-dragging");
    this.#cells.get(pin)?.removeAttribute("data-held");
    this.#cells.get(pin)?.setAttribute("aria-selected", "false");
    if (pointer !== null && this.#box.hasPointerCapture(pointer.id)) this.#box.releasePointerCapture(pointer.id);
  }
}

const unseen = (text) => make("span", { class: "unseen" }, text);
const cellOf = (element) => element?.closest?.(".cell") ?? null;
