/** How the work has gone in the last hour: a plot for each question, drawn by uPlot, which is loaded when it is needed. */

import { problemOf, readWork } from "./api.js";
import { find, make, refill, say, showProblem } from "./elements.js";
import { WHOLE_STEPS, dashesOf, lookOf, valueText } from "./plots.js";
import { Rhythm } from "./rhythm.js";
import { clockText, timeText } from "./values.js";

/** Samples are so far apart. */
const LOOK_MS = 10_000;
const HEIGHT_PX = 180;
/** Of the axis of time, in seconds. */
const TIME_STEPS = [10, 20, 30, 60, 120, 300, 600, 900, 1_800];
const dark = matchMedia("(prefers-color-scheme: dark)");

export class WorkView {
  #problem;
  #rhythm;
  #isShown = false;
  /** The answer that is shown. */
  #work = null;
  /** The card of each plot, by its name. They stay, so that what is pointed at does. */
  #cards = new Map();

  /** problem(problem or null): is told what went wrong with a look. */
  constructor(problem) {
    this.#problem = problem;
    this.#rhythm = new Rhythm(() => this.#look(), () => LOOK_MS);
    new ResizeObserver(() => this.#resize()).observe(find("plots"));
    dark.addEventListener("change", () => this.#redraw());
  }

  show(isShown) {
    this.#isShown = isShown;
    // What is not shown asks nothing: no later look would take back what it said.
    if (isShown) this.#rhythm.now();
    else this.#tell(null);
  }

  async #look() {
    if (!this.#isShown) return;
    try {
      const [work] = await Promise.all([readWork(), library()]);
      if (!this.#isShown) return;
      this.#work = work;
      this.#draw();
      this.#tell(null);
    } catch (error) {
      if (!this.#isShown) return;
      const problem = problemOf(error);
      this.#tell(problem);
      throw problem;
    }
  }

  #tell(problem) {
    this.#problem(problem);
    showProblem(find("work-problem"), problem?.isForAll ? null : problem);
  }

  #draw() {
    const { plots, times_ms, every_ms, source } = this.#work;
    const each = `one every ${every_ms / 1_000} s`;
    say(find("work-brief"), source === "prometheus" ? `from Prometheus, ${each}` : `this server's own samples, ${each}`);
    find("work-empty").hidden = times_ms.length > 1;
    find("plots").hidden = times_ms.length <= 1;
    if (times_ms.length <= 1) return;
    const times_s = times_ms.map((ms) => ms / 1_000);
    for (const plot of plots) this.#card(plot.name).draw(plot, times_s, this.#width_px);
  }

  #card(name) {
    let card = this.#cards.get(name);
    if (card === undefined) {
      card = new Card();
      this.#cards.set(name, card);
      find("plots").append(card.element);
    }
    return card;
  }

  /** Of a plot: all cards are alike. */
  get #width_px() {
    const card = find("plots").firstElementChild;
    return Math.max(200, (card?.clientWidth ?? find("plots").clientWidth) - 24);
  }

  #resize() {
    for (const card of this.#cards.values()) card.resize(this.#width_px);
  }

  /** With the colours of the day or of the night. */
  #redraw() {
    for (const card of this.#cards.values()) card.forget();
    if (this.#work !== null && this.#isShown) this.#draw();
  }
}

/** One plot, with what it says now, or where it is pointed at. */
class Card {
  #chart = null;
  #plot = null;
  #data = [];
  #names = "";

  constructor() {
    this.element = make(
      "figure",
      { class: "plot" },
      make("figcaption", {}, make("h3", {}), make("time", {}), make("p", { class: "brief" })),
      make("ul", { class: "key" }),
      make("div", { class: "canvas", "aria-hidden": "true" }),
      make("p", { class: "none", hidden: "" }, "No data."),
    );
  }

  draw(plot, times_s, width_px) {
    this.#plot = plot;
    this.#data = [times_s, ...plot.series.map((each) => each.values)];
    say(this.element.querySelector("h3"), plot.title);
    say(this.element.querySelector("figcaption .brief"), plot.says);
    const isEmpty = plot.series.every((each) => each.values.every((value) => value === null));
    this.element.querySelector(".none").hidden = !isEmpty;
    this.element.querySelector(".canvas").hidden = isEmpty;
    this.element.querySelector(".key").hidden = isEmpty;
    if (isEmpty) return;
    const names = JSON.stringify(plot.series.map((each) => each.name));
    if (names !== this.#names) this.forget();
    this.#names = names;
    if (this.#chart === null) {
      this.#chart = new uPlot(options(plot, width_px, (index) => this.#key(index)), this.#data, this.element.querySelector(".canvas"));
    } else {
      dashesOf(plot.series).forEach((dash, place) => (this.#chart.series[place + 1].dash = dash));
      this.#chart.setData(this.#data);
    }
    this.#key(this.#chart.cursor.idx ?? null);
  }

  resize(width_px) {
    if (this.#chart !== null && this.#chart.width !== width_px) this.#chart.setSize({ width: width_px, height: HEIGHT_PX });
  }

  forget() {
    this.#chart?.destroy();
    this.#chart = null;
  }

  /** index: of the sample that is pointed at; null: the last one. */
  #key(index) {
    const { series, unit } = this.#plot;
    const times_s = this.#data[0];
    const at = index ?? times_s.length - 1;
    const time = this.element.querySelector("time");
    time.dateTime = new Date(1_000 * times_s[at]).toISOString();
    say(time, timeText(1_000 * times_s[at], Date.now()));
    const lines = series.map((each, place) => {
      const { colour, kind } = lookOf(series, place);
      const mark = make("span", { class: `mark series-${colour} ${kind}` });
      return make("li", {}, mark, make("span", {}, each.name), " ", make("strong", {}, valueText(each.values[at] ?? null, unit)));
    });
    refill(this.element.querySelector(".key"), lines);
  }
}

function options(plot, width, pointed) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const font = `12px ${getComputedStyle(document.body).fontFamily}`;
  const dashes = dashesOf(plot.series);
  const counts = plot.unit === "seconds" || plot.unit.endsWith("/s") ? {} : { incrs: WHOLE_STEPS };
  const axis = { stroke: colour("--soft"), font, grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  return {
    width,
    height: HEIGHT_PX,
    legend: { show: false },
    padding: [8, 18, 0, 0],
    cursor: {
      sync: { key: "work" },
      drag: { x: false, y: false },
      points: { size: 7 },
      y: false,
    },
    scales: { x: { time: true }, y: { range: (_, low, high) => [0, top(high)] } },
    axes: [
      { ...axis, size: 24, space: 76, values: (_, at, __, ___, step) => at.map((s) => clockText(1_000 * s, step < 60)), incrs: TIME_STEPS },
      { ...axis, ...counts, size: 62, space: 34, values: (_, at) => at.map((value) => valueText(value, plot.unit)) },
    ],
    series: [
      {},
      ...plot.series.map((each, place) => {
        const look = lookOf(plot.series, place);
        const stroke = colour(`--series-${look.colour}`);
        return { label: each.name, stroke, width: 1.75, dash: dashes[place], points: { show: false } };
      }),
    ],
    hooks: { setCursor: [(chart) => pointed(chart.cursor.idx ?? null)] },
  };
}

/** A little room above the highest value; something to see where all are zero. */
const top = (high) => (high === null || high <= 0 ? 1 : high * 1.08);

let loading = null;

/** Loads uPlot, once: it is a script of its own, and only this view needs it. */
function library() {
  loading ??= new Promise((resolve, reject) => {
    const script = make("script", { src: "/parts/uplot/uPlot.iife.min.js" });
    script.addEventListener("load", () => resolve());
    script.addEventListener("error", () => {
      script.remove();
      loading = null;
      reject(new Error("the library for plots could not be loaded"));
    });
    document.head.append(make("link", { rel: "stylesheet", href: "/parts/uplot/uPlot.min.css" }), script);
  });
  return loading;
}
