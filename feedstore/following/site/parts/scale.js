/**
 * How a board's pins are spread over its sequences, from a few looks at it: which place is about where. Nothing here
 * knows the document, and nothing is counted: the pins of a board may be millions, and dense or sparse anywhere.
 */

const LOOKS = 48;
const LOOK_PINS = 40;
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
 * Looks at a board. read(limit, { start }): a page. Returns null if it has no pins.
 *
 * A look says how dense pins are at one place. The part that holds most of them by that is looked at again in its
 * middle, so that a pause of years, or a million pins of one second, takes a few looks more.
 */
export async function survey(read) {
  const { pins } = await read(1, { start: "bottom" });
  if (pins.length === 0) return null;
  const bottom = BigInt(pins[0].sequence);
  const look = async (start, end) => partsOf(await read(LOOK_PINS, { start }), start === "top" ? null : BigInt(start), end);
  let parts = guessed(await look("top", bottom));
  for (let looks = 0; looks < LOOKS; looks += 1) {
    const most = parts.reduce((one, other) => (other.isGuessed && other.count > (one?.count ?? 0) ? other : one), null);
    if (most === null || most.from - most.to < 2n) break;
    const middle = (most.from + most.to) / 2n;
    const lower = await look(String(middle), most.to);
    parts = guessed(parts.flatMap((part) => (part === most ? [{ ...most, to: middle }, ...lower] : [part])));
  }
  return new Scale(parts.filter(({ from, to }) => from > to));
}

/**
 * What a page from a sequence says of what is between it and another one: parts of which the pins are known, and one of
 * which only the density at its beginning is: pins in the width of a sequence, as a fraction of WIDE.
 */
function partsOf({ pins, cursor }, start, end) {
  const sequences = pins.map(({ sequence }) => BigInt(sequence)).filter((sequence) => sequence >= end);
  if (sequences.length === 0) return [{ from: start ?? end, to: end, count: 0 }];
  const [first, last] = [sequences[0], sequences.at(-1)];
  const count = sequences.length;
  const empty = { from: start ?? first, to: first, count: 0 };
  if (count < pins.length || cursor === null) return [empty, { from: first, to: end, count }];
  const middle = Math.floor(count / 2);
  const upper = { from: first, to: sequences[middle], count: middle, density: densityOf(middle, first, sequences[middle]) };
  const density = densityOf(count - 1 - middle, sequences[middle], last);
  const lower = { from: sequences[middle], to: last, count: count - 1 - middle, density };
  return [empty, upper, lower, { from: last, to: end, isGuessed: true, density }];
}

const densityOf = (count, from, to) => (BigInt(count) * WIDE) / (from - to || 1n);

/** Says how many pins are in the parts of which that is not known: as dense as at both ends. */
function guessed(parts) {
  return parts.map((part, at) => {
    if (!part.isGuessed) return part;
    const density = (part.density + (parts[at + 1]?.density ?? part.density)) / 2n;
    return { ...part, count: Number(((part.from - part.to) * density) / WIDE) };
  });
}
