/** Making and finding elements. Text is always text: nothing that a server says becomes markup. */

import { problemText, timeText } from "./values.js";

export const find = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Of a drawing, as `make`. */
export function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** A time. It has no date on its day; later it gets one by `redate`. */
export const time = (ms) => make("time", { datetime: new Date(ms).toISOString() }, timeText(ms, Date.now()));

/** Says all times of the page as they are said today. */
export function redate() {
  const now_ms = Date.now();
  for (const each of document.querySelectorAll("time[datetime]")) {
    say(each, timeText(Date.parse(each.dateTime), now_ms));
  }
}

/** The id of a user or of a board, as a link to it. kind: `user` or `board`. */
export const linkTo = (kind, id, attributes = {}) => make("a", { href: `?${kind}=${id}`, ...attributes }, id);

/** Sets a text, and touches nothing where it is there already: what did not change is not read aloud again. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Puts children in place of those that are there, where they look different. */
export function refill(element, children) {
  const box = document.createElement(element.tagName);
  box.append(...children);
  if (box.innerHTML !== element.innerHTML) element.replaceChildren(...box.childNodes);
}

/** Says at a field why it does not take what it has; null: it does. */
export function mark(field, why) {
  field.setAttribute("aria-invalid", String(why !== null));
  field.setCustomValidity(why === null ? "" : `${why}.`);
  if (why === null) return;
  say(find("said"), why);
  field.reportValidity();
}

/** Shows a problem, or hides the place for it where there is none. */
export function showProblem(element, problem) {
  if (problem !== null) say(element, problemText(problem));
  element.hidden = problem === null;
}
