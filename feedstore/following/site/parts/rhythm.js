/** Doing something again and again: while the tab is seen, and more slowly the more often it fails. */

const PAUSE_MAX_MS = 30_000;

/**
 * work: what is done; if it raises, the pauses double. pause_ms(): how long it rests after it went well. It rests while
 * the tab is hidden, and continues at once when the tab is seen again or the machine is online again.
 */
export class Rhythm {
  #work;
  #pause_ms;
  #timer;
  #isAtWork = false;
  #isWanted = false;
  #failures = 0;

  constructor(work, pause_ms) {
    this.#work = work;
    this.#pause_ms = pause_ms;
    document.addEventListener("visibilitychange", () => this.now());
    addEventListener("online", () => this.now());
    addEventListener("pageshow", () => this.now());
  }

  /** Does it now; once more if it is at work already. */
  async now() {
    clearTimeout(this.#timer);
    if (document.hidden) return;
    if (this.#isAtWork) {
      this.#isWanted = true;
      return;
    }
    this.#isAtWork = true;
    this.#isWanted = false;
    let least_ms = 0;
    try {
      await this.#work();
      this.#failures = 0;
    } catch (error) {
      this.#failures += 1;
      least_ms = error.retryAfter_ms ?? 0;
    }
    this.#isAtWork = false;
    const pause_ms = Math.min(this.#pause_ms() * 2 ** this.#failures, PAUSE_MAX_MS);
    const jitter = 0.8 + 0.4 * Math.random();
    this.#timer = setTimeout(() => this.now(), this.#isWanted ? 0 : Math.max(least_ms, pause_ms * jitter));
  }
}
