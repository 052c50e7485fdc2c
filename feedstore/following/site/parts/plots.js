/** How values of plots are written, and how their lines look. Nothing here knows the document. */

const MEDIAN = /(^| )p50$/;
/** In pixels: drawn, and left out. */
export const DASHES = { solid: undefined, dashed: [5, 4], dotted: [2, 3] };
/** As many as style.css has. */
const COLOURS = 6;

/** unit: `seconds`, or what is counted. null: not known. */
export function valueText(value, unit) {
  if (value === null) return "–";
  return unit === "seconds" ? secondsText(value) : countText(value);
}

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
