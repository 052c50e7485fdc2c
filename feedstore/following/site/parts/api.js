/** The HTTP API, and what becomes of its refusals. */

const ANSWER_WITHIN_MS = 15_000;
const TOKEN = /^[\x21-\x7e]{1,200}$/;
const TOKEN_KEY = "feed.token";
export const TOKEN_TEXT = "A token has 1 to 200 characters, and no spaces between them";
export const SCOPES = ["read", "write", "operate"];

/**
 * Why a request was not done. kind: the last word of the problem's type; `unreachable` where nothing answered. reason,
 * between: of a move that was refused.
 */
export class Problem extends Error {
  /** Whether it is what a token without the scope `read` is told: everything here begins with reading. */
  mayNotRead = false;

  constructor(kind, status, title, detail, retryAfter_ms = 0, reason = "", between = []) {
    super(title);
    this.kind = kind;
    this.status = status;
    this.title = title;
    this.detail = detail;
    this.retryAfter_ms = retryAfter_ms;
    this.reason = reason;
    this.between = between;
  }

  /** Whether it says nothing about what was asked, and the same to everything that is. */
  get isForAll() {
    return this.kind === "unreachable" || this.status === 401 || this.mayNotRead;
  }

  /** Whether an action may have been recorded all the same. */
  get isMaybeDone() {
    return this.kind === "unreachable" || this.status >= 500;
  }
}

/** Says it as a problem where it was not one: a fault of this site must not look like one of the server. */
export function problemOf(error) {
  if (error instanceof Problem) return error;
  console.error(error);
  return new Problem("fault", 0, "Error in this page", String(error));
}

/** The token of this tab: in its session storage, and nowhere else. */
export const token = {
  get: () => sessionStorage.getItem(TOKEN_KEY),
  /** Returns whether it can be one. */
  set(text) {
    if (!TOKEN.test(text)) return false;
    sessionStorage.setItem(TOKEN_KEY, text);
    return true;
  },
  forget: () => sessionStorage.removeItem(TOKEN_KEY),
};

export const readFeed = (user, limit, cursor, signal) =>
  ask("GET", `/v1/users/${user}/feed`, { query: { limit, cursor, hydrate: true }, signal });
export const readWhy = (user, pin, signal) => ask("GET", `/v1/users/${user}/feed/${pin}/why`, { signal });
export const readFollowing = (user, limit, cursor, signal) =>
  ask("GET", `/v1/users/${user}/following`, { query: { limit, cursor }, signal });
/** where: { cursor } of another page, { start } as top, bottom or a sequence, or {} for the top. */
export const readBoard = (board, limit, where, signal) =>
  ask("GET", `/v1/boards/${board}/pins`, { query: { limit, ...where }, signal });
/** where: { before, after } or { to }. The same request again is harmless. */
export const placePin = (board, pin, where) => ask("POST", `/v1/boards/${board}/pins/${pin}/place`, { body: where, scope: "write" });
export const readStatus = () => ask("GET", "/v1/status");
export const readWork = () => ask("GET", "/v1/work");
export const readLetters = (limit) => ask("GET", "/v1/dead-letters", { query: { limit }, scope: "operate" });

export const readCatalogs = () => ask("GET", "/v1/catalogs");
/** from: by cluster, the generation that is in use and is wrong. The same request again is harmless. */
export const rollBack = (catalog, from) => ask("POST", `/v1/catalogs/${catalog}/rollback`, { body: { from }, scope: "operate" });

/** method: POST follows, DELETE unfollows. key: the same for each try of one action. */
export const record = (method, edge, key) => ask(method, "/v1/follows", { body: edge, key, scope: "write" });

/** Whether this tab may read, write and operate: for each the problem where it may not, null where it may. */
export async function access() {
  try {
    const { scopes } = await ask("GET", "/v1/token");
    const refusal = (scope) => new Problem("forbidden", 403, "Insufficient scope", `the scope ${scope} is needed`);
    return Object.fromEntries(SCOPES.map((scope) => [scope, scopes.includes(scope) ? null : refusal(scope)]));
  } catch (error) {
    // Nothing answered, or not the door.
    if (![401, 421].includes(error.status)) throw error;
    return Object.fromEntries(SCOPES.map((scope) => [scope, error]));
  }
}

/** scope: what a token must have for it. */
async function ask(method, path, { query = {}, body, key, signal, scope = "read" } = {}) {
  const url = new URL(path, location.origin);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null) url.searchParams.set(name, value);
  }
  const headers = {};
  const known = token.get();
  if (known !== null) headers.authorization = `Bearer ${known}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  if (key !== undefined) headers["idempotency-key"] = key;
  const deadline = AbortSignal.timeout(ANSWER_WITHIN_MS);
  let response;
  let text;
  try {
    response = await fetch(url, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal === undefined ? deadline : AbortSignal.any([signal, deadline]),
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
    });
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw unreachable();
  }
  let document;
  try {
    document = JSON.parse(text);
  } catch {
    document = null;
  }
  if (response.ok && document !== null) return document;
  const problem = refusal(response, document);
  problem.mayNotRead = problem.status === 403 && scope === "read";
  throw problem;
}

function unreachable() {
  const detail = navigator.onLine ? "No answer; retrying." : "This machine is offline.";
  return new Problem("unreachable", 0, "The server cannot be reached", detail);
}

function refusal(response, document) {
  const retryAfter_ms = 1_000 * (Number(response.headers.get("retry-after")) || 0);
  if (typeof document?.title !== "string") {
    return new Problem("unknown", response.status, `HTTP ${response.status}`, "The answer is not from the API.", retryAfter_ms);
  }
  const kind = String(document.type).split(":").at(-1);
  const { title, detail = "", reason = "", between = [] } = document;
  return new Problem(kind, response.status, title, detail, retryAfter_ms, reason, between);
}
