/** Where on a board: buttons for both ends, and a slider from one to the other. */

import { find } from "./elements.js";
import { counted } from "./values.js";

const STEPS = 10_000;
/** A held pin that rests so long over an end, or over a place of the slider, brings that to the screen. */
const REST_MS = 250;

export class Where {
  #box = find("board-where");
  #slider = find("board-slider");
  #ends = { top: find("board-top"), bottom: find("board-bottom") };
  #jump;
  #scale = null;
  /** Whether a pointer is down on the slider. */
  #isPressed = false;
  /** What a held pin rests over: { start, timer }. */
  #rest = null;

  /** jump(start): asks for another part of the board. start: top, bottom, or a sequence. */
  constructor(jump) {
    this.#jump = jump;
    this.#slider.max = STEPS;
    this.#slider.addEventListener("input", () => {
      this.#jump(this.#startAt(Number(this.#slider.value)));
      this.#say();
    });
    this.#slider.addEventListener("pointerdown", () => (this.#isPressed = true));
    for (const kind of ["pointerup", "pointercancel"]) addEventListener(kind, () => (this.#isPressed = false));
    for (const [end, button] of Object.entries(this.#ends)) button.addEventListener("click", () => this.#jump(end));
  }

  /**
   * isLong: whether the board has more than what is there. scale: of the board; null while it is not known. sequence:
   * of the first pin on the screen, or null.
   */
  show(isLong, scale, sequence) {
    this.#scale = scale;
    this.#box.hidden = !isLong;
    this.#slider.hidden = scale === null;
    if (scale === null || sequence === null) return;
    // Those who move it say where it is.
    if (this.#isPressed || this.#slider.matches(":focus-visible")) return;
    this.#slider.value = String(Math.round((STEPS * scale.placeOf(BigInt(sequence))) / scale.total));
    this.#say();
  }

  /** What a held pin is over, of this: { to: "top" | "bottom" }, {} for the slider, or null. */
  over(x, y) {
    const spot = this.#box.hidden ? null : this.#spot(x, y);
    for (const [end, button] of Object.entries(this.#ends)) button.toggleAttribute("data-over", spot?.to === end);
    if (spot?.start === undefined) this.#stopResting();
    else if (this.#rest?.start !== spot.start) {
      this.#stopResting();
      this.#rest = { start: spot.start, timer: setTimeout(() => this.#jump(spot.start), REST_MS) };
    }
    return spot;
  }

  /** No pin is held any more. */
  leave() {
    this.#stopResting();
    for (const button of Object.values(this.#ends)) button.removeAttribute("data-over");
  }

  #stopResting() {
    clearTimeout(this.#rest?.timer);
    this.#rest = null;
  }

  #spot(x, y) {
    const isIn = (element) => {
      const box = element.getBoundingClientRect();
      return x >= box.left && x <= box.right && y >= box.top && y <= box.bottom;
    };
    if (!isIn(this.#box.firstElementChild)) return null;
    for (const [end, button] of Object.entries(this.#ends)) if (isIn(button)) return { to: end, start: end };
    if (!isIn(this.#slider)) return {};
    const { left, width } = this.#slider.getBoundingClientRect();
    const step = Math.round((STEPS * (x - left)) / width);
    this.#slider.value = String(step);
    return { start: this.#startAt(step) };
  }

  #startAt(step) {
    if (step <= 0) return "top";
    if (step >= STEPS) return "bottom";
    return String(this.#scale.sequenceAt((this.#scale.total * step) / STEPS));
  }

  #say() {
    const step = Number(this.#slider.value);
    const { total } = this.#scale;
    const near = `below about ${counted(rounded((total * step) / STEPS), "pin", "pins")} of ${rounded(total).toLocaleString("en")}`;
    this.#slider.setAttribute("aria-valuetext", step <= 0 ? "the top" : step >= STEPS ? "the bottom" : near);
  }
}

/** To the digits that an estimate is good for. */
export const rounded = (count) => Number(count.toPrecision(2));
