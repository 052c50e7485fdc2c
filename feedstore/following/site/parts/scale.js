/**
 * How a board's pins are spread over its sequences, from a few looks at it: which place is about where. Nothing here
 * knows the document, and nothing is counted: the pins of a board may be millions, and dense or sparse anywhere.
 */

const READS_MAX = 50;
const LOOK_PINS = 40;
/** So many pins say how dense they are at a place. */
const PINS_MIN = 3;
/** A look that finds fewer reads on: so many pages, of so many pins. */
const PAGES_MORE = 3;
const PAGE_PINS = 200;
/** What one ms is in a sequence. */
const MS = 10n ** 25n;
const PRECISION = 10 ** 9;
const WIDE = 10n ** 40n;

export class Scale {
  /** From the top: from and to are sequences, count says about how many pins are in between. */
  #parts;

  constructor(parts) {
    this.#parts = parts;
    this.total = parts.reduce((sum, { count }) => sum + count, 0);
  }

  /** The sequence below about so many pins. */
  sequenceAt(place) {
    let left = place;
    for (const { from, to, count } of this.#parts) {
      if (left < count) return from - ((from - to) * BigInt(Math.round((PRECISION * Math.max(left, 0)) / count))) / BigInt(PRECISION);
      left -= count;
    }
    return this.#parts.at(-1).to;
  }

  /** About how many pins are above a sequence. */
  placeOf(sequence) {
    let above = 0;
    for (const { from, to, count } of this.#parts) {
      if (sequence >= from) break;
      if (sequence > to) return above + (count * Number(((from - sequence) * BigInt(PRECISION)) / (from - to))) / PRECISION;
      above += count;
    }
    return above;
  }
}

/**
 * A few looks at a board. read(limit, where): a page, where: { start } or { cursor }. now_ms: no pin is above it, but
 * for those of other clocks.
 *
 * A look says how dense pins are at one place. The part that holds most of them by that is looked at again in its
 * middle, so that a pause of years, or a million pins of one second, takes a few looks more.
 *
 * Where many pins were moved away, pages are short or empty. That is no end: only a page without a cursor is one.
 */
export class Survey {
  #read;
  #now_ms;
  #reads = 0;
  /** What the looks have found so far; null before the first one. */
  #parts = null;

  constructor(read, now_ms = Date.now()) {
    this.#read = read;
    this.#now_ms = now_ms;
  }

  /**
   * Returns the scale; null if the board has no pins, or if no look has found where they are. What `read` raises ends
   * it: called again, it continues with what was found before.
   */
  async finish() {
    if (this.#parts === null) {
      const lowest = await this.#pages(1, "bottom", "above", 1);
      if (lowest.pins.length === 0 && lowest.next === null) return null;
      // If no pin was found there, the looks find out from where on there is none.
      this.#parts = guessed(await this.#look("top", BigInt(lowest.pins.at(-1)?.sequence ?? 0)));
    }
    while (this.#reads < READS_MAX) {
      const parts = this.#parts;
      const most = parts.reduce((one, other) => (other.isGuessed && other.count > (one?.count ?? 0) ? other : one), null);
      if (most === null || most.from - most.to < 2n) break;
      const middle = (most.from + most.to) / 2n;
      const lower = await this.#look(String(middle), most.to);
      this.#parts = guessed(parts.flatMap((part) => (part === most ? [{ ...most, to: middle }, ...lower] : [part])));
    }
    const parts = this.#parts;
    const isFound = parts.some(({ density, isGuessed, count }) => density !== undefined || (!isGuessed && count > 0));
    const scale = new Scale(parts.filter(({ from, to }) => from > to));
    return isFound && scale.total > 0 ? scale : null;
  }

  async #look(start, end) {
    const pages = await this.#pages(LOOK_PINS, start, "cursor", PINS_MIN);
    const top = BigInt(pages.pins[0]?.sequence ?? BigInt(this.#now_ms) * MS);
    return partsOf(pages, start === "top" ? top : BigInt(start), end);
  }

  /** onward: cursor or above. next: where it continues; null at the end of the board. */
  async #pages(limit, start, onward, least) {
    let page = await this.#read(limit, { start });
    let { pins } = page;
    this.#reads += 1;
    for (let more = 0; pins.length < least && page[onward] !== null; more += 1) {
      if (more === PAGES_MORE || this.#reads >= READS_MAX) break;
      page = await this.#read(PAGE_PINS, { cursor: page[onward] });
      pins = onward === "above" ? [...page.pins, ...pins] : [...pins, ...page.pins];
      this.#reads += 1;
    }
    return { pins, next: page[onward] };
  }
}

/**
 * What a look from a sequence says of what is between it and another one: parts of which the pins are known, and one of
 * which only the density at its beginning is: pins in the width of a sequence, as a fraction of WIDE. That is not known
 * either if the look has found too few pins.
 */
function partsOf({ pins, next }, start, end) {
  const sequences = pins.map(({ sequence }) => BigInt(sequence)).filter((sequence) => sequence >= end);
  const count = sequences.length;
  const isEnd = count < pins.length || next === null;
  if (count === 0) return [{ from: start, to: end, count: 0, isGuessed: !isEnd }];
  const [first, last] = [sequences[0], sequences.at(-1)];
  const empty = { from: start, to: first, count: 0 };
  if (isEnd) return [empty, { from: first, to: end, count }];
  if (count < PINS_MIN) return [empty, { from: first, to: end, isGuessed: true }];
  const middle = Math.floor(count / 2);
  const upper = { from: first, to: sequences[middle], count: middle, density: densityOf(middle, first, sequences[middle]) };
  const density = densityOf(count - 1 - middle, sequences[middle], last);
  const lower = { from: sequences[middle], to: last, count: count - 1 - middle, density };
  return [empty, upper, lower, { from: last, to: end, isGuessed: true, density }];
}

const densityOf = (count, from, to) => (BigInt(count) * WIDE) / (from - to || 1n);

/**
 * Says how many pins are in the parts of which that is not known: as dense as at both ends. A part in which no pins
 * were found is as dense as the one next to it: with none, it would not be looked at again.
 */
function guessed(parts) {
  const isDense = ({ density }) => density !== undefined;
  return parts.map((part, at) => {
    if (!part.isGuessed) return part;
    const next = parts.slice(0, at).findLast(isDense) ?? parts.slice(at).find(isDense);
    const above = part.density ?? next?.density;
    if (above === undefined) return { ...part, count: 1 };
    const density = (above + (parts[at + 1]?.density ?? above)) / 2n;
    return { ...part, count: Number(((part.from - part.to) * density) / WIDE) };
  });
}
