/**
 * The pins of a board as a grid, of which only the part near the screen is in the document. Pins are dragged by mouse,
 * by touch (after a long press), or by keyboard.
 */

import { make, say, time } from "./elements.js";
import { roomOf } from "./values.js";

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
 * dropped(pin, where): is called when a pin was put elsewhere. said(text): for those who do not see it.
 * scrolled(): is called when another part is on the screen.
 */
export class Grid {
  #box;
  #slot = make("div", { class: "slot", "aria-hidden": "true", hidden: "" });
  #dropped;
  #said;
  #scrolled;
  #lines = [];
  #cells = new Map();
  #mayMove = false;
  #hasEnded = false;
  /** The pin that the tab key leads to. */
  #stop = null;
  /** What a pointer is down on, and does not drag yet. */
  #press = null;
  /** What is being moved: { pin, from, at, to, pointer }; at: its position now. pointer: null if by keyboard. */
  #held = null;
  #isDrawing = false;
  #columns = 1;
  #cellWidth_px = CELL_MIN_PX;

  constructor(box, { dropped, said, scrolled }) {
    this.#box = box;
    this.#dropped = dropped;
    this.#said = said;
    this.#scrolled = scrolled;
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

  /** lines: from the top. hasEnded: whether there are no more below. */
  show(lines, { mayMove, hasEnded }) {
    this.#lines = lines;
    this.#mayMove = mayMove;
    this.#hasEnded = hasEnded;
    const { pin } = this.#held ?? {};
    if (pin !== undefined && !lines.some((line) => line.pin === pin)) this.cancel();
    this.#draw();
  }

  /** Whether the room between neighbours is shown. */
  set gaps(isShown) {
    this.#box.toggleAttribute("data-gaps", isShown);
    this.#draw();
  }

  /** The positions that are on the screen, or near it: the first and the last. */
  get range() {
    const [first, last] = this.#rows();
    return [first * this.#columns, Math.max(0, Math.min(this.#lines.length, (last + 1) * this.#columns) - 1)];
  }

  /** How far the end of what was read is below the screen. */
  get left_px() {
    return this.#box.getBoundingClientRect().bottom - innerHeight;
  }

  /** Puts a held pin back. */
  cancel() {
    const held = this.#held;
    if (held === null) return;
    this.#letGo();
    this.#said(`Pin ${held.pin} is back at place ${held.from + 1}.`);
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

  /** The lines, with the held one where it is held. */
  #order() {
    if (this.#held === null) return this.#lines;
    const { pin, at } = this.#held;
    const from = this.#lines.findIndex((line) => line.pin === pin);
    return from === at ? this.#lines : this.#lines.toSpliced(from, 1).toSpliced(at, 0, this.#lines[from]);
  }

  #draw() {
    const width = this.#box.clientWidth;
    if (width === 0) return;
    this.#columns = Math.max(1, Math.floor((width + SPACE_PX) / (CELL_MIN_PX + SPACE_PX)));
    this.#cellWidth_px = (width - SPACE_PX * (this.#columns - 1)) / this.#columns;
    const order = this.#order();
    const rows = Math.ceil(order.length / this.#columns);
    this.#box.style.height = `${rows * (CELL_HEIGHT_PX + SPACE_PX)}px`;
    const [first, last] = this.range;
    const focused = document.activeElement;
    const wasIn = cellOf(focused);
    const wanted = new Map();
    for (let at = first; at <= last && at < order.length; at += 1) wanted.set(order[at].pin, at);
    for (const [pin, cell] of this.#cells) {
      // What is held or has the focus stays: without it, neither would be known any more.
      if (!wanted.has(pin) && (cell === focused || pin === this.#held?.pin)) {
        const at = order.findIndex((line) => line.pin === pin);
        if (at >= 0) wanted.set(pin, at);
      }
      if (!wanted.has(pin)) {
        if (pin === this.#stop) this.#stop = order[cell.getAttribute("aria-posinset") - 1]?.pin ?? order.at(-1)?.pin;
        cell.remove();
        this.#cells.delete(pin);
      }
    }
    const inOrder = [...wanted].sort(([, one], [, other]) => one - other);
    for (const [pin, at] of inOrder) this.#put(this.#cell(order[at]), at, order[at], order[at + 1]);
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

  #xy(at) {
    const column = at % this.#columns;
    return [column * (this.#cellWidth_px + SPACE_PX), Math.floor(at / this.#columns) * (CELL_HEIGHT_PX + SPACE_PX)];
  }

  #place(element, at) {
    const [x, y] = this.#xy(at);
    element.style.width = `${this.#cellWidth_px}px`;
    element.style.transform = `translate(${x}px, ${y}px)`;
  }

  #put(cell, at, line, below) {
    if (this.#held?.pin !== line.pin || !this.#held.pointer) this.#place(cell, at);
    cell.setAttribute("aria-posinset", at + 1);
    cell.setAttribute("aria-setsize", this.#hasEnded ? this.#lines.length : -1);
    cell.toggleAttribute("data-moved", line.moved_ms !== null);
    cell.toggleAttribute("data-movable", this.#mayMove);
    const room = below === undefined ? null : roomOf(line.sequence, below.sequence);
    const gap = cell.querySelector(".gap");
    gap.hidden = room === null;
    if (room === null) return;
    gap.dataset.level = room < ROOM_LOW ? "bad" : room < ROOM_RESTORED ? "warn" : "good";
    gap.firstElementChild.style.width = `${(100 * Math.min(Math.max(room, 0), ROOM_MAX)) / ROOM_MAX}%`;
    say(gap.lastElementChild, room < 0 ? "no room below" : `room ${room} below`);
  }

  #cell(line) {
    let cell = this.#cells.get(line.pin);
    if (cell === undefined) {
      cell = make(
        "div",
        { class: "cell", role: "option", "aria-selected": "false", "data-pin": line.pin, "aria-label": `Pin ${line.pin}`, tabindex: "-1" },
        make("span", { class: "cover", "aria-hidden": "true" }, line.pin.slice(-2)),
        make("span", { class: "pin" }, line.pin),
        time(line.created_ms),
        make("span", { class: "gap" }, make("span", { class: "bar" }), make("span", { class: "bits" })),
      );
      cell.style.setProperty("--hue", Number(BigInt(line.pin) % 360n) * 137);
      this.#place(cell, this.#lines.indexOf(line));
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
      const above = Math.max(0, EDGE_PX - pointer.y);
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
    this.#cells.get(held.pin).style.transform = `translate(${x}px, ${y}px)`;
    const column = Math.round(x / (this.#cellWidth_px + SPACE_PX));
    const row = Math.round(y / (CELL_HEIGHT_PX + SPACE_PX));
    this.#hold(row * this.#columns + Math.min(Math.max(column, 0), this.#columns - 1));
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
    const at = isHeld ? this.#held.at : this.#lines.findIndex((line) => line.pin === this.#stop);
    const last = this.#lines.length - 1;
    const page = this.#columns * Math.max(1, Math.floor(innerHeight / (CELL_HEIGHT_PX + SPACE_PX)) - 1);
    const target = {
      ArrowLeft: at - 1,
      ArrowRight: at + 1,
      ArrowUp: at - this.#columns,
      ArrowDown: at + this.#columns,
      PageUp: at - page,
      PageDown: at + page,
      Home: 0,
      End: last,
    }[key];
    if (target === undefined) return false;
    const to = Math.min(Math.max(target, 0), last);
    if (isHeld) {
      this.#hold(to, { Home: "top", End: "bottom" }[key]);
      this.#reveal(to);
    } else {
      this.#reveal(to);
      this.#stop = this.#lines[to].pin;
      this.#draw();
      this.#cells.get(this.#stop).focus({ preventScroll: true });
    }
    return true;
  }

  /** Scrolls until a position is on the screen. */
  #reveal(at) {
    const top = this.#box.getBoundingClientRect().top + this.#xy(at)[1];
    if (top < EDGE_PX) scrollBy({ top: top - EDGE_PX, behavior: "instant" });
    const over = top + CELL_HEIGHT_PX + SPACE_PX - innerHeight;
    if (over > 0) scrollBy({ top: over, behavior: "instant" });
    this.#draw();
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
    const from = this.#lines.findIndex((line) => line.pin === pin);
    this.#held = { pin, from, at: from, to: undefined, pointer };
    this.#cells.get(pin).setAttribute("data-held", pointer === null ? "keys" : "pointer");
    this.#cells.get(pin).setAttribute("aria-selected", "true");
    document.body.toggleAttribute("data-dragging", pointer !== null);
    this.#said(`Pin ${pin} picked up at place ${from + 1}. Arrow keys move it, space drops it, Escape puts it back.`);
    this.#draw();
    return true;
  }

  /** to: top or bottom, if that is meant. */
  #hold(position, to) {
    const at = Math.min(Math.max(position, 0), this.#lines.length - 1);
    if (at === this.#held.at && to === this.#held.to) return;
    this.#held.at = at;
    this.#held.to = to;
    this.#said(to === undefined ? `Place ${at + 1}${this.#between(at)}.` : `At the ${to} of the board.`);
    this.#draw();
  }

  #neighbours(at) {
    const order = this.#order();
    return { before: order[at - 1]?.pin, after: order[at + 1]?.pin };
  }

  #between(at) {
    const { before, after } = this.#neighbours(at);
    return `${before === undefined ? "" : `, below pin ${before}`}${after === undefined ? "" : `, above pin ${after}`}`;
  }

  #drop() {
    const { pin, from, at, to } = this.#held;
    const where = to === undefined ? this.#neighbours(at) : { to };
    if (to === undefined && at === from) {
      this.cancel();
      return;
    }
    this.#letGo();
    this.#said(to === undefined ? `Pin ${pin} dropped at place ${at + 1}.` : `Pin ${pin} dropped at the ${to}.`);
    this.#dropped(pin, where);
    this.#draw();
  }

  #letGo() {
    const { pin, pointer } = this.#held;
    this.#held = null;
    document.body.removeAttribute("data-dragging");
    this.#cells.get(pin)?.removeAttribute("data-held");
    this.#cells.get(pin)?.setAttribute("aria-selected", "false");
    if (pointer !== null && this.#box.hasPointerCapture(pointer.id)) this.#box.releasePointerCapture(pointer.id);
  }
}

const cellOf = (element) => element?.closest?.(".cell") ?? null;
