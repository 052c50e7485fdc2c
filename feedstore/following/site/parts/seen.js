/** The feeds and boards that this browser was shown something of, the latest first: a few, in its local storage. */

const KEY = "feed.seen";
const MOST = 8;
const VIEW = /^(user|board)=[1-9][0-9]{0,18}$/;

/** As they are in an address: `user=1`, `board=9`. */
export const seen = {
  all() {
    try {
      return JSON.parse(localStorage.getItem(KEY) ?? "[]").filter((each) => VIEW.test(each));
    } catch {
      return []; // written by something else
    }
  },
  add(view) {
    const before = seen.all();
    if (before[0] === view) return;
    localStorage.setItem(KEY, JSON.stringify([view, ...before.filter((each) => each !== view)].slice(0, MOST)));
  },
  forget: () => localStorage.removeItem(KEY),
};
