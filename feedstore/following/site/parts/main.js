/** The site: whose feed or which board, what is asked and when, and what is said of it. */

import { SCOPES, TOKEN_TEXT, access, problemOf, readFeed, readStatus, token } from "./api.js";
import { BoardView } from "./board_view.js";
import { CatalogPanel } from "./catalogs.js";
import { find, make, mark, redate, refill, say, showProblem } from "./elements.js";
import { Entries } from "./entries.js";
import { Feed } from "./feed.js";
import { FollowingPanel } from "./following.js";
import { Rhythm } from "./rhythm.js";
import { seen } from "./seen.js";
import { showClusters, showLetters, showQueue } from "./state.js";
import { ID_TEXT, behindText, counted, idOf, problemText, timeText } from "./values.js";
import { Why } from "./why.js";
import { WorkView } from "./work.js";

const LOOK_MS = 3_000;
/** While an action of this tab is on its way. */
const WAITING_MS = 1_000;
/** Each so many looks go over everything that is shown. */
const DEEP_EACH = 10;
/** Each so many looks at the state read what is followed again: somebody else may have changed it. */
const FOLLOWING_EACH = 10;
/** The next page is asked for when its place is so near. */
const AHEAD = "800px";

let user = null;
let feed = null;
/** The one that was shown before it: a step back in the history of the tab leads to where it was left. */
let left = { user: null, feed: null };
/** What the address has in the place of an id, and is none; or null. */
let misnamed = null;
/** What is gone back to from the work: as in an address, or null. */
let lookedAt = null;
let reading = new AbortController();
let looks = 0;
let mayNot = null;
/** Whether the token was refused when it was asked for last. */
let isRefused = false;
let isLoading = false;
let tailFailed = false;
let wasWaiting = false;
let stateLooks = 0;
let answered_ms = null;
/** The day on which the times of the page were said: those of another one have a date. */
let day = new Date().toDateString();
const troubles = new Map();

const why = new Why(find("why"));
const entries = new Entries(find("feed"), (entry) => why.show(user, entry?.pin ?? null));
const following = new FollowingPanel(() => {
  // What was recorded may show from now on, and its pins are brought in: somebody asked for them.
  feedRhythm.now();
  stateRhythm.now();
});
const board = new BoardView((problem) => showTrouble("board", problem));
const catalogs = new CatalogPanel();
const work = new WorkView((problem) => showTrouble("work", problem));
const pause_ms = () => (following.isWaiting ? WAITING_MS : LOOK_MS);
const feedRhythm = new Rhythm(look, pause_ms);
const stateRhythm = new Rhythm(lookAtState, pause_ms);

// The feed
// -----------------------------------------------------------------------------------------------------------------

function choose(id, isBack) {
  reading.abort();
  reading = new AbortController();
  const before = left;
  if (feed !== null) left = { user, feed };
  user = id;
  if (id === null) feed = null;
  else if (isBack && id === before.user) feed = before.feed;
  else feed = new Feed((limit, cursor) => readFeed(id, limit, cursor, reading.signal));
  looks = 0;
  tailFailed = false;
  entries.leave();
  entries.show([]);
  showFeedProblem(null);
  say(find("feed-title"), id === null ? "Whose feed, or which board?" : `Feed of user ${id}`);
  find("why").hidden = id === null;
  draw();
  following.show(id);
  feedRhythm.now();
}

async function look() {
  if (feed === null) return;
  const current = feed;
  // One look more after it has landed: what landed last is seen by none before.
  const isTaking = following.isWaiting || wasWaiting;
  wasWaiting = following.isWaiting;
  looks += 1;
  const before = current.fresh;
  try {
    const isDeep = isTaking || looks % DEEP_EACH === 0;
    const shown = current.shown.length;
    const gone = await current.look({ isDeep, isTaking });
    if (current !== feed) return;
    const come = current.shown.length - shown + gone;
    if (shown > 0 && (gone > 0 || come > 0)) announceChange(come, gone);
    else if (current.fresh > before) say(find("said"), freshText(current));
    // Where something has gone at the top, more may have gone below.
    if (gone > 0 && !isDeep) await current.look({ isDeep: true });
    tailFailed = false;
    why.refresh();
  } catch (error) {
    if (current !== feed) return;
    wasWaiting = isTaking;
    const problem = problemOf(error);
    showFeedProblem(problem);
    throw problem;
  } finally {
    if (current === feed) draw();
  }
  answered_ms = Date.now();
  if (current.shown.length > 0) seen.add(`user=${user}`);
  showFeedProblem(null);
}

async function more() {
  if (feed === null || isLoading || feed.hasEnded || !feed.hasBegun) return;
  const current = feed;
  isLoading = true;
  find("feed").setAttribute("aria-busy", "true");
  say(find("tail"), "…");
  let text = "";
  try {
    const before = current.shown.length;
    await current.more();
    const { servedBy, behind_ms } = current.latest;
    text = `${current.shown.length - before} more from ${servedBy}, ${behindText(behind_ms)}`;
    tailFailed = false;
  } catch (error) {
    if (current === feed) {
      const problem = problemOf(error);
      text = problemText(problem);
      tailFailed = true;
    }
  }
  isLoading = false;
  find("feed").setAttribute("aria-busy", "false");
  if (current !== feed) return;
  say(find("tail"), current.hasEnded ? `The end: ${counted(current.shown.length, "pin", "pins")}.` : text);
  draw();
}

async function takeFresh() {
  const current = feed;
  find("fresh").disabled = true;
  try {
    await current.look({ isTaking: true });
    if (current !== feed) return;
    draw();
    scrollTo({ top: 0 });
    entries.enter();
    say(find("said"), `${counted(current.shown.length, "pin", "pins")} shown`);
  } catch (error) {
    if (current === feed) showFeedProblem(problemOf(error));
  } finally {
    find("fresh").disabled = false;
  }
}

function draw() {
  const shown = feed?.shown ?? [];
  entries.show(shown);
  const isStart = feed === null && misnamed === null;
  find("start").hidden = !isStart;
  if (isStart) drawStart();
  find("empty").hidden = isStart || shown.length > 0 || (feed !== null && !feed.hasBegun);
  if (misnamed !== null) say(find("empty"), `${misnamed} is no id. ${ID_TEXT}.`);
  else say(find("empty"), `Nothing here: user ${user} follows nothing that has pins.`);
  const latest = feed?.latest ?? null;
  say(find("served"), latest === null ? "" : `from cluster ${latest.servedBy}, ${behindText(latest.behind_ms)}`);
  find("fresh").hidden = feed === null || feed.fresh === 0;
  if (feed !== null && feed.fresh > 0) say(find("fresh"), freshText(feed));
  find("more").hidden = feed === null || !feed.hasBegun || feed.hasEnded || shown.length === 0;
  if (feed === null || shown.length === 0) say(find("tail"), "");
  else if (feed.hasEnded) say(find("tail"), `The end: ${counted(shown.length, "pin", "pins")}.`);
  // Seen again, so that a page that did not fill the screen is followed by the next one.
  nearEnd.disconnect();
  if (!find("more").hidden && !tailFailed) nearEnd.observe(find("more"));
}

function drawStart() {
  const views = seen.all().map((each) => each.split("="));
  find("none-seen").hidden = views.length > 0;
  find("some-seen").hidden = views.length === 0;
  refill(find("seen"), views.map(([kind, id]) => make("li", {}, make("a", { href: `?${kind}=${id}` }, `${kind} ${id}`))));
}

const freshText = (of) => `${counted(of.fresh, "new pin", "new pins")}${of.isFreshMore ? ", or more" : ""}`;

function announceChange(come, gone) {
  const parts = [];
  if (come > 0) parts.push(`${counted(come, "pin", "pins")} came`);
  if (gone > 0) parts.push(`${counted(gone, "pin", "pins")} went`);
  say(find("said"), parts.join(", "));
}

const nearEnd = new IntersectionObserver((seen) => seen.at(-1).isIntersecting && more(), { rootMargin: AHEAD });

// The panels next to it
// -----------------------------------------------------------------------------------------------------------------

async function lookAtState() {
  stateLooks += 1;
  const today = new Date().toDateString();
  if (today !== day) redate();
  day = today;
  try {
    const refusals = (mayNot ??= await askAccess());
    const status = await readStatus();
    answered_ms = Date.now();
    showClusters(status.clusters);
    showQueue(status);
    following.landedIn(status.clusters);
    showTrouble("state", null);
    await showLetters(status.dead_letters, refusals.operate);
    await catalogs.look();
    showProblem(find("state-problem"), null);
    if (following.hasFailed || stateLooks % FOLLOWING_EACH === 0) await following.refresh();
  } catch (error) {
    const problem = problemOf(error);
    if (problem.status === 401 || problem.status === 403) mayNot = null;
    showTrouble("state", problem);
    showProblem(find("state-problem"), problem.isForAll ? null : problem);
    throw problem;
  }
}

async function askAccess() {
  const asked = token.get();
  const refusals = await access();
  if (token.get() !== asked) return askAccess();
  following.allow(refusals.write);
  board.allow(refusals.write);
  catalogs.allow(refusals.operate);
  const may = SCOPES.filter((scope) => refusals[scope] === null);
  say(find("access"), may.length ? `Access: ${may.join(", ")}` : "A token is needed");
  // Once: somebody who closes it wants to see the page.
  if (refusals.read !== null && !isRefused) find("token-panel").open = true;
  isRefused = refusals.read !== null;
  return refusals;
}

function showFeedProblem(problem) {
  showTrouble("feed", problem);
  showProblem(find("feed-problem"), problem?.isForAll ? null : problem);
}

/** A problem of the whole page is said once, at its top, and how old the rest is. */
function showTrouble(where, problem) {
  troubles.set(where, problem?.isForAll ? problem : null);
  const trouble = [...troubles.values()].find((each) => each !== null);
  const isOld = trouble !== undefined && answered_ms !== null;
  if (trouble !== undefined) {
    const age = isOld ? `The page shows the state of ${timeText(answered_ms, Date.now())}.` : "";
    say(find("connection"), `${troubleText(trouble)} ${age}`.trim());
  }
  find("connection").hidden = trouble === undefined;
  document.body.toggleAttribute("data-old", isOld);
  document.body.toggleAttribute("data-blank", trouble !== undefined && answered_ms === null);
}

function troubleText(trouble) {
  const where = `“${find("access").textContent}” above`;
  if (trouble.mayNotRead) return `This token is not for reading: enter one that has the scope read, under ${where}.`;
  if (trouble.status !== 401) return problemText(trouble);
  if (token.get() === null) return `This server asks for a token: enter yours under ${where}.`;
  return `The server does not take the token of this tab (${trouble.detail}): enter another one under ${where}.`;
}

/** Another token is another reader: the page begins again, and nothing stays of what the one before was shown. */
const tokenChanged = () => location.reload();

// The user at the screen
// -----------------------------------------------------------------------------------------------------------------

const SKIPS = { feed: ["#feed", "Skip to the feed"], board: ["#grid", "Skip to the pins"], work: ["#plots", "Skip to the plots"] };

/** Shows what the address names: the work, a board, or a user's feed. isBack: by a step in the history of the tab. */
function fromAddress(isBack) {
  const named = new URLSearchParams(location.search);
  const isWork = named.has("work");
  const boardId = isWork ? null : idOf(named.get("board") ?? "");
  const userId = isWork || boardId !== null ? null : idOf(named.get("user") ?? "");
  const given = isWork ? "" : (named.get("board") ?? named.get("user") ?? "");
  misnamed = boardId === null && userId === null && given !== "" ? given : null;
  const view = isWork ? "work" : boardId === null ? "feed" : "board";
  if (!isWork) lookedAt = boardId !== null ? `board=${boardId}` : userId !== null ? `user=${userId}` : null;
  else lookedAt ??= seen.all()[0] ?? null;
  const [kind, id] = lookedAt?.split("=") ?? [named.has("board") ? "board" : "user", ""];
  find("what").value = kind;
  find("user").value = id;
  mark(find("user"), null);
  find("to-start").href = isWork && lookedAt !== null ? `?${lookedAt}` : "/";
  document.body.dataset.view = view;
  for (const each of Object.keys(SKIPS)) find(`${each}-view`).hidden = each !== view;
  if (isWork) find("to-work").setAttribute("aria-current", "page");
  else find("to-work").removeAttribute("aria-current");
  const [place, text] = SKIPS[view];
  find("skip").href = place;
  say(find("skip"), text);
  if (userId !== user || feed === null) choose(userId, isBack);
  board.show(boardId);
  work.show(isWork);
  document.title = isWork ? "Work" : boardId !== null ? `Board ${boardId}` : userId !== null ? `Feed of user ${userId}` : "Following feed";
}

function go(address) {
  history.pushState(null, "", address);
  fromAddress(false);
  scrollTo({ top: 0, behavior: "instant" });
  say(find("said"), document.title);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest('a[href="/"], a[href^="?"]');
  if (link === null || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  go(link.getAttribute("href"));
});

find("whose").addEventListener("submit", (event) => {
  event.preventDefault();
  const id = idOf(find("user").value);
  if (id === null) mark(find("user"), ID_TEXT);
  else go(`?${find("what").value}=${id}`);
});

// What was looked at before, of the kind that is asked for.
find("user").addEventListener("focus", () => {
  const kind = `${find("what").value}=`;
  const ids = seen.all().filter((each) => each.startsWith(kind));
  refill(find("ids"), ids.map((each) => make("option", { value: each.slice(kind.length) })));
});

for (const field of [find("user"), find("token")]) field.addEventListener("input", () => field.setCustomValidity(""));

find("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (token.set(find("token").value.trim())) tokenChanged();
  else mark(find("token"), TOKEN_TEXT);
});

find("forget").addEventListener("click", () => {
  token.forget();
  seen.forget();
  tokenChanged();
});

find("more").addEventListener("click", () => {
  tailFailed = false;
  more();
});
find("fresh").addEventListener("click", takeFresh);
find("feed").addEventListener("focus", () => find("feed").firstElementChild && entries.enter());
find("why-close").addEventListener("click", () => entries.back());
document.addEventListener("keydown", (event) => event.key === "Escape" && (find("why").contains(event.target) ? entries.back() : entries.leave()));
addEventListener("popstate", () => fromAddress(true));

// Where there is room they are open; elsewhere their first lines say the most of it.
for (const panel of document.querySelectorAll("details.panel")) panel.open = matchMedia("(min-width: 62rem)").matches;

// What is on the screen stays where it is when something is said above it.
let notices_px = 0;
new ResizeObserver(() => {
  const before_px = notices_px;
  notices_px = find("notices").offsetHeight;
  document.documentElement.style.setProperty("--notices", `${notices_px}px`);
  if (scrollY > 0) scrollBy({ top: notices_px - before_px, behavior: "instant" });
}).observe(find("notices"));

say(find("zone"), `Times in ${Intl.DateTimeFormat().resolvedOptions().timeZone}`);

fromAddress(false);
stateRhythm.now();
