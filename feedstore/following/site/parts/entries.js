/** The list of a feed: its entries, which of them is chosen, and how the keys move through them. */

import { linkTo, make, time } from "./elements.js";

const POINTED_MS = 120;
/** As in style.css: here why an entry is chosen comes in front of a part of the list, and must not under a pointer. */
const narrow = matchMedia("(max-width: 82rem)");

/**
 * chosen(entry): is called with the entry that was gone to by keyboard, clicked or tapped, or pointed at if the screen
 * is wide; and with null when none is any more: it has left, or was tapped again.
 *
 * What a reader looks at stays where it is on the screen while entries come and go above it.
 */
export class Entries {
  #box;
  #chosen;
  #rows = new Map();
  #entries = new Map();
  #pin = null;
  #pointing;
  /** Whether the finger came down on the row that was chosen already. */
  #isAgain = false;

  constructor(box, chosen) {
    this.#box = box;
    this.#chosen = chosen;
    // A pointer has chosen nothing before it is up again: what opens meanwhile would take the click.
    box.addEventListener("focusin", ({ target }) => target.matches(":focus-visible") && this.#choose(rowOf(target)));
    box.addEventListener("pointerdown", (event) => this.#press(event));
    box.addEventListener("click", (event) => this.#tap(event));
    box.addEventListener("pointermove", (event) => this.#point(event));
    box.addEventListener("pointerleave", () => clearTimeout(this.#pointing));
    box.addEventListener("keydown", (event) => this.#go(event));
  }

  /** Shows entries: rows that were there stay the same elements. */
  show(entries) {
    const anchor = this.#anchor(entries);
    const was_px = anchor?.getBoundingClientRect().top;
    const focused = this.#box.contains(document.activeElement) ? rowOf(document.activeElement) : null;
    const below = focused === null ? null : this.#below(focused, entries);
    this.#entries = new Map(entries.map((entry) => [entry.pin, entry]));
    for (const [pin, row] of this.#rows) {
      if (!this.#entries.has(pin)) {
        row.remove();
        this.#rows.delete(pin);
      }
    }
    let next = this.#box.firstElementChild;
    let position = 0;
    for (const entry of entries) {
      const row = this.#row(entry);
      position += 1;
      row.setAttribute("aria-posinset", position);
      if (row === next) next = next.nextElementSibling;
      else this.#box.insertBefore(row, next);
    }
    if (anchor !== undefined && scrollY > 0) scrollBy(0, anchor.getBoundingClientRect().top - was_px);
    if (this.#pin !== null && !this.#entries.has(this.#pin)) this.#leave();
    if (focused !== null && !focused.isConnected) (below ?? this.#box).focus({ preventScroll: true });
    this.#keepOneStop();
  }

  /** Puts the focus on the first entry, and chooses it if the screen is wide. */
  enter() {
    const first = this.#box.firstElementChild;
    (first ?? this.#box).focus();
    if (!narrow.matches) this.#choose(first);
  }

  leave() {
    if (this.#pin !== null) this.#leave();
  }

  /** As `leave`, with the focus on the entry that was chosen: what had it is gone. */
  back() {
    this.#rows.get(this.#pin)?.focus({ preventScroll: true });
    this.leave();
  }

  #leave() {
    this.#rows.get(this.#pin)?.removeAttribute("data-chosen");
    this.#pin = null;
    this.#chosen(null);
  }

  #choose(row) {
    if (row === null || row.dataset.pin === this.#pin) return;
    this.#rows.get(this.#pin)?.removeAttribute("data-chosen");
    this.#pin = row.dataset.pin;
    row.setAttribute("data-chosen", "");
    this.#keepOneStop();
    this.#chosen(this.#entries.get(this.#pin));
  }

  #press(event) {
    const row = rowOf(event.target);
    this.#isAgain = event.pointerType === "touch" && row !== null && row.dataset.pin === this.#pin;
  }

  #tap(event) {
    const row = rowOf(event.target);
    if (row === null) return;
    if (this.#isAgain) {
      this.#leave();
      return;
    }
    row.focus({ preventScroll: true });
    this.#choose(row);
    if (narrow.matches) row.scrollIntoView({ block: "nearest" });
  }

  #point(event) {
    // A pointer that rests while the list is scrolled below it points at nothing.
    const isMoved = event.movementX !== 0 || event.movementY !== 0;
    if (event.pointerType !== "mouse" || !isMoved || narrow.matches) return;
    clearTimeout(this.#pointing);
    const row = rowOf(event.target);
    if (row !== null) this.#pointing = setTimeout(() => row.isConnected && this.#choose(row), POINTED_MS);
  }

  #go(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "Escape") {
      this.leave();
      return;
    }
    const row = rowOf(document.activeElement);
    const to = {
      ArrowDown: () => row?.nextElementSibling ?? (row === null ? this.#box.firstElementChild : null),
      ArrowUp: () => row?.previousElementSibling,
      Home: () => this.#box.firstElementChild,
      End: () => this.#box.lastElementChild,
    };
    const target = { j: to.ArrowDown, k: to.ArrowUp, ...to }[event.key]?.();
    if (target === undefined || target === null) return;
    event.preventDefault();
    target.focus({ preventScroll: true });
    target.scrollIntoView({ block: "nearest" });
  }

  #row(entry) {
    let row = this.#rows.get(entry.pin);
    if (row === undefined) {
      row = make(
        "article",
        { "data-pin": entry.pin, "aria-setsize": "-1", "aria-label": `Pin ${entry.pin}`, tabindex: "-1" },
        make("span", { class: "pin" }, entry.pin),
        make("span", { class: "owner" }, make("span", { class: "kind" }, "user "), inRow("user", entry.owner)),
        make("span", { class: "board" }, make("span", { class: "kind" }, "board "), inRow("board", entry.board)),
        time(entry.created_ms),
      );
      this.#rows.set(entry.pin, row);
    }
    return row;
  }

  /** One entry is where the tab key goes: the chosen one, or the first. */
  #keepOneStop() {
    for (const row of this.#box.querySelectorAll('[tabindex="0"]')) row.tabIndex = -1;
    const row = this.#rows.get(this.#pin) ?? this.#box.firstElementChild;
    if (row) row.tabIndex = 0;
  }

  /** The first row on the screen that stays. */
  #anchor(entries) {
    const staying = new Set(entries.map((entry) => entry.pin));
    for (const row of this.#box.children) {
      if (row.getBoundingClientRect().top >= 0 && staying.has(row.dataset.pin)) return row;
    }
    return undefined;
  }

  /** The next row that stays, from one on. */
  #below(row, entries) {
    const staying = new Set(entries.map((entry) => entry.pin));
    for (let each = row; each !== null; each = each.nextElementSibling) if (staying.has(each.dataset.pin)) return each;
    return null;
  }
}

/** Not a stop of the tab key: a feed would have two for each pin. Those of the chosen one are where it says why. */
const inRow = (kind, id) => linkTo(kind, id, { tabindex: "-1" });

const rowOf = (element) => element?.closest("article") ?? null;
