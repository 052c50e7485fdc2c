/** How values of plots are written, and how their lines look. Nothing here knows the document. */

const MEDIAN = /(^| )p50$/;
/** In pixels: drawn, and left out. */
const DASHES = { solid: undefined, dashed: [5, 4], dotted: [2, 3] };
/** As many as style.css has. */
const COLOURS = 6;
/** Lines that are as near, as a share of the highest value, are drawn over each other. */
const NEAR = 0.01;
/** Of a solid line that shares its place. */
const STROKE_PX = 6;

/** unit: `seconds`, or what is counted: by the second, if it ends with `/s`. null: not known. */
export function valueText(value, unit) {
  if (value === null) return "–";
  if (unit === "seconds") return secondsText(value);
  return unit.endsWith("/s") ? `${countText(value)}/s` : countText(value);
}

/** Steps of an axis of what is counted, where there are no halves. */
export const WHOLE_STEPS = Array.from({ length: 36 }, (_, at) => [1, 2, 5][at % 3] * 10 ** Math.floor(at / 3));

function secondsText(seconds) {
  if (seconds === 0) return "0 s";
  if (seconds < 1) return `${Number((1_000 * seconds).toPrecision(3))} ms`;
  if (seconds < 120) return `${Number(seconds.toPrecision(3))} s`;
  if (seconds < 7_200) return `${Number((seconds / 60).toPrecision(3))} min`;
  if (seconds < 172_800) return `${Number((seconds / 3_600).toPrecision(3))} h`;
  return `${Number((seconds / 86_400).toPrecision(3))} d`;
}

function countText(value) {
  if (value >= 1e6) return `${Number((value / 1e6).toPrecision(3))} M`;
  if (value >= 1e4) return `${Number((value / 1e3).toPrecision(3))} k`;
  return Number(value.toPrecision(3)).toLocaleString("en");
}

/**
 * The number of a line's colour, from 1, and its kind. A median has the colour of the line that it belongs to, and is
 * dashed: the line of the slowest hundredth is the one to look at. Lines beyond the colours have them again, dotted.
 */
export function lookOf(series, place) {
  const stems = [...new Set(series.map((each) => each.name.replace(/ p[0-9]+$/, "")))];
  const { name } = series[place];
  const number = stems.indexOf(name.replace(/ p[0-9]+$/, ""));
  const kind = MEDIAN.test(name) ? "dashed" : number < COLOURS ? "solid" : "dotted";
  return { colour: (number % COLOURS) + 1, kind };
}

/**
 * The dashes of each line, in pixels; undefined: none. Lines that are mostly at the same place take turns there, so that
 * none hides another. At zero they need not be told apart.
 */
export function dashesOf(series) {
  const highest = Math.max(0, ...series.flatMap((each) => each.values));
  const groups = [];
  for (const each of series) {
    const group = groups.find(([first]) => areTogether(first.values, each.values, NEAR * highest));
    if (group === undefined) groups.push([each]);
    else group.push(each);
  }
  return series.map((each, place) => {
    const group = groups.find((one) => one.includes(each));
    return turns(DASHES[lookOf(series, place).kind], group.length, group.indexOf(each));
  });
}

function areTogether(one, other, near) {
  let [together, apart] = [0, 0];
  one.forEach((value, at) => {
    if (value === null || other[at] === null || (value === 0 && other[at] === 0)) return;
    if (Math.abs(value - other[at]) <= near) together += 1;
    else apart += 1;
  });
  return together > apart;
}

/** Each line is drawn over the ones before it, and leaves them the end of each round. */
function turns(dashes, lines, place) {
  if (place === 0) return dashes;
  const [on, off] = dashes ?? [STROKE_PX, 0];
  const strokes = Array.from({ length: lines - place }, () => [on, off]).flat();
  strokes[strokes.length - 1] += place * (on + off);
  return strokes;
}
