/** Ids, the order of a feed, and how times and durations are written. Nothing here knows the document. */

const ID = /^[1-9][0-9]{0,18}$/;
const ID_MAX = 2n ** 63n - 1n;
export const ID_TEXT = "An id is a whole number from 1 to 2^63-1";

/**
 * Ids are strings everywhere here: they have 63 bits, and a number here has 53.
 * Returns what was typed as an id, or null where it is none.
 */
export function idOf(text) {
  const id = text.trim();
  return ID.test(id) && BigInt(id) <= ID_MAX ? id : null;
}

/** Comes after every entry of a feed. */
export const END = Symbol("end");
/** Comes before every entry of a feed. */
export const TOP = Symbol("top");

/** Whether an entry is below a place (an entry, TOP or END): newest first, then by ascending pin id. */
export function isBelow(entry, place) {
  if (place === TOP) return true;
  if (place === END) return false;
  if (entry.created_ms !== place.created_ms) return entry.created_ms < place.created_ms;
  return BigInt(entry.pin) > BigInt(place.pin);
}

export function inFeedOrder(entries) {
  return entries.sort((one, other) => (one.pin === other.pin ? 0 : isBelow(one, other) ? 1 : -1));
}

const two = (number) => String(number).padStart(2, "0");

/** The local time of day. */
export function clockText(ms, withSeconds) {
  const at = new Date(ms);
  return `${two(at.getHours())}:${two(at.getMinutes())}${withSeconds ? `:${two(at.getSeconds())}` : ""}`;
}

/** The local time: with the date where that is not today's. */
export function timeText(ms, now_ms) {
  const at = new Date(ms);
  const clock = clockText(ms, true);
  if (at.toDateString() === new Date(now_ms).toDateString()) return clock;
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock}`;
}

/** A duration in ms, or null where it is not known. */
export function durationText(ms) {
  if (ms === null) return "not known";
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${Math.round(ms / 60_000)} min`;
  if (ms < 86_400_000) return `${(ms / 3_600_000).toFixed(1)} h`;
  return `${(ms / 86_400_000).toFixed(1)} d`;
}

export const behindText = (ms) => (ms === null ? "how far behind is not known" : `at most ${durationText(ms)} behind`);

/** A share from 0 to 1: with the decimals that tell it from nothing and from all. */
export function shareText(share) {
  const percent = 100 * share;
  if (share === 0 || share === 1) return `${percent} %`;
  if (percent < 0.01) return "< 0.01 %";
  if (percent > 99.99) return "> 99.99 %";
  return `${percent.toFixed(percent < 1 || percent > 99 ? 2 : 1)} %`;
}

export function sizeText(bytes) {
  if (bytes < 1 << 10) return `${bytes} B`;
  if (bytes < 1 << 20) return `${(bytes / (1 << 10)).toFixed(1)} KiB`;
  if (bytes < 1 << 30) return `${(bytes / (1 << 20)).toFixed(1)} MiB`;
  return `${(bytes / (1 << 30)).toFixed(1)} GiB`;
}

export const counted = (count, one, many) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

/** ill: the names of those that are not as they should be. */
export const healthText = (ill) => (ill.length === 0 ? "all healthy" : `${ill.join(", ")} ${ill.length === 1 ? "is" : "are"} unhealthy`);

/** How many drops a gap between two sequences is sure to take; null while a sequence is not known. */
export function roomOf(above, below) {
  if (above === null || below === null) return null;
  const gap = BigInt(above) - BigInt(below);
  return gap < 0n ? null : gap === 0n ? -1 : gap.toString(2).length - 1;
}

/** In sentences: what a server says of details begins in lower case, and has no full stop. */
export function problemText({ title, detail }) {
  const said = detail.replace(/^[a-z]+(?= )/, (word) => word[0].toUpperCase() + word.slice(1));
  return `${title}. ${said}${said === "" || said.endsWith(".") ? "" : "."}`.trim();
}

export const followeeText = (edge) => (edge.user === undefined ? `board ${edge.board}` : `user ${edge.user}`);
